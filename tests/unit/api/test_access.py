"""Partial refusals: of two topics, groups or transactional ids in one request, one is refused and the other served.

The requests and expected responses are in interop/differential/access.py. The responses of Apache Kafka 4.4.0 with its
StandardAuthorizer are recorded (interop/test_access_kafka.py makes the recording).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from differential import access, recording
from differential.access import DOOMED, HIDDEN, SEEN, STRANGER, TESTER, USERS, Row
from differential.access_known import KNOWN
from differential.base_groups import describe, describe_consumers, fetch_offsets
from differential.base_transactions import describe_transactions
from differential.known import KNOWN as EVERYWHERE
from differential.known import Difference, differences, unknown
from differential.masks import TIMES_FROM, Tree, label
from differential.player import Player
from differential.settings import SETTINGS
from differential.steps import CLUSTER, NO_SUCH_ID, Step

from odradek.api.request.admission import Admission
from odradek.api.table import BY_KEY, Api
from odradek.base.units import TimestampMs
from odradek.core.kernel.access import EVERYTHING, Principal, Rights
from odradek.core.kernel.moment import Moment
from odradek.wire.catalog import APIS
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.schema.api_keys import ApiKey
from support.harness_client import HarnessClient
from support.in_memory import Harness
from support.rights import Granted

pytestmark = pytest.mark.slow

OURS = re.compile(r"[\w-]*(mine|seen|hidden|creator)(-too)?|1|nobody")
PORT = 9092
SOME_TIME_MS = TIMES_FROM + 10_000_000_000
NOT_FOR_SOME = {ApiKey.API_VERSIONS}  # Every connected client may send it.


class Witnessed(NamedTuple):
    """Result of one row: the response, and the state of other principals' resources before and after it."""

    answer: Tree
    frame: bytes
    before: object
    after: object


