"""Closes files of logs when descriptors run short: of those that were written to longest ago.

A log opens its files as it needs them, and keeps the one it writes to.  Without a shortage all stay open, as in Apache
Kafka; of ten thousand partitions most would be closed for nothing.  Nothing is counted or noted while files are opened
and used: whoever runs short looks around.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from odradek.base.units import TimestampMs, TopicPartition
from odradek.core.partition.partition import Partition
from odradek.log.log.durability import has_open_files, is_flushed, release_files

LOOKED_AT_MIN = 256  # So many are compared at least, if there are so many: some hundred microseconds.
_AGE = itemgetter(0)

_Found = tuple[TimestampMs, TopicPartition, Partition]


class Released(NamedTuple):
    """How many logs closed their files, and which could if they were synced."""

    logs: int
    to_sync: Sequence[TopicPartition]


class OpenFiles:
    """The open files of a broker's partitions."""

    def __init__(self, partitions: Mapping[TopicPartition, Partition]) -> None:
        self._partitions = partitions
        self._next = 0  # The partition at which the next look begins, so that each has its turn.

    def release(self, count: int, below: int) -> Released:
        """Closes the files of up to `count` logs with an open file whose descriptor is less than `below`."""
        flushed: list[_Found] = []
        unflushed: list[_Found] = []
        for looked_at, (name, partition) in enumerate(self._from_next()):
            if looked_at >= LOOKED_AT_MIN and len(flushed) >= 2 * count:
                self._next += looked_at
                break
            if partition.is_online and has_open_files(partition.log, below):
                found = partition.log.last_append_ms, name, partition
                (flushed if is_flushed(partition.log) else unflushed).append(found)
        oldest = sorted(flushed, key=_AGE)[:count]
        for _, _, partition in oldest:
            release_files(partition.log)
        missing = count - len(oldest)
        return Released(len(oldest), [name for _, name, _ in sorted(unflushed, key=_AGE)[:missing]])

    def _from_next(self) -> Iterator[tuple[TopicPartition, Partition]]:
        names = list(self._partitions)
        self._next = self._next % len(names) if names else 0
        for name in names[self._next :] + names[: self._next]:
            yield name, self._partitions[name]
