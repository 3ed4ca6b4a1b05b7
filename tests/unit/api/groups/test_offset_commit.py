"""OffsetCommit and TxnOffsetCommit without a socket, in every version: stored offsets and refusals."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import ProducerEpoch, ProducerId
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek.wire.messages.offset_fetch import OffsetFetchResponse
from odradek.wire.schema.api_keys import ApiKey
from support.group_offsets import GroupOffsets, Kept, Member, add_to_transaction, groups
from support.in_memory import Harness
from support.transactional import Transactional, make_topic

pytestmark = pytest.mark.slow

VERSIONS = pytest.mark.parametrize("version", range(2, 11))
TXN_VERSIONS = pytest.mark.parametrize("version", range(6))
NONE = ErrorCode.NONE
A, B, C = ("t", 0), ("t", 1), ("u", 0)


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path, offset_metadata_max_bytes="10")
    make_topic(harness, "t", 2)
    make_topic(harness, "u")
    return harness


@pytest.fixture
def group(harness: Harness) -> GroupOffsets:
    return GroupOffsets(harness)


def producer_of(harness: Harness, name: str = "p") -> Transactional:
    producer = Transactional(harness, name)
    assert producer.begin().error_code == NONE
    return producer


@VERSIONS
def test_committed_offsets_are_stored_unchanged(group: GroupOffsets, version: int) -> None:
    kept = {A: Kept(5, "m", 3), B: Kept(1 << 62, None, -1), C: Kept(-5, "é" * 10, 0)}
    assert group.commit(kept, version) == dict.fromkeys(kept, NONE)
    epochs = version >= 6
    expected = {
        A: Kept(5, "m", 3 if epochs else -1),
        B: Kept(1 << 62, "", -1),
        C: Kept(-5, "é" * 10, 0 if epochs else -1),
    }
    assert group.fetch() == expected
    group.harness.restart()
    assert group.fetch() == expected


@VERSIONS
def test_partitions_are_refused_individually(group: GroupOffsets, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    kept = {A: 1, ("t", 2): 1, ("t", -1): 1, B: Kept(1, "x" * 11), ("nowhere", 0): 1, C: 2}
    expected = {
        ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        A: NONE,
        B: ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ("nowhere", 0): unknown,
        C: NONE,
    }
    codes = group.commit(kept, version)
    assert list(codes.items()) == list(expected.items()), "those that there are not come first in their topic"
    assert group.fetch() == {A: Kept(1), C: Kept(2)}


@VERSIONS
def test_commit_with_a_generation_of_an_unknown_group_is_refused(group: GroupOffsets, version: int) -> None:
    late = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert group.commit({A: 1}, version, Member("m", 0)) == {A: late}
    assert groups(group.harness) == set()
    assert group.commit({A: 1}, version, Member("m", -2)) == {A: NONE}, "that is no generation"
    assert group.commit({A: 2}, version, Member("m", 0)) == {A: ErrorCode.UNKNOWN_MEMBER_ID}
    assert group.fetch() == {A: Kept(1)}


@VERSIONS
def test_empty_commit_is_not_checked(group: GroupOffsets, version: int) -> None:
    assert group.commit({}, version, Member("m", 3)) == {}
    assert group.commit({("nowhere", 0): 1}, version, Member("m", 3)).popitem()[1] != ErrorCode.ILLEGAL_GENERATION
    assert groups(group.harness) == set()


def test_metadata_length_is_counted_as_in_java(group: GroupOffsets) -> None:
    texts = {"é" * 10: NONE, "é" * 11: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    texts |= {"😀" * 5: NONE, "😀" * 6: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert {text: group.commit({A: Kept(1, text)})[A] for text in texts} == texts


def test_commit_of_only_refused_partitions_creates_no_group(group: GroupOffsets) -> None:
    assert group.commit({A: Kept(1, "x" * 11)}) == {A: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert groups(group.harness) == set()


def test_a_group_may_have_no_name(harness: Harness) -> None:
    nameless = GroupOffsets(harness, "")
    assert nameless.commit({A: 1}) == {A: NONE}
    assert nameless.fetch() == {A: Kept(1)}


def test_repeated_partition_gets_its_last_offset(group: GroupOffsets) -> None:
    request = group.request({A: 1, B: 2}, 9)
    request.topics += group.request({B: 3, A: 4}, 9).topics
    (topic,) = group.harness.request(request, 9, OffsetCommitResponse).topics
    assert [(part.partition_index, part.error_code) for part in topic.partitions] == [(0, 0), (1, 0), (1, 0), (0, 0)]
    assert group.fetch() == {A: Kept(4), B: Kept(3)}


def test_metadata_that_grows_in_decoding_is_refused(tmp_path: Path) -> None:
    harness = Harness(tmp_path, offset_metadata_max_bytes="100000")
    make_topic(harness, "t")
    group = GroupOffsets(harness)
    broken = b"\xff" * 30_000  # Each byte is decoded as a character of three bytes.
    body = struct.pack(">h1sih", 1, b"g", -1, 0) + struct.pack(">hih1si", -1, 1, 1, b"t", 1)
    body += struct.pack(">iqih", 0, 1, -1, len(broken)) + broken
    answer = harness.decoded(harness.send_raw(ApiKey.OFFSET_COMMIT, 7, body), 7, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert group.fetch() == {}


def test_response_waits_until_the_commit_is_durable(group: GroupOffsets) -> None:
    waiting = group.harness.send(group.request({A: 1}), 10)
    assert isinstance(waiting, ParkedRequest)
    reader = group.harness.send(group.fetch_request(None, 10), 10)
    assert isinstance(reader, ParkedRequest), "nobody may see yet what a crash may take back"
    group.harness.settle()
    assert group.harness.broker.purgatory.take_completed() == [waiting, reader]
    answer = group.harness.decoded(reader.then(), 10, OffsetFetchResponse)
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 1


def test_commit_times_out_on_a_slow_disk(tmp_path: Path) -> None:
    harness = Harness(tmp_path, offsets_commit_timeout_ms="300")
    make_topic(harness, "t")
    waiting = harness.send(GroupOffsets(harness).request({A: 1}), 10)
    assert isinstance(waiting, ParkedRequest)
    harness.pass_time(299)
    assert harness.broker.purgatory.take_completed() == []
    harness.pass_time(1)
    assert harness.broker.purgatory.take_completed() == [waiting]
    answer = harness.decoded(waiting.then(), 10, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_commit_without_the_state_topic_returns_not_coordinator(harness: Harness) -> None:
    request = OffsetCommitRequest(group_id="g", topics=GroupOffsets.request(_unfound(harness), {A: 1}, 9).topics)
    answer = harness.request(request, 9, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


def _unfound(harness: Harness) -> GroupOffsets:
    group = GroupOffsets.__new__(GroupOffsets)
    group.harness, group.id = harness, "g"
    return group


# In transactions.


@TXN_VERSIONS
def test_pending_offsets_are_effective_after_the_commit(group: GroupOffsets, version: int) -> None:
    producer = producer_of(group.harness)
    kept = {A: Kept(5, "m", 3), B: Kept(6, None, -1)}
    if version < 5:
        assert add_to_transaction(producer, group.id) == NONE
    assert group.commit_in(producer, kept, version) == dict.fromkeys(kept, NONE)
    assert group.fetch() == {}
    assert group.fetch([A], is_stable=True) == {A: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert groups(group.harness) == {"g"}
    assert producer.end(commit=True) == NONE
    assert group.fetch(is_stable=True) == {A: Kept(5, "m", 3 if version >= 2 else -1), B: Kept(6)}


@TXN_VERSIONS
def test_pending_offsets_are_dropped_after_an_abort(group: GroupOffsets, version: int) -> None:
    group.commit({A: 1})
    producer = producer_of(group.harness)
    if version < 5:
        assert add_to_transaction(producer, group.id) == NONE
    group.commit_in(producer, {A: 2, B: 2}, version)
    assert group.fetch() == {A: Kept(1)}
    assert producer.end(commit=False) == NONE
    assert group.fetch(is_stable=True) == {A: Kept(1)}


@pytest.mark.parametrize("version", range(5))
def test_group_must_be_added_to_the_transaction_before_v5(group: GroupOffsets, version: int) -> None:
    code = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    assert group.commit_in(producer_of(group.harness), {A: 1}, version) == {A: code}


@TXN_VERSIONS
def test_invalid_partitions_are_refused_in_a_transaction(group: GroupOffsets, version: int) -> None:
    producer = producer_of(group.harness)
    assert add_to_transaction(producer, group.id) == NONE
    kept = {A: 1, ("t", 9): 1, B: Kept(1, "x" * 11), ("nowhere", 0): 1}
    unknown = dict.fromkeys([("t", 9), ("nowhere", 0)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert group.commit_in(producer, kept, version) == {**unknown, A: NONE, B: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    nameless = GroupOffsets(group.harness, "")
    assert nameless.commit_in(producer, {A: 1}, version) == {A: ErrorCode.INVALID_GROUP_ID}
    known, producer.producer = producer.producer, ProducerIdAndEpoch(ProducerId(-1), ProducerEpoch(0))
    assert group.commit_in(producer, {A: 1}, version) == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    producer.producer = ProducerIdAndEpoch(ProducerId(known.id + 1000), known.epoch)
    assert group.commit_in(producer, {A: 1}, version) == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    for epoch in (known.epoch + 1, known.epoch - 1):
        producer.producer = ProducerIdAndEpoch(known.id, ProducerEpoch(epoch))
        assert group.commit_in(producer, {A: 1}, version) == {A: ErrorCode.INVALID_PRODUCER_EPOCH}
    producer.producer, producer.id = known, ""
    assert group.commit_in(producer, {A: 1}, version) == {A: NONE}, "what is open is not looked at again"
    assert GroupOffsets(group.harness, "other").commit_in(producer, {A: 1}, version) != {A: NONE}


@pytest.mark.parametrize("version", range(3, 6))
def test_transactional_commit_of_a_non_member_is_fenced(group: GroupOffsets, version: int) -> None:
    producer = producer_of(group.harness)
    assert add_to_transaction(producer, group.id) == NONE
    assert group.commit_in(producer, {A: 1}, version, Member("m", 0)) == {A: ErrorCode.ILLEGAL_GENERATION}
    assert group.commit_in(producer, {A: 1}, version, Member("m", -1)) == {A: NONE}
    assert group.commit_in(producer, {A: 2}, version, Member("m", 0)) == {A: ErrorCode.UNKNOWN_MEMBER_ID}
    assert producer.end(commit=True) == NONE
    assert group.fetch() == {A: Kept(1)}


def test_order_of_commits_decides_not_that_of_transaction_ends(group: GroupOffsets) -> None:
    first, second = producer_of(group.harness, "first"), producer_of(group.harness, "second")
    group.commit_in(first, {A: 1, B: 1})
    group.commit_in(second, {A: 2, B: 2})
    group.commit({B: 3})
    assert second.end(commit=True) == NONE
    assert group.fetch() == {A: Kept(2), B: Kept(3)}
    assert group.fetch(is_stable=True) == dict.fromkeys([A, B], ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert first.end(commit=True) == NONE
    assert group.fetch(is_stable=True) == {A: Kept(2), B: Kept(3)}


def test_open_transaction_survives_a_crash(group: GroupOffsets) -> None:
    producer = producer_of(group.harness)
    group.commit({B: 1})
    group.commit_in(producer, {A: 1, B: 2})
    group.harness.kill()
    group.harness.settle()
    assert group.fetch([A, B], is_stable=True) == dict.fromkeys([A, B], ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert groups(group.harness) == {"g"}
    assert producer.end(commit=True) == NONE
    assert group.fetch([A, B], is_stable=True) == {A: Kept(1), B: Kept(2)}
