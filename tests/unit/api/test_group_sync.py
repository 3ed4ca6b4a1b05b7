"""SyncGroup and Heartbeat in every version: responses, and the order of checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupResponse
from odradek.wire.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse
from support.in_memory import Harness
from support.members import HEARTBEAT, OLD, SYNC, coordinator, join, joining, parked, stable, sync, syncing

PROTOCOL = {"protocol_type": "consumer", "protocol_name": "range"}


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return coordinator(tmp_path)


def heartbeat(harness: Harness, member_id: str, generation: int = 1, version: int = 4, **fields: str) -> int:
    values: dict[str, object] = {"group_id": "g", "member_id": member_id, "generation_id": generation}
    request = HeartbeatRequest(**values | fields)  # type: ignore[arg-type]
    return harness.request(request, version, HeartbeatResponse).error_code


@pytest.mark.parametrize("version", SYNC)
def test_leader_gets_its_assignment(harness: Harness, version: int) -> None:
    joined = join(harness)
    answer = sync(harness, joined, version, **PROTOCOL)
    assert (answer.error_code, bytes(answer.assignment)) == (ErrorCode.NONE, b"all")
    protocol = (answer.protocol_type, answer.protocol_name)
    assert protocol == (("consumer", "range") if version >= 5 else (None, None))


@pytest.mark.parametrize("version", SYNC)
def test_stable_group_repeats_assignments_and_ignores_new_ones(harness: Harness, version: int) -> None:
    joined = stable(harness)
    other = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"other")]
    assert bytes(sync(harness, joined, version, assignments=other, **PROTOCOL).assignment) == b"all"


def test_member_without_an_assignment_gets_an_empty_one(harness: Harness) -> None:
    leader = stable(harness)
    waiting = parked(harness.send(joining(), OLD))
    leader = join(harness, member_id=leader.member_id)
    follower = harness.decoded(harness.finished(waiting), OLD, JoinGroupResponse)
    waiting = parked(harness.send(syncing(follower), 3))
    stranger = SyncGroupRequestAssignment(member_id="stranger", assignment=b"much")
    assert bytes(sync(harness, leader, assignments=[stranger]).assignment) == b""
    answer = harness.decoded(waiting.then(), 3, SyncGroupResponse)  # The leader's sync arrives.
    assert (answer.error_code, bytes(answer.assignment)) == (ErrorCode.NONE, b"")


@pytest.mark.parametrize("version", SYNC)
def test_invalid_sync_is_refused(harness: Harness, version: int) -> None:
    joined = stable(harness)
    for code, fields in {
        ErrorCode.INVALID_GROUP_ID: {"group": ""},
        ErrorCode.UNKNOWN_MEMBER_ID: {"group": "unknown"},
        ErrorCode.ILLEGAL_GENERATION: {"generation_id": 2},
    }.items():
        answer = sync(harness, joined, version, **PROTOCOL | fields)
        assert (answer.error_code, answer.protocol_type, answer.protocol_name) == (code, None, None)
        assert bytes(answer.assignment) == b""
    stranger = sync(harness, joined, version, **PROTOCOL, member_id="somebody")
    assert stranger.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_with_another_protocol_is_refused(harness: Harness) -> None:
    joined = stable(harness)
    for other in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        assert sync(harness, joined, 5, **PROTOCOL | other).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert sync(harness, joined, 4, **PROTOCOL | other).error_code == ErrorCode.NONE
    for missing in ("protocol_type", "protocol_name"):
        answer = sync(harness, joined, 5, **{**PROTOCOL, missing: None}, group="")
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "looked at before anything else"
    answer = sync(harness, joined, 5, **PROTOCOL | {"protocol_name": "sticky"}, generation_id=7)
    assert answer.error_code == ErrorCode.ILLEGAL_GENERATION, "looked at before the protocol"


@pytest.mark.parametrize("version", HEARTBEAT)
def test_heartbeat_checks_generation_and_member(harness: Harness, version: int) -> None:
    joined = join(harness)
    assert heartbeat(harness, joined.member_id, version=version) == ErrorCode.NONE, "while the leader assigns"
    sync(harness, joined)
    for code, generation, member_id, fields in (
        (ErrorCode.NONE, 1, joined.member_id, {}),
        (ErrorCode.ILLEGAL_GENERATION, 2, joined.member_id, {}),
        (ErrorCode.UNKNOWN_MEMBER_ID, 2, "somebody", {}),
        (ErrorCode.UNKNOWN_MEMBER_ID, 1, "", {}),
        (ErrorCode.UNKNOWN_MEMBER_ID, 1, joined.member_id, {"group_id": "unknown"}),
        (ErrorCode.INVALID_GROUP_ID, 1, joined.member_id, {"group_id": ""}),
    ):
        assert heartbeat(harness, member_id, generation, version, **fields) == code
    harness.send(joining(), OLD)
    assert heartbeat(harness, joined.member_id, version=version) == ErrorCode.REBALANCE_IN_PROGRESS
    assert heartbeat(harness, joined.member_id, 2, version=version) == ErrorCode.ILLEGAL_GENERATION


def test_static_member_may_omit_its_instance_id(harness: Harness) -> None:
    joined = join(harness, 5, group_instance_id="i")
    sync(harness, joined)
    assert heartbeat(harness, joined.member_id) == ErrorCode.NONE
    assert heartbeat(harness, joined.member_id, group_instance_id="i") == ErrorCode.NONE
    assert heartbeat(harness, joined.member_id, group_instance_id="j") == ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(harness, "somebody", group_instance_id="i") == ErrorCode.FENCED_INSTANCE_ID


def test_pending_member_is_unknown_to_heartbeat_and_sync(harness: Harness) -> None:
    pending = join(harness, 4)
    assert pending.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert heartbeat(harness, pending.member_id, 0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(harness, pending, generation_id=0).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_sets_no_timer(harness: Harness) -> None:
    joined = stable(harness)
    before = len(harness.broker.timers)
    for _ in range(1000):
        harness.pass_time(10)
        assert heartbeat(harness, joined.member_id) == ErrorCode.NONE
    assert len(harness.broker.timers) == before