class _Watching(Player):
    """An observer with every right, which reads resources hidden from the tester around each request."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.witnessed: dict[str, Witnessed] = {}
        self.harness_clients: dict[str, HarnessClient] = {}
        super().__init__(PORT, self._client_of)  # type: ignore[arg-type]

    def _client_of(self, user: str) -> HarnessClient:
        rights: Rights = Granted(USERS[user]) if user else EVERYTHING
        client = HarnessClient(self.harness, Admission(Principal("User", user or "ANONYMOUS"), rights))
        return self.harness_clients.setdefault(user, client)

    def _outcome(self, step: Step) -> Tree:
        before = self._others()
        answer = super()._outcome(step)
        frame = self.harness_clients[step.connection].last_frame
        self.witnessed[step.name] = Witnessed(answer, frame, before, self._others())
        return answer

    def _others(self) -> object:
        """Return the topics, groups and transactions of other principals, with their content."""
        topics = self._request(MetadataRequest(topics=None), 12)
        others = [topic for topic in topics.topics if _is_others(topic.name)]
        parts = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
        requested = [ListOffsetsTopic(name=topic.name, partitions=parts) for topic in others]
        groups = [SEEN, HIDDEN, *DOOMED[1:]]
        return [
            others,
            self._request(ListOffsetsRequest(replica_id=-1, topics=requested), 7),
            self._request(describe(5, *groups), 5),
            self._request(describe_consumers("consumers-seen", "consumers-hidden"), 1),
            self._request(fetch_offsets(9, *((group, None) for group in groups)), 9),
            self._request(describe_transactions(SEEN, HIDDEN), 0),
        ]

    def _request(self, message: object, version: int) -> Any:
        return self._known.ask(message, version, dict(APIS.values())[type(message)])


def _is_others(name: str) -> bool:
    return "hidden" in name or name in (SEEN, *DOOMED[1:])


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Watching]:
    settings = {key: value for key, value in SETTINGS.items() if key != "node.id"}
    harness = Harness(tmp_path_factory.mktemp("ours"), **settings)
    harness.now = Moment(TimestampMs(SOME_TIME_MS), harness.now.steady)
    harness.broker.view.cluster_id = "C" * len(CLUSTER)
    player = _Watching(harness)
    player.play_all([access.scenario()])
    yield player
    player.close()


@pytest.mark.parametrize("row", access.rows(), ids=lambda row: row.step.name)
def test_each_part_of_a_request_has_its_own_error_code(played: _Watching, row: Row) -> None:
    assert _codes_by_name(played.witnessed[row.step.name].answer) == row.told


@pytest.mark.parametrize("row", access.rows(), ids=lambda row: row.step.name)
def test_refused_requests_change_nothing(played: _Watching, row: Row) -> None:
    witnessed = played.witnessed[row.step.name]
    assert witnessed.after == witnessed.before


@pytest.mark.parametrize("row", access.rows(), ids=lambda row: row.step.name)
def test_hidden_names_appear_only_in_responses_to_requests_with_them(played: _Watching, row: Row) -> None:
    if row.step.connection in (TESTER, STRANGER):
        names = re.findall(
            rb"(?:listed|doomed|fresh|nowhere|consumers)-hidden(?:-too)?", played.witnessed[row.step.name].frame
        )
        assert all(name in row.step.frame for name in names)


@pytest.mark.parametrize("row", access.rows(), ids=lambda row: row.step.name)
def test_responses_match_kafkas(played: _Watching, row: Row) -> None:
    recorded = recording.read(access.RECORDED)[access.scenario().name][row.step.name]
    assert recorded.request == recording.digest(row.step.frame), "the request is another: record it anew"
    found = _differences(played, row)
    new = [one for one in unknown(found) if not any(known.covers(one) for known in KNOWN)]
    assert not new, "\n".join(map(str, new))


def test_every_known_difference_still_exists(played: _Watching) -> None:
    found = [difference for row in access.rows() for difference in _differences(played, row)]
    assert all(any(map(known.covers, found)) for known in KNOWN)
    assert {known.id for known in KNOWN} <= {known.id for known in EVERYWHERE}


def _differences(played: _Watching, row: Row) -> list[Difference]:
    recorded = recording.read(access.RECORDED)[access.scenario().name][row.step.name]
    return differences(row.step.name, recorded.answer, played.witnessed[row.step.name].answer)


@pytest.mark.parametrize("api", [api for api in BY_KEY.values() if not api.is_own], ids=lambda api: api.key.title)
def test_every_api_has_allowed_and_refused_requests(api: Api) -> None:
    """A new API must define who may use it; Odradek's own APIs have separate tests."""
    codes = [code for row in access.rows() if row.step.api_key == api.key for code in row.told.values() or ["NONE"]]
    refused = [code for code in codes if code.endswith("AUTHORIZATION_FAILED")]
    lists = {row.step.connection: row.told for row in access.rows() if row.step.api_key == api.key}
    assert len(refused) < len(codes)
    assert (
        refused
        or len({str(by_name) for by_name in lists.values()}) > 1
        or api.key in NOT_FOR_SOME | {ApiKey.DESCRIBE_CLUSTER}
    )


def _codes_by_name(answer: Tree) -> access.Told:
    """Return the error codes by topic, group or transactional id."""
    found: dict[str, set[str]] = {}
    _collect(answer, "", found)
    return {name: "+".join(sorted(codes)) for name, codes in found.items() if name or codes != {"NONE"}}


def _collect(tree: Tree, name: str, found: dict[str, set[str]]) -> bool:
    """Collect error codes; return False if there is none."""
    if not isinstance(tree, dict):
        return False
    codes = {code for key, code in tree.items() if key in ("error_code", "partition_error_code")}
    if codes:
        found.setdefault(name, set()).update(codes)
    parts = [value for key, value in tree.items() if key != "next_cursor"]  # Not a part of the response.
    inner = [each for value in parts for each in (value if isinstance(value, list) else [value])]
    have_codes = [_collect_named(each, name, found) for each in inner]  # Collect all of them.
    return any(have_codes) or bool(codes)


def _collect_named(tree: Tree, name: str, found: dict[str, set[str]]) -> bool:
    own = (tree.get("key") or label(tree)) if isinstance(tree, dict) else ""
    own = own.removeprefix("id of ") if isinstance(own, str) else ""
    own = "id of nothing" if own == NO_SUCH_ID.hex() else own
    if not OURS.fullmatch(own) and own != "id of nothing":
        return _collect(tree, name, found)
    if not _collect(tree, own, found):
        found.setdefault(own, set()).add("NONE")
    return True
