"""LeaveGroup in every version: one member or many, by either of their ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.core.coordinators.state_log import StateLog
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from support.consumer_group import Consumers
from support.in_memory import Harness
from support.members import LEAVE, OLD, coordinator, group_of, join, joining, stable

OLD_LEAVE = [version for version in LEAVE if version < 3]
BATCH = [version for version in LEAVE if version >= 3]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return coordinator(tmp_path)


def leave(harness: Harness, version: int, *members: tuple[str, str | None], group: str = "g") -> LeaveGroupResponse:
    request = LeaveGroupRequest(group_id=group)
    if version < 3:
        ((request.member_id, _),) = members
    else:
        request.members = [MemberIdentity(member_id=one, group_instance_id=instance) for one, instance in members]
    return harness.request(request, version, LeaveGroupResponse)


def codes(answer: LeaveGroupResponse) -> list[int]:
    assert answer.error_code == ErrorCode.NONE
    return [member.error_code for member in answer.members]


@pytest.mark.parametrize("version", OLD_LEAVE)
def test_one_member_leaves(harness: Harness, version: int) -> None:
    joined = stable(harness)
    assert leave(harness, version, ("somebody", None)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(harness, version, (joined.member_id, None)).error_code == ErrorCode.NONE
    assert group_of(harness).is_empty
    assert leave(harness, version, (joined.member_id, None)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(harness, version, ("", None), group="unknown").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(harness, version, ("", None), group="").error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", LEAVE)
def test_coordinator_error_is_returned_for_all_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    def fails(*_: object) -> None:
        raise Refused(ErrorCode.NOT_COORDINATOR)

    harness = Consumers(tmp_path)
    harness.create("t")
    harness.join("m", "t")
    monkeypatch.setattr(StateLog, "append", fails)
    answer = leave(harness, version, ("m", None))
    assert (answer.error_code, answer.members) == (ErrorCode.NOT_COORDINATOR, [])


@pytest.mark.parametrize("version", BATCH)
def test_each_leaving_member_has_its_own_error_code(harness: Harness, version: int) -> None:
    joined = join(harness, 5, group_instance_id="i")
    answer = leave(
        harness,
        version,
        ("somebody", None),
        (joined.member_id, "j"),
        ("somebody", "i"),
        ("", "j"),
        ("", None),
        (joined.member_id, None),
        (joined.member_id, None),
    )
    assert codes(answer) == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    left = [(member.member_id, member.group_instance_id) for member in answer.members]
    assert left[:3] == [("somebody", None), (joined.member_id, "j"), ("somebody", "i")]


@pytest.mark.parametrize("version", BATCH)
def test_member_leaves_by_instance_id_alone(harness: Harness, version: int) -> None:
    join(harness, 5, group_instance_id="i")
    answer = leave(harness, version, ("", "i"))
    assert codes(answer) == [ErrorCode.NONE]
    assert (answer.members[0].member_id, answer.members[0].group_instance_id) == ("", "i")


@pytest.mark.parametrize("version", BATCH)
def test_leave_of_an_unknown_group_is_refused_per_member(harness: Harness, version: int) -> None:
    assert codes(leave(harness, version, ("a", None), ("", "i"), group="unknown")) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert codes(leave(harness, version, group="unknown")) == []
    nameless = leave(harness, version, ("a", None), group="")
    assert (nameless.error_code, nameless.members) == (ErrorCode.INVALID_GROUP_ID, [])


def test_pending_member_can_leave(harness: Harness) -> None:
    pending = join(harness, 4)
    assert codes(leave(harness, 5, (pending.member_id, None))) == [ErrorCode.NONE]
    assert join(harness, 4, member_id=pending.member_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "g" not in harness.broker.groups.shard_of("g").groups, "nothing is left of it"


def test_many_leave_in_one_rebalance(harness: Harness) -> None:
    first = stable(harness)
    for _ in range(9):
        harness.send(joining(), OLD)
    join(harness, member_id=first.member_id)
    group = group_of(harness)
    assert len(group.members) == 10
    leavers = [(member.id, None) for member in group.members if member.id != first.member_id]
    assert set(codes(leave(harness, 5, *leavers))) == {ErrorCode.NONE}
    assert [rebalance.generation for rebalance in group.rebalances] == [0, 1, 2]
    assert group.rebalances[-1].reason.startswith("left: ") and group.rebalances[-1].reason.endswith("and 4 more")
