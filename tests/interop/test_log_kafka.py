"""Log files shared with Apache Kafka: dump-log reads ours, and both append to one data directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka_peer import REAL_KAFKA, KafkaBroker, dump_log

from odradek.app.main import main
from odradek.base.units import MIB, BrokerId, LeaderEpoch, TimestampMs, TopicName, TopicPartition
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import DirectoryInUse, RealDisk
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import decode

SECONDS_MAX = 150

pytestmark = REAL_KAFKA

NOW = TimestampMs(1_700_000_000_000)
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=200)
SHARED = TopicPartition(TopicName("shared"), 0)
COMPLAINTS = re.compile(r"isvalid: false|mismatch|corrupt|out of order|Found|not found|error|exception", re.IGNORECASE)


def open_directory(data: Path, cluster_id: str) -> LogDirectory:
    return open_log_directory(
        RealDisk(), str(data), NOW, broker_id=BrokerId(1), cluster_id=cluster_id, config_of=lambda _: CONFIG
    )


def fill(log: Log, count: int, epoch: LeaderEpoch) -> list[bytes]:
    """Append batches of every codec and size; return their values in order."""
    values: list[bytes] = []
    for number in range(count):
        records = [
            (
                b"k%d" % number,
                b"%d.%d " % (number, i) * (number * 7 % 23 + 1),
                (("h", b"x"), ("n", None)),
                NOW + number * 10 - i,
            )
            for i in range(number % 4 + 1)
        ]
        values += [value for _, value, _, _ in records]
        log.append(Batch.checked(memoryview(encode_batch(records, Codec(number % 5)))), epoch, NOW)
    return values


def values_of(log: Log) -> Iterator[bytes | None]:
    offset = log.start_offset
    while offset < log.end_offset:
        for batch in iter_batches(log.read(offset, 10_000, log.end_offset).read()):
            offset = batch.next_offset
            if not batch.is_control:
                yield from (record.value for record in decode(batch))


def test_dump_log_has_no_complaints(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "data", "a-cluster")
    log = directory.create(SHARED, None, CONFIG, NOW)
    count = len(fill(log, 90, LeaderEpoch(3)))
    assert len(log.segments) > 3
    directory.close(NOW)
    partition = tmp_path / "data" / str(SHARED)
    logs = sorted(partition.glob("*.log"))
    indexes = sorted([*partition.glob("*.index"), *partition.glob("*.timeindex")])
    assert sum(path.stat().st_size > 0 for path in indexes) > 6
    text = dump_log(tmp_path, *logs)
    assert not COMPLAINTS.search(text), text
    assert re.findall(r"\| offset: (\d+)", text) == [str(offset) for offset in range(count)]
    for option in ("--index-sanity-check", "--verify-index-only"):
        text = dump_log(tmp_path, *indexes, options=(option,))
        assert not COMPLAINTS.search(text.replace("passed sanity check", "")), text
    text = dump_log(tmp_path, *indexes, options=())
    assert not COMPLAINTS.search(text), text


@pytest.mark.nightly
def test_kafka_and_odradek_append_to_one_directory(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path) as kafka:
        create_topic(kafka)
        values = produce(kafka, "first")
        assert main(["log", "verify", str(kafka.data)]) == 0
        with pytest.raises(DirectoryInUse, match="in use"):
            open_directory(kafka.data, kafka.cluster_id)
    values += append_here(kafka, cleanly=True)
    kafka.start()
    assert consume(kafka, len(values)) == values
    values += produce(kafka, "second")
    kafka.kill()
    assert main(["log", "verify", str(kafka.data)]) == 0
    values += append_here(kafka, cleanly=False)
    assert main(["log", "verify", str(kafka.data)]) == 0
    kafka.start()
    assert consume(kafka, len(values)) == values
    values += produce(kafka, "third")
    kafka.stop()
    directory = open_directory(kafka.data, kafka.cluster_id)
    assert directory.clean_shutdown
    assert list(values_of(directory.logs[SHARED])) == values
    directory.close(NOW)


@pytest.mark.nightly
def test_kafka_does_not_start_on_a_directory_we_hold(tmp_path: Path) -> None:
    kafka = KafkaBroker(tmp_path)
    with kafka:
        create_topic(kafka)
    directory = open_directory(kafka.data, kafka.cluster_id)
    with pytest.raises(pytest.fail.Exception, match="lock"):
        kafka.start()
    directory.close(NOW)


@pytest.mark.nightly
def test_kafka_ignores_our_files_set_aside(tmp_path: Path) -> None:
    """It also ignores our notes on segments of a clean stop."""
    with KafkaBroker(tmp_path) as kafka:
        create_topic(kafka)
        values = produce(kafka, "first")
    directory = open_directory(kafka.data, kafka.cluster_id)
    log = directory.logs[SHARED]
    fill(log, 60, LeaderEpoch(log.epochs.latest + 1))
    damaged = list(log.segments[1].places(0))[1]
    values = list(values_of(log))[: damaged.base_offset]
    directory.abandon()
    with Path(log.segments[1].path).open("r+b") as file:
        file.seek(damaged.position + 70)
        file.write(b"\xff\xff")
    directory = open_directory(kafka.data, kafka.cluster_id)
    assert len(directory.problems) == 1
    assert not directory.close(NOW)
    partition = kafka.data / str(SHARED)
    aside = {path: path.read_bytes() for path in partition.glob("*.aside")}
    assert len(aside) == len(log.segments) - 1
    with kafka:
        assert consume(kafka, len(values)) == values
        values += produce(kafka, "second")
    assert {path: path.read_bytes() for path in partition.glob("*.aside")} == aside
    directory = open_directory(kafka.data, kafka.cluster_id)
    assert (directory.problems, directory.offline) == ([], {})
    assert list(values_of(directory.logs[SHARED])) == values
    assert not directory.close(NOW)


@pytest.mark.nightly
def test_a_missing_kafka_segment_is_noticed(tmp_path: Path) -> None:
    """Indexes show it at once; after our clean stop, even without them. In a complete log none is missing."""
    with KafkaBroker(tmp_path, settings={"log.segment.bytes": str(MIB)}) as kafka:
        create_topic(kafka)
        producer = Producer({"bootstrap.servers": kafka.address, "log_level": 0, "batch.size": 10_000})
        for _ in range(4000):
            producer.produce(str(SHARED.topic), os.urandom(1000), partition=0)
        assert producer.flush(SECONDS_MAX) == 0
    assert main(["log", "verify", str(kafka.data)]) == 0
    partition = kafka.data / str(SHARED)
    second = sorted(partition.glob("*.log"))[1]
    second.rename(second.with_suffix(".away"))
    assert main(["log", "verify", str(kafka.data)]) == 1
    directory = open_directory(kafka.data, kafka.cluster_id)
    assert f"{second} is missing" in directory.offline[SHARED]
    directory.abandon()
    second.with_suffix(".away").rename(second)
    directory = open_directory(kafka.data, kafka.cluster_id)
    assert (directory.problems, directory.offline) == ([], {})
    assert not directory.close(NOW)
    for path in partition.glob(f"{second.stem}.*"):
        path.rename(path.with_suffix(".away"))
    directory = open_directory(kafka.data, kafka.cluster_id)
    assert f"{second} is missing" in directory.offline[SHARED]
    directory.abandon()
    assert main(["log", "verify", str(kafka.data), "--repair"]) == 0
    kafka.start()
    end = int(second.stem)
    assert len(consume(kafka, end)) == end
    kafka.stop()


def append_here(kafka: KafkaBroker, *, cleanly: bool) -> list[bytes]:
    directory = open_directory(kafka.data, kafka.cluster_id)
    assert directory.clean_shutdown == cleanly
    assert not directory.offline
    log = directory.logs[SHARED]
    values = fill(log, 60, LeaderEpoch(log.epochs.latest + 1))
    if cleanly:
        assert not directory.close(NOW)
    else:
        flush_now(log)
        directory._lock.release()  # As a killed process leaves it: without a marker and a checkpoint.
    return values


def create_topic(kafka: KafkaBroker) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
    for created in admin.create_topics([NewTopic(str(SHARED.topic), 1, 1)]).values():
        created.result(SECONDS_MAX)


def produce(kafka: KafkaBroker, word: str) -> list[bytes]:
    values = [f"{word} {number}".encode() for number in range(50)]
    producer = Producer({"bootstrap.servers": kafka.address, "log_level": 0, "compression.codec": "zstd"})
    for value in values:
        producer.produce(str(SHARED.topic), value, partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    return values


def consume(kafka: KafkaBroker, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": kafka.address, "group.id": "none", "log_level": 0, "enable.partition.eof": True}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    consumer.assign([Assigned(str(SHARED.topic), 0, 0)])
    values: list[bytes] = []
    while len(values) < count:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"{len(values)} of {count} came"
        assert message.error() is None, message.error()
        values.append(message.value() or b"")
    consumer.close()
    return values
