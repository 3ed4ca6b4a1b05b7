"""What other clients feel while old records are read from the disk, and how fast that goes.

    python bench/cold.py [--targets odradek,kafka] [--gb 10] [--consumers 1] [--mb-per-second 300]

A topic is filled, written out and dropped from the page cache (`posix_fadvise`, DONTNEED), indexes and all.  A producer
of another topic sends small records on a schedule before that, while consumers read the first from its beginning, and
while they read it again: that is hot, and costs him what receiving costs on the same processors.

`steal` is how much of the processors a virtual machine's host kept for itself: where the host charges the machine for
its disk, consumers that take all there is have it stand still for some of each tenth of a second, and the producer's
figures are the host's.  Then give them a rate.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import frames
import load_consume
import load_produce
from brokers import BROKERS, Broker, new_topic
from compaction import paced, tell
from load import Crowd, LoadFailed
from work import load

VALUE_BYTES, BATCH_BYTES = 1024, 64 << 10
IN_FLIGHT = 8
ALONE_SECONDS = 10
SECONDS_MAX = 900


def fill(broker: Broker, topic: str, partitions: int, size: int) -> tuple[int, int, int]:
    """Returns how many batches are in each partition, and the bytes and records of one."""
    data, records = frames.batch(VALUE_BYTES, BATCH_BYTES)
    units = max(size // partitions // len(data), 1)
    works = [
        load_produce.Plan(
            port=broker.port,
            topic=topic,
            ring=load_produce.Ring([frames.produce(topic, partition, 1, data)], IN_FLIGHT),
            records_per_request=records,
            window=IN_FLIGHT,
            warmup_seconds=0,
            seconds=SECONDS_MAX,
            requests_max=units,
        ).work()
        for partition in range(partitions)
    ]
    with Crowd(works) as crowd:
        crowd.ready()
        if any(report.requests != units for report in crowd.go()):
            raise LoadFailed(f"{broker.name}: the topic could not be filled")
    return units, len(data), records


def drop_page_cache(broker: Broker, topic: str) -> None:
    for path in broker.data.glob(f"{topic}-*/*"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measured(broker: Broker, arguments: argparse.Namespace) -> dict[str, float]:
    topic, other, numbers = new_topic(), new_topic(), dict[str, float]()
    broker.create(topic, arguments.consumers, {})
    broker.create(other, 1, {})
    units, unit_bytes, records = fill(broker, topic, arguments.consumers, int(arguments.gb * 1e9))
    drop_page_cache(broker, topic)
    with paced(broker, other, arguments.rate, numbers, "alone"):
        time.sleep(ALONE_SECONDS)
    plans = [
        load_consume.Plan(
            port=broker.port,
            topic=topic,
            partition=partition,
            units=units,
            unit_bytes=unit_bytes,
            unit_records=records,
            verifies=broker.verifies,
            warmup_seconds=0,
            seconds=SECONDS_MAX,
            passes=1,
            bytes_per_second=int(arguments.mb_per_second * 1e6 / arguments.consumers),
        )
        for partition in range(arguments.consumers)
    ]
    for state in ("cold", "hot"):
        with paced(broker, other, arguments.rate, numbers, state):
            found = load(broker, [plan.work() for plan in plans]).numbers()
        numbers |= {f"{state}_{name}": round(found[name], 2) for name in ("mb_per_s", "cpu_s")}
    broker.delete(topic)
    return numbers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="odradek,kafka")
    parser.add_argument("--gb", type=float, default=10, help="of records, in all partitions")
    parser.add_argument("--consumers", type=int, default=1, help="each with a partition of its own")
    parser.add_argument("--mb-per-second", type=float, default=0, help="of all consumers together, if not all they can")
    parser.add_argument("--rate", type=int, default=500, help="records a second of the other producer")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-cold-") as folder:
        for _ in range(arguments.rounds):
            for name in arguments.targets.split(","):
                broker = BROKERS[name](Path(folder) / name)
                broker.start()
                tell(broker, lambda broker: measured(broker, arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
