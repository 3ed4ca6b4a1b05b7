"""`odradek topic compact` with an Odradek broker and with Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from client_peers import apache_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_peer import REAL_KAFKA

from odradek.app.main import main
from odradek.base.errors import ErrorCode
from odradek.net.shell import shell
from odradek.testing import Broker
from odradek.wire.messages.compact_partitions import (
    CompactPartitionsRequest,
    CompactPartitionsResponse,
    CompactPartitionsTopic,
)
from support.raw_client import RawClient, frame
from support.terminals import own

KEYS, TIMES, VALUE_BYTES = 50, 60, 500
SECONDS_MAX = 30
NEVER_BY_ITSELF = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
A_DAY_MS = 86_400_000

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker({"log.cleaner.backoff.ms": "200"}, directory=tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def run(broker: Broker, capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(broker.address, capfd)


def runner(address: str, capfd: pytest.CaptureFixture[str]) -> Run:
    def run_one(*arguments: str, status: int = 0) -> tuple[str, str]:
        returned = main(["topic", "compact", *arguments, "--bootstrap-server", address])
        captured = capfd.readouterr()
        assert returned == status, captured.err
        return captured.out, own(captured.err)

    return run_one


def write(broker: Broker, topic: str, partitions: int = 1) -> dict[tuple[int, bytes], bytes]:
    """Write each key many times; return the last value of each."""
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5, "batch.size": 20_000})
    last: dict[tuple[int, bytes], bytes] = {}
    for number in range(KEYS * TIMES):
        for partition in range(partitions):
            key, value = b"key-%d" % (number % KEYS), b"%d" % number + bytes(VALUE_BYTES)
            producer.produce(topic, value, key, partition)
            last[partition, key] = value
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0
    return last


def read(broker: Broker, topic: str, partitions: int = 1) -> list[tuple[int, bytes, bytes]]:
    settings = {"bootstrap.servers": broker.address, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[tuple[int, bytes, bytes]] = []
    left = partitions
    while left:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        if message.error():
            left -= 1
        else:
            found.append((message.partition(), message.key(), message.value()))
    consumer.close()
    return found


def size_of(broker: Broker, partition: str) -> int:
    return sum(one.stat().st_size for one in (broker.directory / partition).glob("*.log"))


def rows(run: Run, *arguments: str) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = json.loads(run(*arguments, "--json")[0])
    return shown


def test_compaction_on_request_keeps_the_last_values(broker: Broker, run: Run) -> None:
    broker.create_topic("table", partitions=2, configs=NEVER_BY_ITSELF)
    last = write(broker, "table", partitions=2)
    before = [size_of(broker, f"table-{partition}") for partition in range(2)]
    shown, remarks = run("table")
    assert remarks == ""
    first, second, total = shown.splitlines()[2:]
    assert first.split()[:2] == ["table", "0"] and second.split()[:2] == ["table", "1"]
    assert total.startswith("2 partitions, 3.") and total.endswith(f", {2 * KEYS * (TIMES - 1):,} records removed")
    for partition in range(2):
        assert size_of(broker, f"table-{partition}") < before[partition] / 20
    found = read(broker, "table", partitions=2)
    assert len(found) == 2 * KEYS
    assert {(partition, key): value for partition, key, value in found} == last


def test_compaction_on_request_waits_for_no_periodic_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step follows from the end of the one before: here only one periodic round runs, at the start."""
    monkeypatch.setattr(shell, "HOUSEKEEPING_MS", A_DAY_MS)
    with Broker({}, directory=tmp_path / "data") as broker:
        broker.create_topic("table", configs=NEVER_BY_ITSELF)
        write(broker, "table")
        topics = [CompactPartitionsTopic(name="table", partitions=[0])]
        with RawClient(int(broker.address.rpartition(":")[2])) as client:
            request = CompactPartitionsRequest(topics=topics, timeout_ms=SECONDS_MAX * 1_000)
            (part,) = client.request(request, 0, CompactPartitionsResponse).topics[0].partitions
        assert (part.error_code, part.removed_records) == (ErrorCode.NONE, KEYS * (TIMES - 1))


def test_a_second_compaction_removes_nothing(broker: Broker, run: Run) -> None:
    broker.create_topic("table", configs=NEVER_BY_ITSELF)
    before = write(broker, "table")
    (won,) = rows(run, "table")
    size = size_of(broker, "table-0")
    assert (won["removed_records"], won["bytes_after"]) == (KEYS * (TIMES - 1), size)
    assert won["held_back_by"] is None and won["compacted_to"] == KEYS * TIMES
    (again,) = rows(run, "table")
    assert (again["bytes_before"], again["bytes_after"], again["removed_records"]) == (size, size, 0)
    assert again["duration_ms"] == 0, "no pass was needed"
    broker.stop()
    broker.start()
    assert {(partition, key): value for partition, key, value in read(broker, "table")} == before


