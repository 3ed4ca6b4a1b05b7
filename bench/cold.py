"""What other clients feel while old records are read from the disk, and how fast that goes.

    python bench/cold.py [--targets odradek,kafka,bound] [--gb 10] [--consumers 1] [--mb-per-second 300] [--free-gb 4]

A topic is filled, written out and dropped from the page cache (`posix_fadvise`, DONTNEED), indexes and all.  Consumers
read it in stretches, each twice: the second reading is hot, and costs others what receiving costs on the same
processors.  A producer of another topic sends small records on a schedule before each stretch and during both readings,
so that what else the machine does is in the figures of all three alike.  `cached_percent` is how much of a stretch the
page cache had before it was read.

With `--free-gb` the bench holds all memory but so much, and fills that with pages of another file, as on a machine that
has been up for some time: what is read takes the place of what was read before.  A virtual machine may give free memory
back to its host, and have to wait for each page that it takes again: the producer waits for that, whoever reads.  So
does `bound`, for which one process acknowledges and another one sends from its file, both the least that any broker
does: it is the machine's share.

`steal` is how much of the processors a virtual machine's host kept for itself: where the host charges the machine for
its disk, consumers that take all there is have it stand still for some of each tenth of a second, and the producer's
figures are the host's.  Then give them a rate.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean

import frames
import load_consume
import load_produce
import machine
from brokers import BROKERS, Broker, LowerBound, new_topic
from compaction import add_quantiles, print_measured, sampled
from load import LoadFailed, loaded
from work import load

from odradek.log.files.page_cache import PAGE_BYTES, cached_pages

VALUE_BYTES, BATCH_BYTES = 1024, 64 << 10
IN_FLIGHT = 8
ALONE_SECONDS = 30  # In all.
SECONDS_MAX = 900


def units_of_partition(arguments: argparse.Namespace) -> int:
    """Returns how many batches are in each."""
    data, _ = frames.batch(VALUE_BYTES, BATCH_BYTES)
    return max(int(arguments.gb * 1e9) // arguments.consumers // len(data), 1)


def fill(broker: Broker, topic: str, arguments: argparse.Namespace) -> None:
    data, records = frames.batch(VALUE_BYTES, BATCH_BYTES)
    units = units_of_partition(arguments)
    works = [
        load_produce.filling(
            broker.port, topic, frames.produce(topic, partition, 1, data), records, units, IN_FLIGHT, SECONDS_MAX
        )
        for partition in range(arguments.consumers)
    ]
    if any(report.requests != units for report in loaded(works)):
        raise LoadFailed(f"{broker.name}: the topic could not be filled")


def files(broker: Broker, topic: str) -> list[Path]:
    if isinstance(broker, LowerBound):
        return [broker.data / "bytes"]
    return sorted(broker.data.glob(f"{topic}-*/*"))


def drop_page_cache(broker: Broker, topic: str) -> None:
    for path in files(broker, topic):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fill_page_cache(path: Path, gb: float) -> None:
    """Writes a file of that size, whose pages stay until somebody needs room."""
    data = os.urandom(1 << 20)
    with path.open("wb") as file:
        for _ in range(int(gb * 1e9) >> 20):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


def cached_percent(broker: Broker, plan: load_consume.Plan) -> float:
    """Returns how much of what a consumer reads is in the page cache; NaN where the system can't say."""
    first, end = plan.first * plan.unit_bytes, plan.units * plan.unit_bytes
    cached, at = 0.0, 0
    for path in files(broker, plan.topic):
        if path.name != "bytes" and not path.match(f"*-{plan.partition}/*.log"):
            continue
        size = path.stat().st_size
        start, stop = max(first - at, 0), min(end - at, size)
        if start < stop:
            with path.open("rb") as file:
                found = cached_pages(file.fileno(), start, stop - start)
            cached += float("nan") if found is None else found
        at += size
    return 100 * cached * PAGE_BYTES / (end - first)


def hold(gb: float, ready: Connection, parent_end: Connection) -> None:
    """Takes memory and keeps it until the bench has ended.  If the system lacks some it ends this process first."""
    parent_end.close()  # Or it would never be known that nobody has the other end any more.
    Path("/proc/self/oom_score_adj").write_text("1000")
    memory = mmap.mmap(-1, int(gb * 1e9), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(memory), PAGE_BYTES):
        memory[at] = 1
    ready.send(None)
    with suppress(EOFError):
        ready.recv()


@contextmanager
def only_free(gb: float) -> Iterator[None]:
    """Leaves so much memory to all others; 0 for all there is."""
    held_gb = machine.available_bytes() / 1e9 - gb if gb else 0
    if held_gb <= 0:
        yield
        return
    fork = multiprocessing.get_context("fork")
    parent_end, child_end = fork.Pipe()
    holder = fork.Process(target=hold, args=(held_gb, child_end, parent_end), daemon=True)
    holder.start()
    child_end.close()
    parent_end.recv()  # Raises EOFError if it has ended.
    try:
        yield
    finally:
        holder.terminate()
        holder.join()


