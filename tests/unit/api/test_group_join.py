"""JoinGroup in every version: responses, and the order of checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek.api.conversation import Conversation
from odradek.base.errors import ErrorCode
from odradek.base.limits import ANSWER_BYTES_INLINE_MAX
from odradek.core.kernel.work import Work
from odradek.wire.client_codec import encode_request
from odradek.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from support.in_memory import CLIENT, Harness, frame_of
from support.members import JOIN, OLD, coordinator, group_of, join, joining, parked, stable, sync

ID = re.compile(r"(.+)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return coordinator(tmp_path)


def protocols(*names: str) -> list[JoinGroupRequestProtocol]:
    return [JoinGroupRequestProtocol(name=name, metadata=name.encode()) for name in names]


def no_name(version: int) -> str | None:
    return None if version >= 7 else ""


@pytest.mark.parametrize("version", JOIN)
def test_the_first_member_leads(harness: Harness, version: int) -> None:
    answer = join(harness, version)
    if version >= 4:
        assert (answer.error_code, answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert (answer.leader, answer.members, answer.protocol_name) == ("", [], no_name(version))
        answer = join(harness, version, member_id=answer.member_id)
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
    assert answer.leader == answer.member_id == answer.members[0].member_id
    assert (answer.protocol_name, bytes(answer.members[0].metadata)) == ("range", b"meta")
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert not answer.skip_assignment and len(answer.members) == 1
    named = ID.fullmatch(answer.member_id)
    assert named is not None and named[1] == CLIENT


@pytest.mark.parametrize("version", JOIN)
def test_refusal_matches_the_request_version(harness: Harness, version: int) -> None:
    for code, fields in {
        ErrorCode.INVALID_GROUP_ID: {"group": ""},
        ErrorCode.INVALID_SESSION_TIMEOUT: {"session_timeout_ms": 5_999},
        ErrorCode.UNKNOWN_MEMBER_ID: {"member_id": "somebody"},
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: {"protocols": []},
    }.items():
        answer = join(harness, version, **fields)
        assert (answer.error_code, answer.generation_id, answer.leader, answer.members) == (code, -1, "", [])
        assert answer.member_id == fields.get("member_id", "")
        assert (answer.protocol_type, answer.protocol_name) == (None, no_name(version))
    assert "g" not in harness.broker.groups.shard_of("g").groups, "who is refused makes no group"


def test_errors_are_checked_in_order(harness: Harness) -> None:
    """Each request has one more error than the one before, and is refused for the first in the order."""
    stable(harness)
    fields: dict[str, object] = {}
    for code, more in (
        (ErrorCode.UNKNOWN_MEMBER_ID, {"member_id": "somebody"}),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, {"protocol_type": "connect"}),
        (ErrorCode.UNKNOWN_MEMBER_ID, {"group": "unknown"}),
        (ErrorCode.INVALID_SESSION_TIMEOUT, {"session_timeout_ms": 1_800_001}),
        (ErrorCode.INVALID_GROUP_ID, {"group": ""}),
    ):
        fields |= more
        assert join(harness, **fields).error_code == code, fields


def test_recovery_time_does_not_expire_sessions(harness: Harness) -> None:
    joined = stable(harness)
    harness.opening_ms = 60_000
    harness.kill()
    harness.pass_time(1)
    assert group_of(harness).members.get(joined.member_id) is not None


def test_member_refused_by_the_group_size_loses_its_id(tmp_path: Path) -> None:
    harness = coordinator(tmp_path, group_max_size="2")
    first = stable(harness)
    for _ in range(2):
        parked(harness.send(joining(), OLD))
    answer = join(harness, member_id=first.member_id)
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_join_without_the_offsets_topic_returns_not_coordinator(tmp_path: Path) -> None:
    assert join(Harness(tmp_path)).error_code == ErrorCode.NOT_COORDINATOR


def test_version_0_uses_one_timeout_for_session_and_rebalance(harness: Harness) -> None:
    join(harness, 0, rebalance_timeout_ms=1)
    (member,) = group_of(harness).members
    assert member.rebalance_timeout_ms == member.session_timeout_ms == 10_000


@pytest.mark.parametrize("protocol_type", ["", "connect"])
def test_members_must_share_the_protocol_type(harness: Harness, protocol_type: str) -> None:
    stable(harness)
    assert join(harness, protocol_type=protocol_type).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_empty_group_may_change_its_protocol_type(harness: Harness) -> None:
    stable(harness)
    harness.pass_time(10_000)
    assert group_of(harness).is_empty
    assert join(harness, protocol_type="connect").generation_id == 3
    assert group_of(harness).protocol_type == "connect"


def test_repeated_protocol_is_counted_once(harness: Harness) -> None:
    twice = [*protocols("range"), JoinGroupRequestProtocol(name="range", metadata=b"again")]
    answer = join(harness, protocols=twice)
    assert [bytes(member.metadata) for member in answer.members] == [b"range"]
    waiting = parked(harness.send(joining(protocols=protocols("range")), OLD))
    assert join(harness, member_id=answer.member_id, protocols=twice).generation_id == 2
    assert harness.decoded(harness.finished(waiting), OLD, JoinGroupResponse).generation_id == 2


def test_static_members_join_immediately(harness: Harness) -> None:
    answer = join(harness, 5, group_instance_id="i")
    assert answer.error_code == ErrorCode.NONE and answer.members[0].group_instance_id == "i"
    named = ID.fullmatch(answer.member_id)
    assert named is not None and named[1] == "i"


@pytest.mark.parametrize("instance_id", ["", ".", "a b"])
def test_any_text_is_accepted_as_instance_id(harness: Harness, instance_id: str) -> None:
    assert join(harness, 5, group_instance_id=instance_id).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_follower_is_replaced(harness: Harness, version: int) -> None:
    old = stable(harness)
    waiting = parked(harness.send(joining(group_instance_id="i"), 5))
    again = join(harness, member_id=old.member_id)
    second = harness.decoded(harness.finished(waiting), 5, JoinGroupResponse)
    assert sync(harness, again).error_code == ErrorCode.NONE
    new = join(harness, version, group_instance_id="i")
    assert (new.error_code, new.generation_id, new.leader) == (ErrorCode.NONE, 2, old.member_id)
    assert new.members == [] and new.member_id != second.member_id
    fenced = join(harness, 5, member_id=second.member_id, group_instance_id="i")
    assert (fenced.error_code, fenced.member_id) == (ErrorCode.FENCED_INSTANCE_ID, second.member_id)


@pytest.mark.parametrize("version", range(5, 10))
def test_returning_static_leader_skips_the_assignment(harness: Harness, version: int) -> None:
    old = join(harness, 5, group_instance_id="i")
    assert sync(harness, old, group_instance_id="i").error_code == ErrorCode.NONE
    new = join(harness, version, group_instance_id="i")
    assert (new.error_code, new.generation_id, new.skip_assignment) == (ErrorCode.NONE, 1, version >= 9)
    if version >= 9:
        assert new.leader == new.member_id == new.members[0].member_id
    else:
        assert (new.leader, new.members) == (old.member_id, [])
    assert bytes(sync(harness, new, group_instance_id="i").assignment) == b"all"


def test_pending_member_cannot_become_static(harness: Harness) -> None:
    refused = join(harness, 5)
    answer = join(harness, 5, member_id=refused.member_id, group_instance_id="i")
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_names_of_any_length_fit_into_a_member_id(harness: Harness) -> None:
    answer = join(harness, 5, group_instance_id="ж" * 16_000)
    assert len(answer.member_id.encode()) < 1 << 15
    assert sync(harness, answer, group_instance_id="ж" * 16_000).error_code == ErrorCode.NONE


def test_client_without_a_client_id_joins(harness: Harness) -> None:
    frame = b"".join(map(bytes, encode_request(joining(), OLD, 1, None)))  # type: ignore[arg-type]
    outcome = harness.send_frame(frame)
    assert not hasattr(outcome, "then")
    answer = harness.decoded(outcome, OLD, JoinGroupResponse)  # type: ignore[arg-type]
    assert answer.error_code == ErrorCode.NONE and answer.member_id.startswith("-")
    assert sync(harness, answer).error_code == ErrorCode.NONE


def test_parked_join_returns_not_coordinator_when_the_broker_stops(harness: Harness) -> None:
    stable(harness)
    waiting = parked(harness.send(joining(), OLD))
    harness.broker.purgatory.complete_all()
    assert harness.broker.purgatory.take_completed() == [waiting]
    answer = harness.decoded(waiting.then(), OLD, JoinGroupResponse)
    assert (answer.error_code, answer.member_id) == (ErrorCode.NOT_COORDINATOR, "")


LARGE = [JoinGroupRequestProtocol(name="range", metadata=bytes(ANSWER_BYTES_INLINE_MAX * 2 // 3))]


def leader_encoding(harness: Harness) -> tuple[Conversation, Work]:
    """Return the conversation with the leader of two large members, whose response a thread encodes."""
    leader = stable(harness, protocols=LARGE)
    waiting = parked(harness.send(joining(protocols=LARGE), OLD))
    sync(harness, join(harness, member_id=leader.member_id, protocols=LARGE))
    other = harness.decoded(harness.finished(waiting), OLD, JoinGroupResponse)
    leading = parked(harness.send(joining(leader.member_id, protocols=LARGE), OLD))
    assert not join(harness, member_id=other.member_id, protocols=LARGE).error_code
    assert harness.broker.purgatory.take_completed() == [leading]
    talk = leading.owner
    assert isinstance(talk, Conversation)
    talk.answer_parked(leading, harness.now)
    (work,) = harness.broker.works
    assert talk.is_waiting and not talk.data_to_send()
    return talk, work


def test_response_to_the_leader_of_a_large_group_is_encoded_on_a_thread(harness: Harness) -> None:
    talk, _ = leader_encoding(harness)
    harness.resume(talk)
    answer = harness.decoded(harness.finished(*talk.parked), OLD, JoinGroupResponse)
    assert [bytes(one.metadata) for one in answer.members] == [LARGE[0].metadata] * 2
    assert not talk.is_waiting


def test_leader_of_a_large_group_may_disconnect_during_encoding(harness: Harness) -> None:
    talk, _ = leader_encoding(harness)
    talk.leave()
    harness.resume(talk)
    for one in harness.broker.purgatory.take_completed():
        talk.answer_parked(one, harness.now)
    assert not talk.data_to_send() and talk.ending is None


def test_failed_encoding_thread_breaks_the_conversation(harness: Harness) -> None:
    talk, work = leader_encoding(harness)
    work.error = RuntimeError("a bug")
    work.on_finished()
    (one,) = harness.broker.purgatory.take_completed()
    talk.answer_parked(one, harness.now)
    assert talk.ending is not None and talk.ending.is_broken and not talk.is_waiting


def test_returning_static_leader_of_a_large_group_waits_for_the_thread(harness: Harness) -> None:
    """No other member has to rejoin, so it waits only for the thread."""
    large = [JoinGroupRequestProtocol(name="range", metadata=bytes(ANSWER_BYTES_INLINE_MAX + 1))]
    first = join(harness, 9, protocols=large, group_instance_id="one")
    assert sync(harness, first, 5, group_instance_id="one", protocol_type="consumer", protocol_name="range")
    talk = harness.talk()
    talk.receive_data(frame_of(joining(protocols=large, group_instance_id="one"), 9, 1, CLIENT))
    while talk.step(harness.now, 0):
        pass
    assert talk.is_in_steps and not talk.data_to_send()
    harness.resume(talk)
    answer = harness.decoded(talk.data_to_send(), 9, JoinGroupResponse)
    assert [bytes(one.metadata) for one in answer.members] == [large[0].metadata]


def test_parked_requests_of_a_moved_group_return_not_coordinator(harness: Harness) -> None:
    """The same happens if the log of the group is lost."""
    joined = stable(harness)
    join_waits = parked(harness.send(joining(), OLD))
    harness.broker.groups.shards.resign(0)
    answer = harness.decoded(harness.finished(join_waits), OLD, JoinGroupResponse)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert join(harness, member_id=joined.member_id).error_code == ErrorCode.NOT_COORDINATOR
    assert len(harness.broker.timers) == 0


CUT = b"\0\0\0\0\0\2\0\1t"  # A subscription to two topics that is truncated after the first.
SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"  # The header has version 1, and the data ends as in version 0.


@pytest.mark.parametrize(
    ("version", "metadata", "type_", "code"),
    [
        ("3.9", CUT, "consumer", ErrorCode.NONE),
        ("3.8", CUT, "consumer", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("3.8", CUT, "connect", ErrorCode.NONE),
        ("3.8", CUT[:5], "consumer", ErrorCode.NONE),
        ("3.8", SUBSCRIPTION, "consumer", ErrorCode.NONE),
    ],
)
def test_unreadable_subscription_is_refused_if_kafka_may_load_it(
    tmp_path: Path, version: str, metadata: bytes, type_: str, code: ErrorCode
) -> None:
    harness = coordinator(tmp_path, inter_broker_protocol_version=version)
    offered = [
        JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),
        JoinGroupRequestProtocol(name="sticky", metadata=metadata),
    ]
    assert join(harness, protocol_type=type_, protocols=offered).error_code == code
