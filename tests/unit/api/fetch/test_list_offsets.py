"""ListOffsets by timestamp: records are searched on a thread, and the response reflects the log after the search."""

from __future__ import annotations

import gc
import gzip
import os
import resource
from pathlib import Path

import pytest

from odradek.api.request.outcome import Encoded
from odradek.base.errors import ErrorCode
from odradek.base.limits import SEARCHED_PACKED_BYTES_MAX, UNPACKED_BYTES_MAX
from odradek.base.units import BrokerId, TimestampMs, TopicName, TopicPartition
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.lookups import Lookup
from odradek.log.log.retention import advance_start, delete_old_segments
from odradek.log.segment.search import Search
from odradek.record.builder import encode_batch, seal_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import HEADER_BYTES
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from support.controlling import Controlling
from support.in_memory import NOW_MS, US, Harness

pytestmark = pytest.mark.slow

NAME = TopicPartition(TopicName("t"), 0)
T0 = NOW_MS - 1_000
LATEST, GREATEST = -1, -3
VERSION = 7


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    make_topic(made)
    return made


def make_topic(harness: Harness) -> None:
    configs = [
        CreatableTopicConfig(name="segment.bytes", value="1048576"),
        CreatableTopicConfig(name="max.message.bytes", value="4000000"),
        CreatableTopicConfig(name="message.timestamp.after.max.ms", value="9223372036854775807"),
    ]
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=configs)
    harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)


def batch(*ats: int, codec: Codec = Codec.NONE, value: bytes = b"v") -> bytes:
    return bytes(encode_batch([(None, value, (), at) for at in ats], codec))


def produce(harness: Harness, raw: bytes, *, acks: int = 1) -> Encoded | ParkedRequest[Encoded]:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=raw)])
    return harness.send(ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic]), 9)


def produce_raw(harness: Harness, raw: bytes) -> None:
    answer = harness.decoded(harness.finished(produce(harness, raw)), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def send_request(harness: Harness, *timestamps: int) -> Encoded | ParkedRequest[Encoded]:
    parts = [
        ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=timestamp)
        for index, timestamp in enumerate(timestamps)
    ]
    topics = [ListOffsetsTopic(name="t", partitions=parts)]
    return harness.send(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), VERSION)


def parked_request(harness: Harness, timestamp: int) -> ParkedRequest[Encoded]:
    outcome = send_request(harness, timestamp)
    assert isinstance(outcome, ParkedRequest)
    return outcome


def lookups(harness: Harness) -> list[Lookup]:
    """Return the pending lookups. The disk is stalled: no sync ends."""
    return [effect for effect in harness.broker.take_effects() if isinstance(effect, Lookup)]


def run_lookups(harness: Harness) -> None:
    while found := lookups(harness):
        for lookup in found:
            harness.broker.on_event(lookup.run(), harness.now)


def result_of(harness: Harness, outcome: Encoded | ParkedRequest[Encoded]) -> tuple[int, int]:
    """Return the offset and the error."""
    part = answer_of(harness, outcome.then() if isinstance(outcome, ParkedRequest) else outcome)
    return part.offset, part.error_code


def answer_of(harness: Harness, encoded: Encoded) -> ListOffsetsPartitionResponse:
    return harness.decoded(encoded, VERSION, ListOffsetsResponse).topics[0].partitions[0]


def list_offset(harness: Harness, timestamp: int) -> tuple[int, int]:
    outcome = send_request(harness, timestamp)
    run_lookups(harness)
    if isinstance(outcome, ParkedRequest):
        assert outcome in harness.broker.purgatory.take_completed()
    return result_of(harness, outcome)


def bomb(unpacked_bytes: int) -> bytes:
    """Return one record of zeros in a small gzip batch."""
    plain = bytearray(HEADER_BYTES)
    plain += encode_batch([(None, bytes(unpacked_bytes), (), T0)])[HEADER_BYTES:]
    at = TimestampMs(T0)
    return bytes(seal_batch(plain, Codec.GZIP, count=1, base_timestamp=at, max_timestamp=at))


def test_known_offsets_need_no_lookup(harness: Harness) -> None:
    for timestamp in (LATEST, GREATEST, T0):
        assert not isinstance(send_request(harness, timestamp), ParkedRequest), "there is nothing in the log"
    produce_raw(harness, batch(T0))
    assert result_of(harness, send_request(harness, T0 + 1)) == (-1, ErrorCode.NONE)
    assert result_of(harness, send_request(harness, LATEST)) == (1, ErrorCode.NONE)
    assert lookups(harness) == []


