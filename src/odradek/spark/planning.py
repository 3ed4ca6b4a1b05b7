"""Offsets of a batch, and their division into tasks: pure arithmetic with reproducible results.

After a crash, Spark replays a batch: it calls partitions(start, end) with the offsets in its log, without requesting
the latest offsets again. A sink that recognizes replayed tasks depends on getting the same tasks. This module therefore
uses neither the brokers, nor a clock, nor properties of the machine.

A Python task costs 20 to 60 ms before its first record, a fetch about 1 ms. Partitions are therefore packed into as
many tasks as there are cores, and a partition is cut only if it is larger than a fair share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from odradek.base.units import TopicPartition
from odradek.spark.checkpoint_offsets import OffsetRange, Offsets, total
from odradek.spark.source_options import Split

# With fewer offsets, a second task costs more than it saves (20 ms at 1 million records per second).
OFFSETS_PER_TASK_MIN = 20_000


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the ranges between two offsets of a stream, in canonical order and without empty ones.

    A partition missing in `start` is new and begins at 0. A partition whose end is before its start was recreated: this
    batch only resets the offset to 0, and the next one reads from there.
    """
    spans = [OffsetRange(at.topic, at.partition, start.get(at, 0), end[at]) for at in sorted(end)]
    return [span for span in spans if span.size > 0]


def rate_limited(start: Offsets, latest: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Return end offsets of a batch of about `limit` offsets, in proportion to each partition's backlog.

    Every partition with a backlog gets at least one offset; otherwise large partitions could starve small ones. With
    more such partitions than `limit`, the result therefore exceeds it.
    """
    waiting = {at: latest[at] - start.get(at, 0) for at in latest}
    available = sum(size for size in waiting.values() if size > 0)
    if available <= limit:
        return dict(latest)
    return {
        at: start.get(at, 0) + max(1, limit * size // available) if size > 0 else latest[at]
        for at, size in waiting.items()
    }


def tasks_of(ranges: Sequence[OffsetRange], split: Split, cores: int) -> list[list[OffsetRange]]:
    """Pack ranges into tasks: each offset is in exactly one task, and a task reads a partition in order."""
    if not ranges:
        return []
    count = _task_count(total(ranges), split, cores)
    share = -(-total(ranges) // count)
    pieces = [piece for span in ranges for piece in _cut(span, share, split.max_records)]
    return _packed(pieces, min(count, len(pieces)), split.max_records)


def _task_count(size: int, split: Split, cores: int) -> int:
    by_cores = min(split.parallelism or cores, size // OFFSETS_PER_TASK_MIN)
    by_limit = -(-size // split.max_records) if split.max_records else 0
    return max(1, by_cores, by_limit, min(split.min_partitions or 0, size))


def _cut(span: OffsetRange, share: int, most: int | None) -> Iterable[OffsetRange]:
    """Cut a range into equal pieces of about a share; a rest below a quarter share gets no piece."""
    count = max(1, -((share - 4 * span.size) // (4 * share)), -(-span.size // most) if most else 1)
    bounds = [span.start + span.size * index // count for index in range(count + 1)]
    for first, last in pairwise(bounds):
        yield span._replace(start=first, end=last)


def _packed(pieces: list[OffsetRange], count: int, most: int | None) -> list[list[OffsetRange]]:
    """Pack the largest piece first into the emptiest task; the order within and among tasks is canonical."""
    bins: list[list[OffsetRange]] = [[] for _ in range(count)]
    sizes = [0] * count
    for piece in sorted(pieces, key=lambda span: (-span.size, span)):
        emptiest = min(range(len(bins)), key=sizes.__getitem__)
        if most is not None and sizes[emptiest] and sizes[emptiest] + piece.size > most:
            bins.append([])
            sizes.append(0)
            emptiest = len(bins) - 1
        bins[emptiest].append(piece)
        sizes[emptiest] += piece.size
    return sorted(sorted(task) for task in bins if task)
