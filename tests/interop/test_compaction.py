"""Compaction for users: a topic stays as small as its table, and readers get the last values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from odradek.testing import Broker

QUICK = {
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "0",
    "log.segment.delete.delay.ms": "0",
}
TABLE = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "0",
}
SECONDS_MAX = 30


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(QUICK, directory=tmp_path / "data") as broker:
        yield broker


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < end, "it was not compacted"
        time.sleep(0.05)


def size_of(broker: Broker, partition: str) -> int:
    return sum(one.stat().st_size for one in (broker.directory / partition).glob("*.log"))


def write(broker: Broker, topic: str, records: Iterator[tuple[bytes, bytes | None]], **settings: object) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5, **settings})
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(SECONDS_MAX) == 0


def read(broker: Broker, topic: str, isolation: str = "read_committed") -> list[tuple[int, bytes, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "g",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes, bytes | None]] = []
    while (message := consumer.poll(SECONDS_MAX)) is not None:
        if message.error():
            break
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_compacted_topic_stays_as_small_as_its_table(broker: Broker, codec: str) -> None:
    broker.create_topic("table", configs=TABLE)
    values = {b"key-%d" % (number % 50): b"%d" % number + bytes(900) for number in range(6_000)}
    records = ((b"key-%d" % (number % 50), b"%d" % number + bytes(900)) for number in range(6_000))
    write(broker, "table", records, **{"compression.type": codec, "batch.size": 20_000})
    write(broker, "table", ((b"filler-%d" % number, bytes(1000)) for number in range(1_200)))
    until(lambda: len([one for one in read(broker, "table") if one[1].startswith(b"key")]) <= 50)
    found = read(broker, "table")
    assert {key: value for _, key, value in found if key in values} == values
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    until(lambda: size_of(broker, "table-0") < 3_000_000)


def test_tombstones_and_aborted_records_are_removed(broker: Broker) -> None:
    broker.create_topic("table", configs=TABLE)
    write(broker, "table", ((b"gone-%d" % number, bytes(1000)) for number in range(1_000)))
    write(broker, "table", ((b"gone-%d" % number, None) for number in range(1_000)))
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "t"})
    producer.init_transactions()
    for commits in (True, False, True):
        producer.begin_transaction()
        for number in range(200):
            producer.produce("table", b"%d" % commits + bytes(3000), b"kept-%d" % number)
        (producer.commit_transaction if commits else producer.abort_transaction)()

    def is_done() -> (
        bool
    ):  # The pass after the one that found a tombstone removes it, and needs dirty records to start.
        write(broker, "table", ((b"filler-%d" % number, bytes(1000)) for number in range(1_200)))
        seen = read(broker, "table", "read_uncommitted")
        return not any(key.startswith(b"gone") for _, key, _ in seen) and not any(
            key.startswith(b"kept") and value is not None and value.startswith(b"0") for _, key, value in seen
        )

    until(is_done)
    seen = [(key, value) for _, key, value in read(broker, "table") if key.startswith(b"kept")]
    assert len(seen) == 200
    assert all(value is not None and value.startswith(b"1") for _, value in seen)


def test_a_record_without_key_is_refused(broker: Broker) -> None:
    broker.create_topic("table", configs=TABLE)
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": broker.address, "retries": 0})
    producer.produce("table", b"no key", on_delivery=lambda error, _: failures.append(error))
    producer.flush(SECONDS_MAX)
    assert failures and failures[0] is not None
    with pytest.raises(KafkaException):
        raise KafkaException(failures[0])


def test_a_restart_keeps_the_compacted_log(broker: Broker) -> None:
    broker.create_topic("table", configs=TABLE)
    write(broker, "table", ((b"key-%d" % (number % 20), bytes(1000)) for number in range(4_000)))
    write(broker, "table", ((b"filler-%d" % number, bytes(1000)) for number in range(1_200)))
    until(lambda: size_of(broker, "table-0") < 3_000_000)
    before = read(broker, "table")
    broker.stop()
    assert "table 0 " in (broker.directory / "cleaner-offset-checkpoint").read_text()
    broker.start()
    assert read(broker, "table") == before
    broker.kill()
    broker.start()
    assert read(broker, "table") == before