def test_timestamp_search_runs_on_a_thread(harness: Harness) -> None:
    produce_raw(harness, batch(T0, T0 + 5))
    for timestamp, offset in ((T0, 0), (T0 + 1, 1), (GREATEST, 1)):
        parked = parked_request(harness, timestamp)
        (lookup,) = lookups(harness)
        assert harness.broker.purgatory.take_completed() == []
        harness.broker.on_event(lookup.run(), harness.now)
        assert harness.broker.purgatory.take_completed() == [parked]
        assert result_of(harness, parked) == (offset, ErrorCode.NONE)


def test_a_request_waits_for_all_of_its_partitions(harness: Harness) -> None:
    produce_raw(harness, batch(T0))
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=batch(T0, T0 + 1))])
    harness.send(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic]), 9)
    outcome = send_request(harness, T0, T0 + 1)
    assert isinstance(outcome, ParkedRequest)
    run_lookups(harness)
    assert harness.broker.purgatory.take_completed() == [outcome]
    parts = harness.decoded(outcome.then(), VERSION, ListOffsetsResponse).topics[0].partitions
    assert [(part.partition_index, part.offset) for part in parts] == [(0, 0), (1, 1)]


def test_maximum_timestamp_is_that_of_visible_records(harness: Harness) -> None:
    """The newest records are invisible while a disk is stalled, or slower than producers with acks=all."""
    produce_raw(harness, batch(T0 + 3, T0 + 7))
    for number in range(40):
        assert isinstance(produce(harness, batch(T0 + 10 + number), acks=-1), ParkedRequest)
        assert list_offset(harness, GREATEST) == (1, ErrorCode.NONE)
        assert list_offset(harness, T0 + 5) == (1, ErrorCode.NONE)
        assert list_offset(harness, T0 + 8) == (-1, ErrorCode.NONE)
    harness.restart()
    assert list_offset(harness, GREATEST) == (41, ErrorCode.NONE)


def test_maximum_timestamp_is_found_among_segments_and_index_entries(harness: Harness) -> None:
    for number in range(60):
        produce_raw(harness, batch(T0 + (number * 37) % 61, value=os.urandom(40_000)))
    log = harness.broker.partitions[NAME].log
    assert len(log.segments) > 2
    greatest = max(range(60), key=lambda number: (number * 37) % 61)
    assert list_offset(harness, GREATEST) == (greatest, ErrorCode.NONE)
    for number in range(60):
        assert isinstance(produce(harness, batch(T0 + 100 + number, value=bytes(5_000)), acks=-1), ParkedRequest)
    assert list_offset(harness, GREATEST) == (greatest, ErrorCode.NONE)


def test_equal_requests_share_one_lookup(harness: Harness) -> None:
    produce_raw(harness, batch(T0))
    both = [parked_request(harness, T0) for _ in range(2)]
    (lookup,) = lookups(harness)
    both.append(parked_request(harness, T0))
    assert len(lookup.begun) == 1
    assert lookups(harness) == []
    harness.broker.on_event(lookup.run(), harness.now)
    assert harness.broker.purgatory.take_completed() == both
    assert [result_of(harness, parked) for parked in both] == [(0, ErrorCode.NONE)] * 3


def test_request_after_a_new_record_does_not_share_an_older_lookup(harness: Harness) -> None:
    produce_raw(harness, batch(T0))
    before = parked_request(harness, GREATEST)
    (lookup,) = lookups(harness)
    produced_after = produce(harness, batch(T0 + 9))
    assert not isinstance(produced_after, ParkedRequest)
    after = parked_request(harness, GREATEST)
    harness.broker.on_event(lookup.run(), harness.now)
    assert harness.broker.purgatory.take_completed() == [before]
    run_lookups(harness)
    assert harness.broker.purgatory.take_completed() == [after]
    assert (result_of(harness, before), result_of(harness, after)) == ((0, ErrorCode.NONE), (1, ErrorCode.NONE))


def test_large_lookups_run_one_at_a_time(harness: Harness) -> None:
    large = batch(*range(T0, T0 + 4), codec=Codec.GZIP, value=os.urandom(SEARCHED_PACKED_BYTES_MAX))
    for _ in range(3):
        produce_raw(harness, large)
    parked = [parked_request(harness, T0 + number) for number in range(4)]
    for lookup in lookups(harness):
        assert not lookup.is_large
        harness.broker.on_event(lookup.run(), harness.now)
    for one in parked:
        (lookup,) = lookups(harness)
        assert (lookup.is_large, len(lookup.begun)) == (True, 1)
        assert lookups(harness) == [], "not before the one that is under way has ended"
        produce_raw(harness, batch(T0))
        assert list_offset(harness, T0 + 50) == (-1, ErrorCode.NONE), "and others need not wait for it"
        harness.broker.on_event(lookup.run(), harness.now)
        assert harness.broker.purgatory.take_completed() == [one]
    assert [result_of(harness, one)[0] for one in parked] == [0, 1, 2, 3]