@contextmanager
def of_producer(broker: Broker) -> Iterator[Broker]:
    """Gives the broker that the producer sends to: another one, if that is of the kind that waits for a disk."""
    if not isinstance(broker, LowerBound):
        yield broker
        return
    other = type(broker)(broker.folder / "other")
    other.start()
    try:
        yield other
    finally:
        other.stop()


@dataclass
class Pass:
    """What was seen in all stretches together while the producer was alone, or somebody read."""

    samples: list[tuple[float, int]] = field(default_factory=list)
    steal_percent: list[float] = field(default_factory=list)
    cached_percent: list[float] = field(default_factory=list)
    megabytes: float = 0
    seconds: float = 0
    cpu_s: float = 0

    @contextmanager
    def producing(self, broker: Broker, topic: str, arguments: argparse.Namespace) -> Iterator[None]:
        steal = dict[str, float]()
        with machine.stolen(steal, "of"), sampled(broker, topic, arguments.rate, self.samples, arguments.batch_bytes):
            yield
        self.steal_percent += steal.values()

    def read(self, broker: Broker, plans: list[load_consume.Plan]) -> None:
        found = load(broker, [plan.work() for plan in plans]).numbers()
        self.cpu_s += found["cpu_s"]
        self.megabytes += found["mb_per_s"] * found["wall_s"]
        self.seconds += found["wall_s"]

    def numbers(self, name: str) -> dict[str, float]:
        numbers = {f"{name}_steal_percent": round(fmean(self.steal_percent), 1)}
        add_quantiles(self.samples, numbers, name)
        if self.seconds:
            numbers[f"{name}_cached_percent"] = round(fmean(self.cached_percent), 1)
            numbers[f"{name}_mb_per_s"] = round(self.megabytes / self.seconds, 2)
            numbers[f"{name}_cpu_s"] = round(self.cpu_s, 2)
        return numbers


def plans_of(stretch: int, broker: Broker, topic: str, arguments: argparse.Namespace) -> list[load_consume.Plan]:
    """Returns what each consumer reads of a topic that `fill` has filled."""
    data, records = frames.batch(VALUE_BYTES, BATCH_BYTES)
    units = units_of_partition(arguments)
    return [
        load_consume.Plan(
            port=broker.port,
            topic=topic,
            partition=partition,
            units=units * (stretch + 1) // arguments.stretches,
            first=units * stretch // arguments.stretches,
            unit_bytes=len(data),
            unit_records=records if broker.verifies else len(data),
            verifies=broker.verifies,
            warmup_seconds=0,
            seconds=SECONDS_MAX,
            passes=1,
            bytes_per_second=int(arguments.mb_per_second * 1e6 / arguments.consumers),
        )
        for partition in range(arguments.consumers)
    ]


def measured(broker: Broker, arguments: argparse.Namespace) -> dict[str, float]:
    topic, other = new_topic(), new_topic()
    broker.create(topic, arguments.consumers, {})
    fill(broker, topic, arguments)
    alone, cold, again = Pass(), Pass(), Pass()
    with of_producer(broker) as producers:
        producers.create(other, 1, {})
        drop_page_cache(broker, topic)
        fill_page_cache(broker.folder / "filler", arguments.free_gb)
        for stretch in range(arguments.stretches):
            plans = plans_of(stretch, broker, topic, arguments)
            with alone.producing(producers, other, arguments):
                time.sleep(ALONE_SECONDS / arguments.stretches)
            for seen in (cold, again):
                seen.cached_percent += [cached_percent(broker, plan) for plan in plans]
                with seen.producing(producers, other, arguments):
                    seen.read(broker, plans)
    broker.delete(topic)
    return alone.numbers("alone") | cold.numbers("cold") | again.numbers("again")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="odradek,kafka")
    parser.add_argument("--gb", type=float, default=10, help="of records, in all partitions")
    parser.add_argument("--consumers", type=int, default=1, help="each with a partition of its own")
    parser.add_argument("--mb-per-second", type=float, default=0, help="of all consumers together, if not all they can")
    parser.add_argument("--rate", type=int, default=500, help="requests a second of the other producer")
    parser.add_argument("--batch-bytes", type=int, default=1, help="of its records of 100 bytes in each, at least one")
    parser.add_argument("--free-gb", type=float, default=0, help="of memory that is left to all others; if not all")
    parser.add_argument("--stretches", type=int, default=10, help="of the topic, each read twice")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-cold-") as folder, only_free(arguments.free_gb):
        for _ in range(arguments.rounds):
            for name in arguments.targets.split(","):
                broker = BROKERS[name](Path(folder) / name)
                broker.start()
                print_measured(broker, lambda broker: measured(broker, arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
