"""A follower far behind its leaders: it catches up without delaying other requests."""

from __future__ import annotations

import hashlib
import re
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_zookeeper import OLD_KAFKA, ZooKeeper
from test_cluster_zookeeper import BROKERS, broker, servers

from support.serving import Serving
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("kills brokers on a ZooKeeper of its own")]

MIB = 1 << 20
VALUE = bytes(100_000)
GIANT = bytes(8 * MIB)  # A multiple of replica.fetch.max.bytes, 1 MiB.
# A broker takes some 50 MiB plus buffers of some fetches, whatever the follower's lag.
MEMORY_KIB_MAX = 200 * 1024
AWAY = 3
CONFIGS = {
    "replica.lag.time.max.ms": "2000",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "0",
    "log.segment.delete.delay.ms": "100",
}
KEPT = {"min.insync.replicas": "2", "max.message.bytes": str(2 * len(GIANT))}


class Topics:
    """Four topics: `deleted` loses old data, `kept` does not, `giant` has a batch over a fetch, `other` is measured."""

    def __init__(self, brokers: dict[int, Serving], segment_bytes: int) -> None:
        self.admin = AdminClient({"bootstrap.servers": servers(brokers), "log_level": 0})
        common = {**KEPT, "segment.bytes": str(segment_bytes)}
        made = [
            NewTopic("deleted", 1, replica_assignment=[[1, 2, 3]], config={**common, "retention.bytes": "1"}),
            NewTopic("kept", 1, replica_assignment=[[1, 2, 3]], config=common),
            NewTopic("giant", 1, replica_assignment=[[2, 1, 3]], config=common),
            NewTopic("other", 1, replica_assignment=[[1, 2, 3]], config=common),
        ]
        self.names = [one.topic for one in made]
        for one in self.admin.create_topics(made).values():
            one.result(SECONDS_MAX)

    def are_in_sync(self) -> bool:
        topics = self.admin.list_topics(timeout=SECONDS_MAX).topics
        return all(set(topics[name].partitions[0].isrs) == set(BROKERS) for name in self.names)


class Measured:
    """A context that writes one record after the other with acks=all and measures the brokers' memory."""

    def __init__(self, brokers: dict[int, Serving]) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers(brokers), "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        self._brokers = brokers
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seconds: list[float] = []
        self.memory_kib: dict[int, int] = {}
        self.errors: list[object] = []

    def _run(self) -> None:
        while not self._ends.wait(0.02):
            began = time.monotonic()
            self._producer.produce("other", b"x", on_delivery=lambda error, _: self.errors.append(error))
            self._producer.flush(SECONDS_MAX)
            self.seconds.append(time.monotonic() - began)
            for number, one in self._brokers.items():
                self.memory_kib[number] = max(self.memory_kib.get(number, 0), one.memory_kib())

    def __enter__(self) -> Measured:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def __str__(self) -> str:
        median, worst = statistics.median(self.seconds), max(self.seconds)
        return (
            f"{len(self.seconds)} produced: {median * 1000:.1f} ms, at most {worst * 1000:.0f}; KiB {self.memory_kib}"
        )


def fill(brokers: dict[int, Serving], topic: str, count: int, value: bytes = VALUE) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers(brokers),
            "acks": "all",
            "message.max.bytes": 2 * len(GIANT),
            "queue.buffering.max.kbytes": 32 * 1024,
            "log_level": 0,
        }
    )
    failures: list[object] = []
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    assert producer.flush(SECONDS_MAX) == 0
    assert not failures


def segments(one: Serving, topic: str) -> list[Path]:
    return sorted((one.directory / "data" / f"{topic}-0").glob("*.log"))


def records(one: Serving, topic: str) -> bytes:
    return b"".join(path.read_bytes() for path in segments(one, topic))


def digest(one: Serving, topic: str) -> str:
    """Return a checksum of all records, which may not fit into memory."""
    found = hashlib.sha256()
    for path in segments(one, topic):
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: found)
    return found.hexdigest()


def first_segment(one: Serving, topic: str) -> int:
    return int(segments(one, topic)[0].stem)


@contextmanager
def running(folder: Path) -> Iterator[dict[int, Serving]]:
    with ExitStack() as stack:
        ensemble = stack.enter_context(ZooKeeper(folder / "zookeeper"))
        made = {number: broker(folder, number, f"127.0.0.1:{ensemble.port}/kafka", CONFIGS) for number in BROKERS}
        yield {number: stack.enter_context(one) for number, one in made.items()}


def catch_up(folder: Path, mebibytes: int, segment_bytes: int) -> None:
    count = mebibytes * MIB // 2 // len(VALUE)
    with running(folder) as brokers:
        topics = Topics(brokers, segment_bytes)
        for name in topics.names:
            fill(brokers, name, 5)
        until(topics.are_in_sync)
        away = brokers[AWAY]
        away.kill()
        fill(brokers, "deleted", count)
        fill(brokers, "kept", count)
        fill(brokers, "giant", 3, GIANT)
        until(lambda: first_segment(brokers[1], "deleted") > 5)
        behind = sum(path.stat().st_size for path in (brokers[1].directory / "data").glob("*/*.log"))
        away.start()
        began = time.monotonic()
        with Measured(brokers) as measured:
            until(topics.are_in_sync)
        print(f"{behind >> 20} MiB behind, {time.monotonic() - began:.1f} s; {measured}")
        assert set(measured.errors) == {None}
        assert max(measured.memory_kib.values()) < MEMORY_KIB_MAX, measured
        assert re.search(
            r"truncating deleted-0 fully and starting at offset [1-9]\d*, the log start offset of the leader",
            away.errors(),
        )
        assert first_segment(away, "deleted") > 5
        for name in ("kept", "giant"):
            until(lambda: digest(away, name) == digest(brokers[1], name))  # noqa: B023  # It is called here alone.
        # Each replica deletes on its own.
        ours, theirs = records(away, "deleted"), records(brokers[1], "deleted")
        assert ours.endswith(theirs) or theirs.endswith(ours)
        assert not any("Traceback" in one.errors() for one in brokers.values())


def test_a_follower_300_mebibytes_behind_catches_up(tmp_path: Path) -> None:
    catch_up(tmp_path, 300, 16 * MIB)


@pytest.mark.soak
def test_a_follower_gigabytes_behind_catches_up(tmp_path: Path) -> None:
    catch_up(tmp_path, 3 * 1024, 64 * MIB)