def test_false_batch_timestamps_cost_one_turn_per_batch(harness: Harness) -> None:
    """Each header claims the timestamp, and no record has it: other lookups run after each batch."""
    batch = bytearray(encode_batch([(None, b"v", (), T0)]))
    far = TimestampMs(T0 + 500)
    raw = bytes(
        seal_batch(
            bytearray(HEADER_BYTES) + batch[HEADER_BYTES:],
            Codec.GZIP,
            count=1,
            base_timestamp=TimestampMs(T0),
            max_timestamp=far,
        )
    )
    for _ in range(5):
        produce_raw(harness, raw)
    parked = parked_request(harness, far)
    turns = 0
    while found := lookups(harness):
        turns += 1
        for lookup in found:
            harness.broker.on_event(lookup.run(), harness.now)
    assert turns == 5 + 1, "the last one finds that there is nothing more"
    assert harness.broker.purgatory.take_completed() == [parked]
    assert result_of(harness, parked) == (-1, ErrorCode.NONE)


def test_decompression_bomb_is_refused(harness: Harness) -> None:
    produce_raw(harness, bomb(UNPACKED_BYTES_MAX))
    assert list_offset(harness, T0) == (-1, ErrorCode.INVALID_RECORD)
    assert list_offset(harness, GREATEST) == (-1, ErrorCode.INVALID_RECORD)
    assert list_offset(harness, T0 + 1) == (-1, ErrorCode.NONE)


def test_refused_bomb_is_freed_immediately(harness: Harness) -> None:
    """It must not live until the next garbage collection, although a failure references its frames."""
    produce_raw(harness, bomb(UNPACKED_BYTES_MAX))
    pages = Path("/proc/self/statm")
    gc.collect()
    gc.disable()
    try:
        before = int(pages.read_text().split()[1])
        for _ in range(4):
            assert list_offset(harness, T0) == (-1, ErrorCode.INVALID_RECORD)
        grown_bytes = (int(pages.read_text().split()[1]) - before) * resource.getpagesize()
    finally:
        gc.enable()
    assert grown_bytes < UNPACKED_BYTES_MAX


def test_batch_of_ten_thousand_gzip_members_is_searched(harness: Harness) -> None:
    payload = encode_batch([(None, b"v", (), T0)])[HEADER_BYTES:]
    plain = bytearray(HEADER_BYTES) + payload
    at = TimestampMs(T0)
    sealed = seal_batch(plain, Codec.NONE, count=1, base_timestamp=at, max_timestamp=at, attributes=Codec.GZIP)
    packed = bytearray(HEADER_BYTES) + gzip.compress(payload) + gzip.compress(b"") * 10_000
    packed[:HEADER_BYTES] = sealed[:HEADER_BYTES]
    again = seal_batch(packed, Codec.NONE, count=1, base_timestamp=at, max_timestamp=at, attributes=Codec.GZIP)
    produce_raw(harness, bytes(again))
    assert list_offset(harness, T0) == (0, ErrorCode.NONE)


def test_lookup_of_a_closed_connection_is_dropped(harness: Harness) -> None:
    produce_raw(harness, batch(T0, codec=Codec.GZIP, value=os.urandom(2 * SEARCHED_PACKED_BYTES_MAX)))
    parked = parked_request(harness, T0)
    (lookup,) = lookups(harness)
    harness.broker.purgatory.forget(parked)
    harness.broker.on_event(lookup.run(), harness.now)
    assert lookups(harness) == []
    assert list_offset(harness, T0) == (0, ErrorCode.NONE)


