"""Requests with many groups, offsets or members in slices; changes in between are applied.

The offsets of a group are read, and a commit is written, at one point in time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.groups import join_group
from odradek.api.request.admission import Admission
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import REQUEST_ELEMENTS_INLINE_MAX, SLICE_ELEMENTS
from odradek.core.coordinators.state_log import StateLog
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.join_group import JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.offset_commit import OffsetCommitResponse
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from odradek.wire.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitResponse
from support.group_offsets import GroupOffsets, Kept, Member, Name, delete_groups, delete_topic, groups
from support.in_memory import Harness
from support.interleaved import Begun
from support.members import coordinator, join, stable, sync, syncing
from support.transactional import Transactional, make_topic

pytestmark = pytest.mark.slow

NONE = ErrorCode.NONE
MANY = 2 * SLICE_ELEMENTS + 50
ALL: list[Name] = [("t", index) for index in range(MANY)]
COMMIT, FETCH, IN_TRANSACTION = 9, 9, 4


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = coordinator(tmp_path, transaction_state_log_num_partitions="1")
    make_topic(made, "t", MANY)
    return made


@pytest.fixture
def group(harness: Harness) -> GroupOffsets:
    return GroupOffsets(harness)


@pytest.fixture
def many(harness: Harness) -> list[str]:
    """Return the names of groups with one offset each."""
    names = [f"g{number}" for number in range(MANY)]
    for name in names:
        GroupOffsets(harness, name).commit({("t", 0): 1})
    return names


def at(offset: int) -> dict[Name, Kept | int]:
    return dict.fromkeys(ALL, offset)


def codes(answer: OffsetCommitResponse | TxnOffsetCommitResponse) -> list[ErrorCode]:
    return [ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions]


def fetched(answer: OffsetFetchResponse) -> set[tuple[int, int]]:
    parts = (part for group in answer.groups for topic in group.topics for part in topic.partitions)
    return {(part.committed_offset, part.error_code) for part in parts}


# OffsetFetch.


@pytest.mark.parametrize("names", [None, ALL], ids=["all", "each"])
def test_fetched_offsets_of_a_group_are_consistent(group: GroupOffsets, names: list[Name] | None) -> None:
    group.commit(at(1))
    begun = Begun(group.harness, group.fetch_request(names, FETCH), FETCH)
    group.commit(at(2))
    assert fetched(begun.finish(OffsetFetchResponse)) == {(1, NONE)}
    assert set(group.fetch(names).values()) == {Kept(2)}


@pytest.mark.parametrize("commits", [True, False])
def test_fetch_in_slices_ignores_a_decision_in_between(group: GroupOffsets, commits: bool) -> None:
    group.commit(at(1))
    producer = Transactional(group.harness)
    producer.begin()
    assert set(group.commit_in(producer, at(2)).values()) == {NONE}
    begun = Begun(group.harness, group.fetch_request(None, FETCH, is_stable=True), FETCH)
    assert producer.end(commit=commits) == NONE
    assert fetched(begun.finish(OffsetFetchResponse)) == {(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}
    assert set(group.fetch(is_stable=True).values()) == {Kept(2 if commits else 1)}


def test_fetch_in_slices_returns_offsets_of_a_group_deleted_in_between(group: GroupOffsets) -> None:
    group.commit(at(1))
    begun = Begun(group.harness, group.fetch_request(None, FETCH), FETCH)
    assert group.delete() == NONE
    assert fetched(begun.finish(OffsetFetchResponse)) == {(1, NONE)}


def test_each_group_is_fetched_in_its_state_at_that_time(harness: Harness, many: list[str]) -> None:
    requested = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in many]
    begun = Begun(harness, OffsetFetchRequest(groups=requested), FETCH)
    assert delete_groups(harness, many[0], many[-1]) == {many[0]: NONE, many[-1]: NONE}
    answer = begun.finish(OffsetFetchResponse)
    assert [one.group_id for one in answer.groups] == many
    assert [len(one.topics) for one in answer.groups] == [1] * (MANY - 1) + [0]


def test_groups_resigned_in_between_are_refused_individually(harness: Harness, many: list[str]) -> None:
    requested = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in many]
    begun = Begun(harness, OffsetFetchRequest(groups=requested), FETCH)
    harness.broker.groups.shards.resign(0)
    found = [one.error_code for one in begun.finish(OffsetFetchResponse).groups]
    assert found[0] == NONE and found[-1] == ErrorCode.NOT_COORDINATOR


# DeleteGroups.


def delete_result(begun: Begun) -> ErrorCode:
    (result,) = begun.finish(DeleteGroupsResponse).results
    return ErrorCode(result.error_code)


def test_group_is_deleted_with_offsets_committed_in_between(group: GroupOffsets) -> None:
    group.commit(dict.fromkeys(ALL[1:], 1))
    producer = Transactional(group.harness)
    producer.begin()
    group.commit_in(producer, {ALL[1]: 2})
    begun = Begun(group.harness, DeleteGroupsRequest(groups_names=["g"]), 2, slices=0)
    begun.steps_to_a_thread()
    group.commit({ALL[0]: 1})
    assert delete_result(begun) == NONE
    assert (group.fetch(), groups(group.harness)) == ({}, set())
    assert producer.end(commit=True) == NONE
    assert (group.fetch(), groups(group.harness)) == ({}, set())
    group.harness.kill()
    assert (group.fetch(), groups(group.harness)) == ({}, set())


def test_deletion_of_a_group_joined_in_between_keeps_all_offsets(group: GroupOffsets) -> None:
    group.commit(at(1))
    begun = Begun(group.harness, DeleteGroupsRequest(groups_names=["g"]), 2, slices=0)
    begun.steps_to_a_thread()
    stable(group.harness)
    assert delete_result(begun) == ErrorCode.NON_EMPTY_GROUP
    assert set(group.fetch().values()) == {Kept(1)}


def test_interrupted_deletion_matches_the_written_tombstones(
    group: GroupOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk becomes full between two batches of tombstones."""
    monkeypatch.setattr("odradek.core.groups.group_offset_delete.RECORDS_PER_BATCH", SLICE_ELEMENTS)
    group.commit(at(1))
    begun = Begun(group.harness, DeleteGroupsRequest(groups_names=["g"]), 2, slices=0)
    begun.steps_to_a_thread()
    append, left = StateLog.append_encoded, [None]

    def full(*arguments: object) -> object:
        if not left:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no space left")
        left.pop()
        return append(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(StateLog, "append_encoded", full)
        assert delete_result(begun) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    found = group.fetch()
    assert len(found) == MANY - SLICE_ELEMENTS
    group.harness.kill()
    assert group.fetch() == found


# OffsetCommit, TxnOffsetCommit.


def test_long_commit_is_written_as_one_batch(group: GroupOffsets) -> None:
    group.commit(at(1))
    begun = Begun(group.harness, group.request(at(2), COMMIT), COMMIT, slices=2)
    end = group.harness.broker.groups.shards.find_shard("g").log.leading.log.end_offset
    assert set(group.fetch().values()) == {Kept(1)}
    begun.steps_to_a_thread()
    assert group.harness.broker.groups.shards.find_shard("g").log.leading.log.end_offset == end
    assert codes(begun.finish(OffsetCommitResponse)) == [NONE] * MANY
    assert set(group.fetch().values()) == {Kept(2)}
    assert group.harness.broker.groups.shards.find_shard("g").log.leading.log.end_offset == end + MANY
    group.harness.restart()
    assert set(group.fetch().values()) == {Kept(2)}


def test_commit_written_last_is_effective(group: GroupOffsets) -> None:
    begun = Begun(group.harness, group.request(at(1), COMMIT), COMMIT)
    group.commit({("t", 0): 7})
    begun.finish(OffsetCommitResponse)
    before = group.fetch()
    assert set(before.values()) == {Kept(1)}
    group.harness.restart()
    assert group.fetch() == before


def test_repeated_partition_gets_its_last_offset(group: GroupOffsets) -> None:
    request = group.request(at(1), COMMIT)
    again = group.request({("t", 0): 9}, COMMIT).topics[0].partitions
    request.topics[0].partitions += again
    assert codes(Begun(group.harness, request, COMMIT).finish(OffsetCommitResponse)) == [NONE] * (MANY + 1)
    assert group.fetch()["t", 0] == Kept(9)
    group.harness.restart()
    assert group.fetch()["t", 0] == Kept(9)


def test_commit_of_a_generation_that_ended_in_between_is_refused(group: GroupOffsets) -> None:
    first = stable(group.harness)
    member = Member(first.member_id, first.generation_id)
    begun = Begun(group.harness, group.request(at(1), COMMIT, member), COMMIT)
    assert sync(group.harness, join(group.harness, member_id=first.member_id)).error_code == NONE
    assert codes(begun.finish(OffsetCommitResponse)) == [ErrorCode.ILLEGAL_GENERATION] * MANY
    assert group.fetch() == {}


def test_commit_at_a_coordinator_that_resigned_in_between_is_refused(group: GroupOffsets) -> None:
    begun = Begun(group.harness, group.request(at(1), COMMIT), COMMIT)
    group.harness.broker.groups.shards.resign(0)
    assert codes(begun.finish(OffsetCommitResponse)) == [ErrorCode.NOT_COORDINATOR] * MANY


def test_oversized_metadata_is_refused_for_its_partition_only(group: GroupOffsets) -> None:
    kept = at(1) | {("t", 3): Kept(1, "x" * 5_000)}
    found = group.commit(kept)
    assert found == dict.fromkeys(ALL, NONE) | {("t", 3): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert len(group.fetch()) == MANY - 1
    assert set(group.commit(dict.fromkeys(ALL, Kept(1, "x" * 5_000))).values()) == {ErrorCode.OFFSET_METADATA_TOO_LARGE}


def test_commit_larger_than_a_batch_is_refused_as_a_whole(tmp_path: Path) -> None:
    harness = coordinator(tmp_path, message_max_bytes="5000")
    make_topic(harness, "t", MANY)
    group = GroupOffsets(harness)
    assert set(group.commit(at(1)).values()) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert group.fetch() == {}


def test_a_long_commit_in_a_transaction_waits_for_its_end(group: GroupOffsets) -> None:
    group.commit(at(1))
    producer = Transactional(group.harness)
    producer.begin()
    begun = Begun(group.harness, group.request_in(producer, at(2)), 5)
    assert set(group.fetch(is_stable=True).values()) == {Kept(1)}
    assert codes(begun.finish(TxnOffsetCommitResponse)) == [NONE] * MANY
    assert set(group.fetch().values()) == {Kept(1)}
    assert set(group.fetch(is_stable=True).values()) == {ErrorCode.UNSTABLE_OFFSET_COMMIT}
    group.commit({("t", 0): 5} | dict.fromkeys(ALL[100:], 5))
    group.harness.restart()
    assert producer.end(commit=True) == NONE
    assert group.fetch() == {name: Kept(2) for name in ALL[1:100]} | {name: Kept(5) for name in [ALL[0], *ALL[100:]]}


def test_commit_of_a_producer_fenced_in_between_is_refused(group: GroupOffsets) -> None:
    producer = Transactional(group.harness)
    producer.begin()
    begun = Begun(group.harness, group.request_in(producer, at(2)), 5)
    producer.begin()  # Its next instance fences it.
    assert set(codes(begun.finish(TxnOffsetCommitResponse))) == {ErrorCode.INVALID_PRODUCER_EPOCH}
    assert group.fetch(is_stable=True) == {}


# DeleteGroups, OffsetDelete.


def test_group_joined_in_between_is_not_deleted(harness: Harness, many: list[str]) -> None:
    begun = Begun(harness, DeleteGroupsRequest(groups_names=many), 2)
    assert join(harness, group=many[-1], group_id=many[-1]).error_code == NONE
    assert delete_groups(harness, many[-2]) == {many[-2]: NONE}
    answer = begun.finish(DeleteGroupsResponse)
    assert [one.group_id for one in answer.results] == many
    expected = [NONE] * (MANY - 2) + [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP]
    assert [one.error_code for one in answer.results] == expected
    assert groups(harness) == {many[-1]}
    harness.restart()
    assert groups(harness) == {many[-1]}


def test_long_response_is_built_in_slices(group: GroupOffsets) -> None:
    names = [f"g{number}" for number in range(MANY)]
    group.commit({("t", 0): 1})
    assert Begun(group.harness, DeleteGroupsRequest(groups_names=[*names, "g"]), 2).waits_in_slices()
    nowhere = group.request({("t", 0): 1} | {("t", MANY + number): 1 for number in range(MANY)}, COMMIT)
    assert Begun(group.harness, nowhere, COMMIT, slices=0).waits_in_slices()


def offset_delete() -> OffsetDeleteRequest:
    parts = [OffsetDeleteRequestPartition(partition_index=index) for _, index in ALL]
    return OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=parts)])


