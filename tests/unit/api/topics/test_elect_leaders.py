"""ElectLeaders without a socket, in each version: forwarding to the controller, and completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.api.table import BY_KEY
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, LeaderEpoch, TopicPartition
from odradek.core.controller.events import ElectionEnd, ElectLeaders
from odradek.core.controller.partition_leader_election import ElectionType
from odradek.core.kernel.access import Operation
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from odradek.wire.schema.api_keys import ApiKey
from support.between_brokers import BetweenBrokers, frame, not_the_controller
from support.controlling import OTHER, Controlling, name_of
from support.in_memory import US, Harness

VERSIONS = BY_KEY[ApiKey.ELECT_LEADERS].versions
NONE, NOT_NEEDED = ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED
NO_LEADER = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
T0, T1, U0 = name_of("t"), name_of("t", 1), name_of("u")

Named = Mapping[str, Sequence[int]]


def request(named: Named | None, kind: int = 0, timeout_ms: int = 1_000) -> ElectLeadersRequest:
    topics = None
    if named is not None:
        topics = [TopicPartitions(topic=name, partitions=list(indexes)) for name, indexes in named.items()]
    return ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=timeout_ms)


def results_of(answer: ElectLeadersResponse) -> list[tuple[str, int, int]]:
    return [
        (topic.topic, one.partition_id, one.error_code)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    ]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    controller = Controlling(made)
    controller.create_topic("t", 2)
    controller.create_topic("u")
    made.broker.view.controller = US
    return made


@pytest.fixture
def between(harness: Harness) -> BetweenBrokers:
    made = BetweenBrokers(harness)
    made.may(Operation.ALTER)
    return made


def ends(**by_name: ElectionEnd) -> Any:
    """Return a decision with these results by name as `t_1`; for all others no election is needed."""

    def decide(query: ElectLeaders) -> None:
        query.answer = {
            one: by_name.get(f"{one.topic}_{one.partition}", ElectionEnd(NOT_NEEDED, "no need"))
            for one in query.partitions
        }

    return decide


# A lone broker.


@pytest.mark.parametrize("version", VERSIONS)
def test_lone_broker_needs_no_elections(harness: Harness, version: int) -> None:
    answer = harness.request(request({"t": [1, 0, 1, 2], "no": [0]}), version, ElectLeadersResponse)
    assert answer.error_code == NONE
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert results_of(answer) == [("t", 1, NOT_NEEDED), ("t", 0, NOT_NEEDED), ("t", 2, unknown), ("no", 0, unknown)]
    assert results_of(harness.request(request(None), version, ElectLeadersResponse)) == []


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ElectionType.PREFERRED, NO_LEADER), (ElectionType.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)],
)
def test_lone_broker_cannot_elect_another_leader(harness: Harness, kind: ElectionType, code: ErrorCode) -> None:
    Controlling(harness).send_update_metadata({"u": 1}, leader=BrokerId(-1), epoch=1)
    harness.broker.view.controller = US
    for named in (None, {"u": [0]}):
        assert results_of(harness.request(request(named, kind), 2, ElectLeadersResponse)) == [("u", 0, code)]


# In a cluster.


@pytest.mark.parametrize("version", VERSIONS)
def test_controller_gets_each_partition_once(between: BetweenBrokers, version: int) -> None:
    failed = ElectionEnd(NO_LEADER, "it is away")
    message = request({"t": [1, 0, 1], "u": [0]}, kind=1 if version else 0)
    answer = between.request(message, version, ElectLeadersResponse, decide=ends(t_1=failed))
    (query,) = between.queries
    assert isinstance(query, ElectLeaders)
    assert (query.election_type, list(query.partitions)) == (version > 0, [T1, T0, U0])
    assert results_of(answer) == [("t", 1, NO_LEADER), ("t", 0, NOT_NEEDED), ("u", 0, NOT_NEEDED)]
    first = answer.replica_election_results[0].partition_result[0]
    assert first.error_message == "it is away"


def test_request_for_all_returns_only_needed_elections(between: BetweenBrokers) -> None:
    answer = between.request(request(None), 2, ElectLeadersResponse, decide=ends(u_0=ElectionEnd(NO_LEADER)))
    (query,) = between.queries
    assert list(query.partitions) == [T0, T1, U0]  # type: ignore[attr-defined]
    assert results_of(answer) == [("u", 0, NO_LEADER)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_known", [True, False])
def test_request_to_another_broker_returns_not_controller(
    between: BetweenBrokers, version: int, is_known: bool
) -> None:
    """The broker knows the controller, or learns of it from the response."""
    if is_known:
        between.harness.broker.view.controller = OTHER
    for named, names in (({"no": [3], "t": [0]}, [("no", 3), ("t", 0)]), (None, [("t", 0), ("t", 1), ("u", 0)])):
        answer = between.request(request(named), version, ElectLeadersResponse, decide=not_the_controller)
        assert answer.error_code == NONE
        assert results_of(answer) == [(*one, ErrorCode.NOT_CONTROLLER) for one in names]
    assert len(between.queries) == (0 if is_known else 2)


@pytest.mark.parametrize("version", VERSIONS)
def test_election_requires_the_right_to_alter_the_cluster(between: BetweenBrokers, version: int) -> None:
    between.may(*set(Operation) - {Operation.ALTER})
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    answer = between.request(request({"t": [0]}), version, ElectLeadersResponse)
    assert (answer.error_code, results_of(answer)) == (denied if version else NONE, [("t", 0, denied)])
    assert not between.queries


def test_invalid_election_type_is_refused(between: BetweenBrokers) -> None:
    answer = between.request(request({"t": [0]}, kind=2), 1, ElectLeadersResponse)
    assert (answer.error_code, results_of(answer)) == (
        ErrorCode.INVALID_REQUEST,
        [("t", 0, ErrorCode.INVALID_REQUEST)],
    )


def election_end(epoch: int) -> ElectionEnd:
    return ElectionEnd(NONE, None, OTHER, LeaderEpoch(epoch))


@pytest.mark.parametrize("epoch", [3, 4])
def test_request_completes_when_the_leaders_are_visible(between: BetweenBrokers, epoch: int) -> None:
    """In the epoch of the election or a later one."""
    harness, began = between.harness, between.harness.now
    outcome = harness.send_frame(frame(request({"t": [0, 1], "u": [0]}), 2))
    assert isinstance(outcome, ParkedRequest)
    assert between.answer_queries(ends(t_0=election_end(3), u_0=election_end(0))) == 1
    controller = Controlling(harness)
    controller.send_update_metadata({"u": 1}, epoch=1)
    controller.send_update_metadata({"t": 2}, leader=OTHER, epoch=epoch)
    answer = harness.decoded(harness.finished(outcome), 2, ElectLeadersResponse)
    assert results_of(answer) == [("t", 0, NONE), ("t", 1, NOT_NEEDED), ("u", 0, NONE)]
    assert harness.now == began, "no deadline passed"


def test_request_times_out_after_its_timeout(between: BetweenBrokers) -> None:
    harness = between.harness
    outcome = harness.send_frame(frame(request({"t": [0, 1]}, timeout_ms=-5), 2))
    assert isinstance(outcome, ParkedRequest)
    assert between.answer_queries(ends(t_0=election_end(3))) == 1
    answer = harness.decoded(harness.finished(outcome), 2, ElectLeadersResponse)
    assert results_of(answer) == [("t", 0, ErrorCode.REQUEST_TIMED_OUT), ("t", 1, NOT_NEEDED)]


def test_deleted_topic_completes_the_request(between: BetweenBrokers) -> None:
    harness, began = between.harness, between.harness.now
    outcome = harness.send_frame(frame(request({"u": [0]}), 2))
    assert isinstance(outcome, ParkedRequest)
    assert between.answer_queries(ends(u_0=election_end(3))) == 1
    Controlling(harness).delete_topic("u")
    answer = harness.decoded(harness.finished(outcome), 2, ElectLeadersResponse)
    assert results_of(answer) == [("u", 0, NONE)] and harness.now == began


def test_many_partitions_are_elected_in_one_request(between: BetweenBrokers) -> None:
    named = {f"topic-{number}": list(range(100)) for number in range(50)}
    answer = between.request(request(named), 2, ElectLeadersResponse, decide=ends())
    assert len(results_of(answer)) == 5_000
    (query,) = between.queries
    assert isinstance(query, ElectLeaders) and query.partitions[-1] == TopicPartition(name_of("topic-49").topic, 99)