def test_topic_deleted_during_the_lookup_returns_an_error(harness: Harness) -> None:
    for is_made_again, code in (
        (False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (True, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        produce_raw(harness, batch(T0))
        parked = parked_request(harness, T0)
        (lookup,) = lookups(harness)
        harness.request(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5, DeleteTopicsResponse)
        if is_made_again:
            make_topic(harness)
        harness.broker.on_event(lookup.run(), harness.now)
        assert harness.broker.purgatory.take_completed() == [parked]
        assert result_of(harness, parked) == (-1, code)
        if not is_made_again:
            make_topic(harness)


def test_lookup_is_repeated_after_retention_deleted_its_segment(harness: Harness) -> None:
    for number in range(30):
        produce_raw(harness, batch(T0 + number, value=os.urandom(100_000)))
    partition = harness.broker.partitions[NAME]
    log = partition.log
    second = log.segments[1].base_offset
    assert len(log.segments) > 2
    for is_found_before in (False, True):
        parked = parked_request(harness, T0)
        (lookup,) = lookups(harness)
        if is_found_before:
            event = lookup.run()
        advance_start(log, log.segments[1].base_offset)
        delete_old_segments(log, harness.now.wall, partition.positions.high_watermark)
        harness.broker.on_event(event if is_found_before else lookup.run(), harness.now)
        assert harness.broker.purgatory.take_completed() == []
        run_lookups(harness)
        assert harness.broker.purgatory.take_completed() == [parked]
        assert result_of(harness, parked) == (log.start_offset, ErrorCode.NONE)
    assert log.start_offset > second


def test_disk_failure_during_the_lookup_takes_the_partition_offline(harness: Harness) -> None:
    produce_raw(harness, batch(T0))
    partition = harness.broker.partitions[NAME]
    os.truncate(partition.log.segments[0].path, 30)
    assert list_offset(harness, T0) == (-1, ErrorCode.KAFKA_STORAGE_ERROR)
    assert not partition.is_online
    assert result_of(harness, send_request(harness, T0)) == (-1, ErrorCode.KAFKA_STORAGE_ERROR)


def test_disk_failure_while_indexes_are_rebuilt_answers_all_questions(harness: Harness) -> None:
    """A lookup that has found a wrong index rebuilds it on the loop."""
    produce_raw(harness, batch(T0, T0 + 1))
    first, second = parked_request(harness, T0), parked_request(harness, T0 + 1)
    (lookup,) = lookups(harness)
    result = lookup.run()
    search = lookup.begun[0].search
    assert isinstance(search, Search)
    search.segments[0].disagreement = "the index is of another segment"
    index = Path(harness.broker.partitions[NAME].log.segments[0].offsets.path)
    index.unlink(missing_ok=True)
    index.mkdir()
    harness.broker.on_event(result, harness.now)
    assert not harness.broker.partitions[NAME].is_online
    assert result_of(harness, first) == result_of(harness, second) == (-1, ErrorCode.KAFKA_STORAGE_ERROR)


def test_partition_offline_during_the_lookup_returns_a_storage_error(harness: Harness) -> None:
    produce_raw(harness, batch(T0))
    parked = parked_request(harness, T0)
    (lookup,) = lookups(harness)
    harness.broker.partitions[NAME].take_offline()
    harness.broker.on_event(lookup.run(), harness.now)
    assert result_of(harness, parked) == (-1, ErrorCode.KAFKA_STORAGE_ERROR)


def test_stop_during_the_lookup_returns_a_timeout(harness: Harness) -> None:
    produce_raw(harness, batch(T0))
    parked = parked_request(harness, T0)
    harness.broker.purgatory.complete_all()
    assert result_of(harness, parked) == (-1, ErrorCode.REQUEST_TIMED_OUT)


def test_a_damaged_index_is_read_around(harness: Harness) -> None:
    for number in range(40):
        produce_raw(harness, batch(T0 + number, value=bytes(5_000)))
    harness.restart()
    log = harness.broker.partitions[NAME].log
    path = Path(log.segments[0].offsets.path)
    path.write_bytes(b"\x7f" * path.stat().st_size)
    assert list_offset(harness, T0 + 20) == (20, ErrorCode.NONE)
    assert path.read_bytes().strip(b"\x7f") == b"", "a reader mends nothing"


def test_any_replica_returns_its_log_end_to_debugging_clients(harness: Harness) -> None:
    """With replica id -2 any replica responds; a consumer is sent to the leader."""
    produce_raw(harness, batch(T0, T0))
    partition = harness.broker.partitions[NAME]
    epoch, topic_id = partition.info.leader_epoch + 1, partition.log.topic_id
    other = BrokerId(US + 1)
    assert (
        Controlling(harness).send_leader_and_isr("t", leader=other, epoch=epoch, replicas=(US, other), of=topic_id)
        == {}
    )
    for replica, expected in ((-1, (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)), (-2, (2, ErrorCode.NONE))):
        parts = [ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST)]
        topics = [ListOffsetsTopic(name="t", partitions=parts)]
        outcome = harness.send(ListOffsetsRequest(replica_id=replica, isolation_level=0, topics=topics), VERSION)
        assert result_of(harness, outcome) == expected
