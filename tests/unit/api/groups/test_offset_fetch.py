"""OffsetFetch without a socket, in every version: some, all and many groups, waits and unstable offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.request.repeated_names import REPEATS_MAX
from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from support.group_offsets import GroupOffsets, Kept, delete_topic, topic_id
from support.in_memory import Harness
from support.transactional import Transactional, make_topic

pytestmark = pytest.mark.slow

TIMES_MAX = REPEATS_MAX + 1

VERSIONS = pytest.mark.parametrize("version", range(1, 11))
ALL_VERSIONS = pytest.mark.parametrize("version", range(2, 11))  # Versions that can request all partitions.
STABLE_VERSIONS = pytest.mark.parametrize("version", range(7, 11))
NONE = ErrorCode.NONE
NOTHING = Kept(-1)
A, B, C = ("t", 0), ("t", 1), ("u", 0)


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path)
    make_topic(harness, "t", 2)
    make_topic(harness, "u")
    return harness


@pytest.fixture
def group(harness: Harness) -> GroupOffsets:
    group = GroupOffsets(harness)
    group.commit({A: Kept(5, "m", 3), C: 7})
    return group


def as_in_version(kept: Kept, version: int) -> Kept:
    """Return the offset as in this version."""
    return kept if version >= 5 else kept._replace(leader_epoch=-1)


@VERSIONS
def test_each_requested_partition_is_answered(group: GroupOffsets, version: int) -> None:
    names = [A, B, ("t", 9), ("t", -1), C]
    expected = dict.fromkeys(names, NOTHING) | {A: as_in_version(Kept(5, "m", 3), version), C: Kept(7)}
    assert group.fetch(names, version) == expected


@VERSIONS
def test_unknown_topic_or_group_has_no_offsets(group: GroupOffsets, version: int) -> None:
    nowhere = ("nowhere", 0)
    assert group.fetch([nowhere], version) == {nowhere: ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else NOTHING}
    other = GroupOffsets(group.harness, "other")
    assert other.fetch([A], version) == {A: NOTHING}
    assert group.fetch([], version) == {}


@ALL_VERSIONS
def test_all_offsets_of_a_group_are_returned(group: GroupOffsets, version: int) -> None:
    assert group.fetch(None, version) == {A: as_in_version(Kept(5, "m", 3), version), C: Kept(7)}
    assert GroupOffsets(group.harness, "other").fetch(None, version) == {}


@VERSIONS
def test_fetch_without_the_state_topic_returns_not_coordinator(harness: Harness, version: int) -> None:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(group_id="g", topics=topics)
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    answer = harness.request(request, version, OffsetFetchResponse)
    code = ErrorCode.NOT_COORDINATOR
    if version >= 8:
        assert [(one.group_id, one.error_code, one.topics) for one in answer.groups] == [("g", code, [])]
    elif version >= 2:
        assert (answer.error_code, answer.topics) == (code, [])
    else:
        (part,) = answer.topics[0].partitions
        assert (part.error_code, part.committed_offset, part.metadata) == (code, -1, "")


@pytest.mark.parametrize("version", range(8, 11))
def test_many_groups_are_fetched_in_one_request(group: GroupOffsets, version: int) -> None:
    other = GroupOffsets(group.harness, "other")
    other.commit({B: 8})
    requests = [
        one.fetch_request(names, version).groups[0]
        for one, names in ((group, None), (other, [A, B]), (GroupOffsets(group.harness, "nobody"), None), (group, [C]))
    ]
    answer = group.harness.request(OffsetFetchRequest(groups=requests), version, OffsetFetchResponse)
    offsets = [
        (one.group_id, [part.committed_offset for topic in one.topics for part in topic.partitions])
        for one in answer.groups
    ]
    assert offsets == [("g", [5, 7]), ("other", [-1, 8]), ("nobody", []), ("g", [7])]
    assert group.harness.request(OffsetFetchRequest(), version, OffsetFetchResponse).groups == []


@pytest.mark.parametrize("version", range(8, 11))
def test_fetch_limits_repetitions_of_a_whole_group(group: GroupOffsets, version: int) -> None:
    everything, one_place = (group.fetch_request(names, version).groups[0] for names in (None, [C]))
    for count, code in ((TIMES_MAX, ErrorCode.NONE), (TIMES_MAX + 1, ErrorCode.INVALID_REQUEST)):
        request = OffsetFetchRequest(groups=[everything] * count + [one_place] * 1000)
        answer = group.harness.request(request, version, OffsetFetchResponse)
        assert [one.error_code for one in answer.groups] == [code] * (count + 1000)


@STABLE_VERSIONS
def test_pending_offsets_are_unstable(group: GroupOffsets, version: int) -> None:
    producer = Transactional(group.harness, "p")
    producer.begin()
    group.commit_in(producer, {A: 6, B: 6})
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert group.fetch([A, B, C], version) == {A: Kept(5, "m", 3), B: NOTHING, C: Kept(7)}
    assert group.fetch([A, B, C], version, is_stable=True) == {A: unstable, B: unstable, C: Kept(7)}
    assert group.fetch(None, version, is_stable=True) == {A: unstable, C: Kept(7)}
    assert producer.end(commit=True) == NONE
    assert group.fetch([A, B], version, is_stable=True) == {A: Kept(6), B: Kept(6)}


@VERSIONS
def test_recreated_topic_has_no_offsets_of_the_old_one(group: GroupOffsets, version: int) -> None:
    delete_topic(group.harness, "t")
    assert group.fetch(None, max(version, 2)) == {C: Kept(7)}
    make_topic(group.harness, "t")
    assert group.fetch([A], version) == {A: NOTHING}
    group.harness.restart()
    assert group.fetch([A, C], version) == {A: NOTHING, C: Kept(7)}


@VERSIONS
def test_recreated_topic_has_no_offsets_after_a_missed_deletion(group: GroupOffsets, version: int) -> None:
    """For a coordinator that was down during the deletion: the record has the id of its topic."""
    view = group.harness.broker.view
    topic = view.topics[TopicPartition(*A).topic]  # type: ignore[arg-type]
    recreated = topic._replace(id=group.harness.broker.entropy.new_uuid())
    view.put(recreated)
    assert topic_id(group.harness, "t") == recreated.id
    assert group.fetch([A, C], version) == {A: NOTHING, C: Kept(7)}
    assert group.fetch(None, max(version, 2)) == {C: Kept(7)}


def test_parked_fetch_is_refused_after_a_disk_failure(group: GroupOffsets) -> None:
    group.harness.send(group.request({A: 9}), 10)
    waiting = group.harness.send(group.fetch_request([A], 10), 10)
    assert isinstance(waiting, ParkedRequest)
    name = TopicPartition(CONSUMER_OFFSETS, group.harness.broker.groups.shards.partition_of("g"))
    group.harness.broker.partitions[name].take_offline()
    group.harness.broker.purgatory.happened(name)
    assert waiting in group.harness.broker.purgatory.take_completed()
    answer = group.harness.decoded(waiting.then(), 10, OffsetFetchResponse)
    assert (answer.groups[0].error_code, answer.groups[0].topics) == (ErrorCode.NOT_COORDINATOR, [])


def test_parked_fetch_times_out_without_a_sync(group: GroupOffsets) -> None:
    group.harness.send(group.request({A: 9}), 10)
    waiting = group.harness.send(group.fetch_request([A], 10), 10)
    assert isinstance(waiting, ParkedRequest)
    group.harness.pass_time(waiting.deadline - group.harness.now.steady)
    assert waiting in group.harness.broker.purgatory.take_completed()
    answer = group.harness.decoded(waiting.then(), 10, OffsetFetchResponse)
    assert answer.groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
