"""Closing of log files when descriptors run short, those with the oldest writes first.

A log opens its files on demand, and keeps the file it writes to.  Without a shortage all stay open, as in Apache Kafka:
with ten thousand partitions, most would be closed for nothing.  Opening and using files keeps no counts or notes; only
a shortage triggers a search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from odradek.base.units import TimestampMs, TopicPartition
from odradek.core.partition.partition import Partition
from odradek.log.log.durability import has_open_files, is_flushed, release_files

COMPARED_MIN = 256  # At least this many are compared, if there are as many: takes some hundred microseconds.
_AGE = itemgetter(0)

_Found = tuple[TimestampMs, TopicPartition, Partition]


class ReleasedFiles(NamedTuple):
    """Number of logs that closed their files, and the logs that could after a sync."""

    logs: int
    to_sync: Sequence[TopicPartition]


class OpenFiles:
    """Open files of a broker's partitions."""

    def __init__(self, partitions: Mapping[TopicPartition, Partition]) -> None:
        self._partitions = partitions
        self._next = 0  # The first partition of the next search, so that each has its turn.

    def release(self, count: int, below: int) -> ReleasedFiles:
        """Close the files of up to `count` logs with an open descriptor below `below`."""
        flushed: list[_Found] = []
        unflushed: list[_Found] = []
        for compared, (name, partition) in enumerate(self._from_next()):
            if compared >= COMPARED_MIN and len(flushed) >= 2 * count:
                self._next += compared
                break
            if partition.is_online and has_open_files(partition.log, below):
                found = partition.log.last_append_ms, name, partition
                (flushed if is_flushed(partition.log) else unflushed).append(found)
        oldest = sorted(flushed, key=_AGE)[:count]
        for _, _, partition in oldest:
            release_files(partition.log)
        missing = count - len(oldest)
        return ReleasedFiles(len(oldest), [name for _, name, _ in sorted(unflushed, key=_AGE)[:missing]])

    def _from_next(self) -> Iterator[tuple[TopicPartition, Partition]]:
        names = list(self._partitions)
        self._next = self._next % len(names) if names else 0
        for name in names[self._next :] + names[: self._next]:
            yield name, self._partitions[name]