def test_many_offsets_are_deleted(group: GroupOffsets) -> None:
    group.commit(at(1))
    answer = Begun(group.harness, offset_delete(), 0).finish(OffsetDeleteResponse)
    assert [part.error_code for part in answer.topics[0].partitions] == [NONE] * MANY
    assert group.fetch() == {}


def test_offset_deletion_ends_if_the_group_is_deleted_in_between(group: GroupOffsets) -> None:
    group.commit(at(1))
    begun = Begun(group.harness, offset_delete(), 0, slices=2)
    assert 0 < len(group.fetch()) < MANY
    assert group.delete() == NONE
    assert begun.finish(OffsetDeleteResponse).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.fetch() == {} and groups(group.harness) == set()


def test_offsets_of_members_that_joined_in_between_are_kept(group: GroupOffsets) -> None:
    group.commit(at(1))
    begun = Begun(group.harness, offset_delete(), 0, slices=2)
    join(group.harness)  # An unreadable subscription, which covers any topic.
    found = [part.error_code for part in begun.finish(OffsetDeleteResponse).topics[0].partitions]
    assert set(found) == {NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert set(group.fetch()) == {name for name, code in zip(ALL, found, strict=True) if code}


# Listed and described groups.


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a slice end at every possible point."""
    monkeypatch.setattr("odradek.api.request.outcome.SLICE_ELEMENTS", 0)


@pytest.mark.usefixtures("short_slices")
def test_groups_deleted_in_between_are_not_listed(harness: Harness, many: list[str]) -> None:
    begun = Begun(harness, ListGroupsRequest(), 4)
    delete_groups(harness, many[0], many[-1])
    found = [one.group_id for one in begun.finish(ListGroupsResponse).groups]
    assert found == many[:-1], "the first had been looked at"


def test_each_group_is_described_in_its_state_at_that_time(harness: Harness, many: list[str]) -> None:
    begun = Begun(harness, DescribeGroupsRequest(groups=many), 6)
    joined = stable(harness, group=many[-1], group_id=many[-1])
    delete_groups(harness, many[-2])
    found = begun.finish(DescribeGroupsResponse).groups
    assert [one.group_id for one in found] == many
    assert [one.group_state for one in found[-3:]] == ["Empty", "Dead", "Stable"]
    assert [one.member_id for one in found[-1].members] == [joined.member_id]


def test_many_unknown_consumer_groups_are_described(harness: Harness, many: list[str]) -> None:
    request = ConsumerGroupDescribeRequest(group_ids=many, include_authorized_operations=False)
    found = Begun(harness, request, 0).finish(ConsumerGroupDescribeResponse).groups
    assert [(one.group_id, one.error_code) for one in found] == [(name, ErrorCode.GROUP_ID_NOT_FOUND) for name in many]


def test_coordinators_of_many_groups_are_found(harness: Harness) -> None:
    names = [f"g{number}" for number in range(MANY)]
    answer = Begun(harness, FindCoordinatorRequest(coordinator_keys=names), 4).finish(FindCoordinatorResponse)
    assert [(one.key, one.error_code, one.node_id) for one in answer.coordinators] == [(name, 0, 1) for name in names]


def test_state_topic_is_created_before_coordinators_are_found(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    names = [f"g{number}" for number in range(MANY)]
    answer = harness.request(FindCoordinatorRequest(coordinator_keys=names), 4, FindCoordinatorResponse)
    assert {one.error_code for one in answer.coordinators} == {NONE}


# Members.


def test_members_leave_a_hundred_at_a_time(harness: Harness) -> None:
    first = stable(harness)
    unknown = [MemberIdentity(member_id=f"m{number}") for number in range(MANY)]
    leaving = LeaveGroupRequest(group_id="g", members=[*unknown, MemberIdentity(member_id=first.member_id)])
    begun = Begun(harness, leaving, 4)
    assert join(harness, member_id=first.member_id).error_code == NONE, "it is still there"
    answer = begun.finish(LeaveGroupResponse)
    found = [(one.member_id, one.error_code) for one in answer.members]
    assert found == [(one.member_id, ErrorCode.UNKNOWN_MEMBER_ID) for one in unknown] + [(first.member_id, NONE)]
    assert join(harness, member_id=first.member_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_of_a_group_deleted_in_between_are_unknown(harness: Harness) -> None:
    GroupOffsets(harness).commit({("t", 0): 1})
    members = [MemberIdentity(member_id=f"m{number}") for number in range(MANY)]
    begun = Begun(harness, LeaveGroupRequest(group_id="g", members=members), 4)
    delete_groups(harness, "g")
    answer = begun.finish(LeaveGroupResponse)
    assert [one.error_code for one in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * MANY


@pytest.mark.usefixtures("short_slices")
def test_assignments_of_a_generation_that_ended_in_between_are_refused(harness: Harness) -> None:
    joined = stable(harness)
    assignments = [SyncGroupRequestAssignment(member_id=f"m{number}", assignment=b"a") for number in range(MANY)]
    begun = Begun(harness, syncing(joined, assignments=assignments), 3)
    again = join(harness, member_id=joined.member_id)
    assert (again.generation_id, sync(harness, again).assignment) == (joined.generation_id + 1, b"all")
    assert begun.finish(SyncGroupResponse).error_code == ErrorCode.ILLEGAL_GENERATION


def test_number_of_protocols_is_bounded(harness: Harness) -> None:
    for count, code in ((join_group.PROTOCOLS_MAX, NONE), (join_group.PROTOCOLS_MAX + 1, ErrorCode.INVALID_REQUEST)):
        protocols = [JoinGroupRequestProtocol(name=f"p{number}", metadata=b"") for number in range(count)]
        assert join(harness, group=f"h{count}", group_id=f"h{count}", protocols=protocols).error_code == code


# Refusals.


def test_refusal_of_a_very_long_request_is_built_on_a_thread(harness: Harness) -> None:
    names = [f"g{number}" for number in range(REQUEST_ELEMENTS_INLINE_MAX + 1)]
    harness.peer.admission = Admission(refused=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    begun = Begun(harness, DeleteGroupsRequest(groups_names=names), 2, slices=0)
    for _ in range(2):  # The first one decodes it.
        begun.steps_to_a_thread()
        (work,) = harness.broker.works
        harness.broker.works.clear()
        work.run()
        work.on_finished()
    answer = begun.finish(DeleteGroupsResponse)
    assert {one.error_code for one in answer.results} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert [one.group_id for one in answer.results] == names


def test_fetch_returns_offsets_of_topics_deleted_in_between(group: GroupOffsets) -> None:
    group.commit(at(1))
    begun = Begun(group.harness, group.fetch_request(None, FETCH), FETCH)
    delete_topic(group.harness, "t")
    assert fetched(begun.finish(OffsetFetchResponse)) == {(1, NONE)}
    assert group.fetch(version=FETCH) == {}
