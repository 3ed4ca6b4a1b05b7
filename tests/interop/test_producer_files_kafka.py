"""Producer state in Apache Kafka's files and ours: each side reads the directory of the other.

The Java client writes, so that transactions bump the epoch (KIP-890) and batches are a real client's.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_peer import REAL_KAFKA, KafkaBroker, client_jars, dump_log

from odradek.base.units import BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicName
from odradek.base.units import TopicPartition as Name
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import RealDisk
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import Batch
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.raw_client import RawClient

pytestmark = [*REAL_KAFKA, pytest.mark.own_peer("exchanges directories with a running Apache Kafka")]

PROGRAM = Path(__file__).parent / "java" / "Writers.java"
NAME = Name(TopicName("written"), 0)
NOW = TimestampMs(time.time_ns() // 1_000_000)  # Kafka forgets producers whose records are a day old.
CONFIG = LogConfig(segment_bytes=600)
SECONDS_MAX = 300
OURS, OTHER, OPEN = ProducerId(5_000_000), ProducerId(5_000_001), ProducerId(5_000_002)

STABLE = Offset(37)  # 9 numbered records, and 4 times 5 of two transactions and their markers.

States = list[tuple[int, int, int, int, int, int]]
AbortedTransactions = set[tuple[int, int]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, States, AbortedTransactions]]:
    """Return a stopped Kafka with its producer state."""
    kafka = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    with kafka:
        with RawClient(kafka.port) as client:
            segments = CreatableTopicConfig(name="segment.bytes", value=str(1 << 20))
            topic = CreatableTopic(
                name=NAME.topic, num_partitions=1, replication_factor=1, assignments=[], configs=[segments]
            )
            client.request(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5, CreateTopicsResponse)
        command = ["java", "-cp", f"{client_jars('4.4.0')}/*", str(PROGRAM), kafka.address, NAME.topic]
        subprocess.run(command, check=True, timeout=SECONDS_MAX)
        states, aborted = describe_producers(kafka)
    yield kafka, states, aborted


def describe_producers(kafka: KafkaBroker) -> tuple[States, AbortedTransactions]:
    with RawClient(kafka.port) as client:
        request = DescribeProducersRequest(topics=[TopicRequest(name=NAME.topic, partition_indexes=[0])])
        (part,) = client.request(request, 0, DescribeProducersResponse).topics[0].partitions
        assert part.error_code == 0
        states = sorted(
            (
                one.producer_id,
                one.producer_epoch,
                one.last_sequence,
                one.last_timestamp,
                one.coordinator_epoch,
                one.current_txn_start_offset,
            )
            for one in part.active_producers
        )
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic=NAME.topic, partitions=[partition])
        fetch = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=1, session_epoch=-1, topics=[topic])
        found = client.request(fetch, 11, FetchResponse).responses[0].partitions[0]
        aborted_found = {(one.producer_id, one.first_offset) for one in found.aborted_transactions or []}
        return states, {one for one in aborted_found if one[1] < STABLE}


def opened(data: Path, cluster_id: str) -> LogDirectory:
    directory = open_log_directory(
        RealDisk(), str(data), NOW, broker_id=BrokerId(1), cluster_id=cluster_id, config_of=lambda _: CONFIG
    )
    assert not directory.offline
    return directory


def known(log: Log) -> States:
    return sorted(
        (one.id, one.epoch, one.last_sequence, one.last_timestamp, one.coordinator_epoch, one.first_offset)
        for one in log.producers
    )


def aborted(log: Log) -> AbortedTransactions:
    """Return the aborted transactions below the last stable offset: one of the Java client stays open."""
    records = log.read(Offset(0), 1 << 30, log.end_offset)
    found = log.aborted(Offset(0), records, log.end_offset)
    log.producers.high_watermark_advanced(log.end_offset)
    assert log.producers.first_unstable == STABLE
    return {(one.producer_id, one.first_offset) for one in found if one.first_offset < STABLE}


@pytest.mark.parametrize("state", ["stopped", "killed", "killed, without snapshots", "without a checkpoint"])
def test_odradek_loads_kafkas_producer_state(
    written: tuple[KafkaBroker, States, AbortedTransactions], tmp_path: Path, state: str
) -> None:
    kafka, states, expected_aborted = written
    assert len(states) == 4
    assert [one[5] >= 0 for one in states].count(True) == 1, "one transaction is open"
    assert len(expected_aborted) == 4
    data = shutil.copytree(kafka.data, tmp_path / "data")
    if state != "stopped":
        (data / ".kafka_cleanshutdown").unlink()
    if state == "killed, without snapshots":
        for path in (data / str(NAME)).glob("*.snapshot"):
            path.unlink()
    if state == "without a checkpoint":
        (data / "recovery-point-offset-checkpoint").unlink()
    directory = opened(data, kafka.cluster_id)
    log = directory.logs[NAME]
    assert known(log) == states
    assert aborted(log) == expected_aborted
    directory.close(NOW)


def batch(producer: ProducerId, sequence: int, *, epoch: int = 0, transactional: bool = False) -> bytes:
    return bytes(
        encode_batch(
            [(None, b"v" * 100, (), NOW + sequence)],
            producer_id=producer,
            producer_epoch=ProducerEpoch(epoch),
            base_sequence=sequence,
            is_transactional=transactional,
        )
    )


def append(log: Log, one: Batch) -> None:
    log.append(one, LeaderEpoch(log.epochs.latest), NOW)


def fill(log: Log) -> None:
    """Write several segments; every third transaction is aborted, and one is left open."""
    for number in range(12):
        append(log, Batch.checked(memoryview(bytearray(batch(OURS, number)))))
        append(log, Batch.checked(memoryview(bytearray(batch(OTHER, 0, epoch=number, transactional=True)))))
        marker = EndMarker(bool(number % 3), 0)
        append(log, end_marker_batch(marker, OTHER, ProducerEpoch(number + 1), NOW))
    append(log, Batch.checked(memoryview(bytearray(batch(OPEN, 0, transactional=True)))))


@pytest.mark.parametrize("is_killed", [False, True])
def test_kafka_loads_our_producer_state(
    written: tuple[KafkaBroker, States, AbortedTransactions], tmp_path: Path, is_killed: bool
) -> None:
    before, states, expected_aborted = written
    kafka = KafkaBroker(tmp_path)
    shutil.copytree(before.data, kafka.data)
    directory = opened(kafka.data, before.cluster_id)
    log = directory.logs[NAME]
    fill(log)
    ours = known(log)
    assert len(ours) == len(states) + 3
    assert aborted(log) == expected_aborted
    if is_killed:
        flush_now(log)
        directory.abandon()
    else:
        assert directory.close(NOW) == []
        check_dumps(tmp_path, kafka.data / str(NAME), log, ours)
    with kafka:
        theirs, theirs_aborted = describe_producers(kafka)
        # Its coordinator has aborted open transactions by then, or will.
        assert [one for one in theirs if one[5] < 0 or one[0] == OPEN] == [
            one for one in ours if one[5] < 0 or one[0] == OPEN
        ]
        assert theirs_aborted == expected_aborted
        with RawClient(kafka.port) as client:
            again, following, gap = (produced(client, batch(OURS, sequence)) for sequence in (11, 12, 14))
        assert again == (0, log.end_offset - 4)
        assert following[0] == 0 and following[1] >= log.end_offset
        assert gap[0] == 45


def produced(client: RawClient, records: bytes) -> tuple[int, int]:
    data = TopicProduceData(name=NAME.topic, partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
    part = client.request(request, 9, ProduceResponse).responses[0].partition_responses[0]
    return part.error_code, part.base_offset


def check_dumps(folder: Path, partition: Path, log: Log, states: States) -> None:
    """Check that Kafka's tool reads our files."""
    newest = partition / f"{log.end_offset:020d}.snapshot"
    text = dump_log(folder, newest, options=())
    found = re.findall(
        r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) currentTxnFirstOffset: (\S+) "
        r"lastTimestamp: (\d+)(?: firstSequence: \d+ lastSequence: (\d+))?",
        text,
    )
    dumped = [
        (int(key), int(epoch), int(last or -1), int(at), int(coordinator), int(re.sub(r"\D", "", first) or -1))
        for key, epoch, coordinator, first, at, last in found
    ]
    assert sorted({one[0]: one for one in dumped}.values()) == states, text  # The last of each producer counts.
    assert [one[2] for one in dumped if one[0] == OURS] == [7, 8, 9, 10, 11], "its last five batches"
    indexes = [path for path in sorted(partition.glob("*.txnindex")) if path.stat().st_size]
    assert len(indexes) > 2
    text = dump_log(folder, *indexes, options=())
    entries = [one.transactions for one in log.segments if not one.transactions.is_empty]
    expected = [each for index in entries for each in index.overlapping(Offset(0), Offset(1 << 60))[0]]
    pattern = r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
    assert [tuple(map(int, each)) for each in re.findall(pattern, text)] == [tuple(each) for each in expected], text
