"""Which offsets a batch takes, and how they become tasks: arithmetic only, the same answer for the same arguments.

Spark replays a batch after a crash by calling partitions(start, end) with what its log holds, without asking for the
latest offsets again; a sink that recognises a replayed task depends on getting the same tasks.  So nothing here looks
at the brokers, a clock or the machine.

A Python task costs 20 to 60 ms before its first record, a fetch about 1 ms.  So partitions are packed into as many
tasks as there are cores, and a partition is cut only where it is larger than a fair share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from odradek.base.units import TopicPartition
from odradek.spark.checkpoint_offsets import OffsetRange, Offsets, total
from odradek.spark.source_options import Split

# Below this many offsets a second task costs more than it saves (at 1 million records a second, 20 ms).
OFFSETS_PER_TASK_MIN = 20_000


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Returns what lies between two offsets of a stream, in canonical order; empty ranges are left out.

    A partition that `start` does not know is new and begins at 0.  One whose end lies before its start was created
    again: the batch only takes the offset back to 0, and the next one reads from there.
    """
    spans = [OffsetRange(at.topic, at.partition, start.get(at, 0), end[at]) for at in sorted(end)]
    return [span for span in spans if span.size > 0]


def rate_limited(start: Offsets, latest: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Returns end offsets of a batch of about `limit` offsets, shared out by what each partition has waiting.

    Every partition with something waiting gets at least one, or a small one would starve beside large ones; so more
    than `limit` come out where there are more such partitions than that.
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
    """Packs ranges into tasks; each offset lands in exactly one task, and one task reads a partition in order."""
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
    """Cuts a range into equal pieces of about a share; a last quarter of a share gets no piece of its own."""
    count = max(1, -((share - 4 * span.size) // (4 * share)), -(-span.size // most) if most else 1)
    bounds = [span.start + span.size * index // count for index in range(count + 1)]
    for first, last in pairwise(bounds):
        yield span._replace(start=first, end=last)


def _packed(pieces: list[OffsetRange], count: int, most: int | None) -> list[list[OffsetRange]]:
    """Packs the largest piece first into the emptiest task; the order within and among tasks is canonical."""
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