def test_a_single_partition_is_compacted(broker: Broker, run: Run) -> None:
    broker.create_topic("table", partitions=2, configs=NEVER_BY_ITSELF)
    write(broker, "table", partitions=2)
    before = size_of(broker, "table-0")
    (won,) = rows(run, "table", "--partition", "1")
    assert (won["topic"], won["partition"]) == ("table", 1)
    assert size_of(broker, "table-0") == before


def test_records_protected_by_min_compaction_lag_are_reported(broker: Broker, run: Run) -> None:
    broker.create_topic("table", configs=NEVER_BY_ITSELF | {"min.compaction.lag.ms": "3600000"})
    write(broker, "table")
    shown, remarks = run("table")
    assert "1 partition, 1.5 MiB compacted to 1.5 MiB, 0 records removed" in shown
    assert remarks == "odradek: table-0 is compacted up to offset 0: min.compaction.lag.ms protects the rest\n"
    assert len(read(broker, "table")) == KEYS * TIMES


def test_refused_partitions_get_one_sentence_each(broker: Broker, run: Run) -> None:
    broker.create_topic("stream", partitions=2)
    broker.create_topic("table", partitions=2, configs=NEVER_BY_ITSELF)
    write(broker, "table", partitions=2)
    shown, remarks = run("stream", status=1)
    message = "odradek: topic stream is not compacted: set cleanup.policy=compact first\n"
    assert (shown, remarks) == ("", message), "what is alike is said once"
    (log,) = (broker.directory / "table-0").glob("*.log")
    with log.open("r+b") as file:
        file.seek(1_000)
        file.write(b"damage")
    shown, remarks = run("table", status=1)
    assert remarks.startswith("odradek: failed to compact table-0: ") and remarks.count("\n") == 1
    assert "checksum" in remarks
    assert "1 partition, 1.5 MiB compacted to" in shown, "the other one is compacted"


def test_unknown_topics_and_invalid_options_get_one_sentence(run: Run) -> None:
    for arguments, message, status in (
        (("nowhere",), "does not exist", 1),
        (("a*",), "use a name, not a pattern", 2),
        (("nowhere", "--timeout", "soon"), "use 90s, 10m, 2h or 1d", 2),
    ):
        shown, remarks = run(*arguments, status=status)
        assert not shown and message in remarks and remarks.count("\n") == 1


def test_a_disabled_cleaner_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Broker({"log.cleaner.enable": "false"}, directory=tmp_path) as broker:
        broker.create_topic("table", configs=NEVER_BY_ITSELF)
        _, remarks = runner(broker.address, capfd)("table", status=1)
    assert "start it with log.cleaner.enable=true" in remarks


def test_the_timeout_ends_the_wait(broker: Broker, run: Run) -> None:
    broker.create_topic("table", configs=NEVER_BY_ITSELF)
    write(broker, "table")
    _, remarks = run("table", "--timeout", "0s", status=1)
    assert remarks == "odradek: table-0 is not compacted yet; the broker continues to compact it in the background\n"
    (won,) = rows(run, "table")
    assert won["compacted_to"] == KEYS * TIMES


def test_disconnected_clients_leave_nothing_behind(broker: Broker, run: Run) -> None:
    """One client disconnects after its request, one waits on another connection, and others are served."""
    broker.create_topic("table", configs=NEVER_BY_ITSELF)
    write(broker, "table")
    topics = [CompactPartitionsTopic(name="table", partitions=[0])]
    request = CompactPartitionsRequest(topics=topics, timeout_ms=A_DAY_MS)
    port = int(broker.address.rpartition(":")[2])
    with RawClient(port) as waiting:
        for _ in range(20):
            with RawClient(port) as disconnected:
                disconnected.send(frame(request, 0))
        (part,) = waiting.request(request, 0, CompactPartitionsResponse).topics[0].partitions
    assert part.error_code == ErrorCode.NONE
    assert part.removed_records in (0, KEYS * (TIMES - 1)), "who comes later gets the next compaction"
    assert len(read(broker, "table")) == KEYS


def test_a_stop_does_not_wait_for_parked_requests(broker: Broker) -> None:
    broker.create_topic("table", configs=NEVER_BY_ITSELF)
    write(broker, "table")
    topics = [CompactPartitionsTopic(name="table", partitions=[0])]
    with RawClient(int(broker.address.rpartition(":")[2])) as client:
        client.send(frame(CompactPartitionsRequest(topics=topics, timeout_ms=A_DAY_MS), 0))
        broker.stop()
    broker.start()
    assert read(broker, "table")


@pytest.mark.parametrize("start", [pytest.param(apache_kafka, marks=REAL_KAFKA)])
def test_a_broker_without_the_api_is_reported(start: Callable[[], str], capfd: pytest.CaptureFixture[str]) -> None:
    """Apache Kafka closes the connection on an unknown API."""
    address = start()
    run = runner(address, capfd)
    main(["topic", "create", "table", "--config", "cleanup.policy=compact", "-b", address, "--if-not-exists"])
    capfd.readouterr()
    shown, remarks = run("table", status=1)
    text = f"odradek: {address} does not support topic compaction: it is not an Odradek broker, or too old\n"
    assert (shown, remarks) == ("", text)
