"""DescribeGroups in every version and state."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.request.repeated_names import REPEATS_MAX
from odradek.base.errors import ErrorCode
from odradek.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from support.in_memory import CLIENT, Harness
from support.members import DESCRIBE, OLD, coordinator, join, joining, stable

TIMES_MAX = REPEATS_MAX + 1

NONE = ErrorCode.NONE
NOT_REQUESTED = -(1 << 31)
ALL_ALLOWED = 3400


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return coordinator(tmp_path)


def describe(harness: Harness, version: int, *groups: str, with_operations: bool = False) -> list[DescribedGroup]:
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=with_operations)
    return harness.request(request, version, DescribeGroupsResponse).groups


@pytest.mark.parametrize("version", DESCRIBE)
def test_stable_group_is_described_with_its_members(harness: Harness, version: int) -> None:
    joined = stable(harness)
    (group,) = describe(harness, version, "g")
    assert (group.error_code, group.error_message, group.group_id) == (ErrorCode.NONE, None, "g")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, CLIENT, "/127.0.0.1")
    assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (b"meta", b"all")
    assert group.authorized_operations == NOT_REQUESTED


@pytest.mark.parametrize("version", DESCRIBE)
def test_member_metadata_is_described_for_stable_groups_only(harness: Harness, version: int) -> None:
    joined = stable(harness)
    harness.send(joining(), OLD)
    (group,) = describe(harness, version, "g")
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("PreparingRebalance", "consumer", "")
    described = [(bytes(member.member_metadata), bytes(member.member_assignment)) for member in group.members]
    assert described == [(b"", b"all"), (b"", b"")]
    join(harness, member_id=joined.member_id)
    (group,) = describe(harness, version, "g")
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    harness.pass_time(10_000)
    (group,) = describe(harness, version, "g")
    assert (group.group_state, group.protocol_type, group.members) == ("Empty", "consumer", [])


@pytest.mark.parametrize("version", DESCRIBE)
def test_describe_limits_repetitions_of_a_group(harness: Harness, version: int) -> None:
    stable(harness)
    groups = describe(harness, version, *["g"] * TIMES_MAX)
    assert [(group.error_code, len(group.members)) for group in groups] == [(NONE, 1)] * TIMES_MAX
    groups = describe(harness, version, "h", *["g"] * (TIMES_MAX + 1))
    assert {(group.error_code, len(group.members)) for group in groups} == {(ErrorCode.INVALID_REQUEST, 0)}


@pytest.mark.parametrize("version", DESCRIBE)
@pytest.mark.parametrize("group_id", ["unknown", ""])
def test_unknown_group_is_described_as_dead(harness: Harness, version: int, group_id: str) -> None:
    (group,) = describe(harness, version, group_id)
    assert (group.group_state, group.protocol_type, group.members) == ("Dead", "", [])
    if version < 6:
        assert (group.error_code, group.error_message) == (ErrorCode.NONE, None)
    else:
        assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert group.error_message == f"Group {group_id} not found."


@pytest.mark.parametrize("version", [version for version in DESCRIBE if version >= 3])
def test_authorized_operations_are_described(harness: Harness, version: int) -> None:
    stable(harness)
    there, unknown = describe(harness, version, "g", "unknown", with_operations=True)
    assert there.authorized_operations == ALL_ALLOWED
    assert unknown.authorized_operations == (ALL_ALLOWED if version < 6 else NOT_REQUESTED)


@pytest.mark.parametrize("version", DESCRIBE)
def test_group_of_another_coordinator_is_refused(harness: Harness, version: int) -> None:
    harness.broker.groups.shards.resign(0)
    groups = describe(harness, version, "g", "h")
    assert [group.error_code for group in groups] == [ErrorCode.NOT_COORDINATOR] * 2


def test_static_members_are_described_with_their_instance_id(harness: Harness) -> None:
    join(harness, 5, group_instance_id="i")
    assert describe(harness, 4, "g")[0].members[0].group_instance_id == "i"
    assert describe(harness, 3, "g")[0].members[0].group_instance_id is None


@pytest.mark.parametrize("version", DESCRIBE)
def test_rebalance_reasons_are_described(harness: Harness, version: int) -> None:
    joined = stable(harness)
    harness.pass_time(10_000)
    request = DescribeGroupsRequest(groups=["g"], include_rebalances=True)
    (group,) = harness.request(request, version, DescribeGroupsResponse).groups
    described = [(one.at_ms, one.generation, one.reason) for one in group.rebalances]
    at, name = harness.now.wall, joined.member_id
    expected = [(at - 10_000, 0, f"member {name!r} joined"), (at, 1, f"the session of member {name!r} expired")]
    assert described == (expected if version >= 5 else [])
    assert describe(harness, version, "g")[0].rebalances == []
