"""How fast a log is compacted, in how much memory, and what other producers feel of it meanwhile.

    python bench/compaction.py [--targets odradek,kafka] [--keys 10000000] [--records 20000000] [--batch 1000]

A topic is filled with keys drawn at random, then its dirty ratio is altered so that the cleaner takes it up; a producer
of another topic sends small records on a schedule before that and meanwhile.  It is over when every segment but the
active one is another file, under its name.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path

import frames
import measure
from brokers import BROKERS, Broker, new_topic
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from machine import stolen

SETTINGS = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "0"}
SEGMENT_BYTES = 64 << 20
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "segment.bytes": str(SEGMENT_BYTES)}
ALONE_SECONDS = 10
SECONDS_MAX = 900
REQUEST_SECONDS_MAX = 60
CHECK_SECONDS = 0.02


def started(name: str, folder: Path, mb_per_second: float) -> Broker:
    kind, settings = BROKERS[name], dict(SETTINGS)
    if mb_per_second:
        settings |= {"log.cleaner.io.max.bytes.per.second": f"{mb_per_second * 1e6}"}
    broker = type(f"Compacting{kind.__name__}", (kind,), {"settings": settings})(folder / name)
    broker.start()
    return broker


def fill(broker: Broker, topic: str, arguments: argparse.Namespace) -> None:
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "linger.ms": 20,
            "batch.num.messages": arguments.batch,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": arguments.codec,
        }
    )
    draw, value = random.Random(1), random.Random(2).randbytes(arguments.value)
    for _ in range(arguments.records):
        key = b"key-%012d" % draw.randrange(arguments.keys)
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(SECONDS_MAX)


def size_mb(broker: Broker, topic: str) -> float:
    return sum(path.stat().st_size for path in broker.data.glob(f"{topic}-0/*.log")) / 1e6


def sealed(broker: Broker, topic: str) -> set[tuple[int, int]]:
    """Returns inode and size of all segments but the active one; inodes alone are used again."""
    paths = sorted(broker.data.glob(f"{topic}-0/*.log"))
    return {(path.stat().st_ino, path.stat().st_size) for path in paths[:-1]}


def is_over(broker: Broker, topic: str, before: set[tuple[int, int]]) -> bool:
    try:
        is_replaced = not before & sealed(broker, topic)
    except FileNotFoundError:  # It was renamed this moment.
        return False
    folder = broker.data / f"{topic}-0"
    return is_replaced and not any(path.suffix in (".cleaned", ".swap") for path in folder.iterdir())


def wait_until_over(broker: Broker, topic: str, before: set[tuple[int, int]]) -> None:
    """Looks at the last sealed segment alone while that is the old one, which takes the processor from nobody."""
    last, ends = sorted(broker.data.glob(f"{topic}-0/*.log"))[-2], time.monotonic() + SECONDS_MAX
    number = last.stat().st_ino
    while time.monotonic() < ends:
        time.sleep(CHECK_SECONDS)
        with suppress(FileNotFoundError):
            if last.stat().st_ino == number:
                continue
        if is_over(broker, topic, before):
            return
    raise RuntimeError("it is not compacted")


def active_base(broker: Broker, topic: str) -> int:
    return max(int(path.stem) for path in broker.data.glob(f"{topic}-0/*.log"))


def begin(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(REQUEST_SECONDS_MAX)


def send(
    port: int, frame: bytes, rate: int, over: Event, found: multiprocessing.Queue[list[tuple[float, int]]]
) -> None:
    """One record after the other, on a schedule; one that is late is counted from when it was due."""
    connection = socket.create_connection(("127.0.0.1", port), REQUEST_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    samples, start, answered, number = [], time.monotonic(), 0.0, 0
    while not over.is_set():
        due = start + number / rate
        time.sleep(max(due - time.monotonic(), 0))
        since = due if answered > due else time.monotonic()
        connection.sendall(frame)
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
        connection.recv(size, socket.MSG_WAITALL)
        answered = time.monotonic()
        samples.append((answered - since, 1))
        number += 1
    found.put(samples)


@contextmanager
def sampled(
    broker: Broker, topic: str, rate: int, samples: list[tuple[float, int]], batch_bytes: int = 1
) -> Iterator[None]:
    """Has a producer send a batch after the other, and adds how long they took; not those of the first 0.1 s."""
    fork = multiprocessing.get_context("fork")
    over, found = fork.Event(), fork.Queue()
    frame = frames.produce(topic, 0, 1, frames.batch(100, batch_bytes).data)
    process = fork.Process(target=send, args=(broker.port, frame, rate, over, found), daemon=True)
    process.start()
    try:
        yield
    finally:
        over.set()
        samples += found.get(timeout=REQUEST_SECONDS_MAX)[rate // 10 :]
        process.join()


def add_quantiles(samples: list[tuple[float, int]], into: dict[str, float], name: str) -> None:
    for quantile, microseconds in measure.quantiles(samples).items():
        into[f"{name}_{quantile}_us"] = microseconds
    into[f"{name}_max_us"] = round(max(sample for sample, _ in samples) * 1e6, 1)


@contextmanager
def paced(broker: Broker, topic: str, rate: int, into: dict[str, float], name: str) -> Iterator[None]:
    samples: list[tuple[float, int]] = []
    with stolen(into, name), sampled(broker, topic, rate, samples):
        yield
    add_quantiles(samples, into, name)


@contextmanager
def peak(broker: Broker, into: dict[str, float]) -> Iterator[None]:
    into["rss_before_mb"] = round(broker.resident_mb(), 1)
    measure.forget_peak(broker.pid)
    yield
    into["rss_peak_mb"] = round(measure.peak_mb(broker.pid), 1)


def measured(broker: Broker, arguments: argparse.Namespace) -> dict[str, float]:
    topic, other, numbers = new_topic(), new_topic(), dict[str, float]()
    broker.create(topic, 1, CONFIGS)
    broker.create(other, 1, {})
    fill(broker, topic, arguments)
    size = size_mb(broker, topic)
    os.sync()  # What was filled in is not to be written while the other producer is alone.
    with paced(broker, other, arguments.rate, numbers, "alone"):
        time.sleep(ALONE_SECONDS)
    before, records = sealed(broker, topic), active_base(broker, topic)
    cpu, begun = broker.cpu_seconds(), time.monotonic()
    with paced(broker, other, arguments.rate, numbers, "meanwhile"), peak(broker, numbers):
        begin(broker, topic)
        wait_until_over(broker, topic, before)
        seconds = time.monotonic() - begun
    numbers["seconds"] = round(seconds, 2)
    numbers["mb_per_s"] = round(size / seconds, 1)
    numbers["krecords_per_s"] = round(records / seconds / 1000, 1)
    numbers["cpu_s"] = round(broker.cpu_seconds() - cpu, 2)
    numbers["left_mb"] = round(size_mb(broker, topic), 1)
    broker.delete(topic)
    return numbers


def print_measured(broker: Broker, measure_broker: Callable[[Broker], dict[str, float]]) -> None:
    """Prints what is measured of a broker, stops it, and frees its space."""
    try:
        for column, number in sorted(measure_broker(broker).items()):
            print(f"{broker.name:8} {column:24} {number}", flush=True)
    finally:
        broker.stop()
    shutil.rmtree(broker.folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="odradek,kafka")
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--value", type=int, default=100, help="bytes of a value")
    parser.add_argument("--batch", type=int, default=1000, help="records in a batch, at most")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--mb-per-second", type=float, default=0, help="at most that the cleaner reads and writes")
    parser.add_argument("--rate", type=int, default=500, help="records a second of the other producer")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-compaction-") as folder:
        for name in arguments.targets.split(","):
            print_measured(
                started(name, Path(folder), arguments.mb_per_second), lambda broker: measured(broker, arguments)
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
