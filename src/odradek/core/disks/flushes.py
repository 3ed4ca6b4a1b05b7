"""Flushes of logs: due ones, running ones, and their distribution over Syncs (group commit).

    ask ──> due ──> take: Syncs, effects ──> ended: requests that wait for these logs are completed

A log is in one Sync at a time; later writes to it belong to the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from odradek.base.units import TopicPartition
from odradek.core.coordinators.durable import NextSteps
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import Purgatory
from odradek.core.partition.partition import Partition
from odradek.log.files.disk import DiskFailed
from odradek.log.log.durability import begin_flush
from odradek.log.log.flush import Flush

_LOG = logging.getLogger(__name__)

# Syncs in sequence wait for a journal commit each; concurrent ones share it.  Requests during all of them are gathered
# for the next.
SYNCS_AT_ONCE = 4
LOGS_PER_SYNC = 500  # Its begin and its end take 2 ms each.


class Synced(NamedTuple):
    """Result of a Sync: the completed flush of each log, or its disk failure."""

    flushes: Mapping[TopicPartition, Flush | DiskFailed]


class Sync(NamedTuple):
    """Effect: make these logs durable; their requests stay parked until its Synced."""

    flushes: Mapping[TopicPartition, Flush]

    @property
    def is_instant(self) -> bool:
        """Return whether `run` does not wait for a disk."""
        return all(flush.is_instant for flush in self.flushes.values())

    def run(self) -> Synced:
        """Sync the logs; takes milliseconds unless it is instant, so run it in a thread."""
        return Synced({name: _outcome_of(flush, flush.run) for name, flush in self.flushes.items()})

    def descriptors(self) -> list[int] | None:
        """Return the descriptors whose fdatasync equals `run`; None if only `run` can do it."""
        found: list[int] = []
        for flush in self.flushes.values():
            descriptors = flush.descriptors()
            if descriptors is None:
                return None
            found += descriptors
        return found

    def on_synced(self, errors: Sequence[int]) -> Synced:
        """Apply the results of syncs by the caller: an errno, or 0, for each descriptor."""
        synced, begin = {}, 0
        for name, flush in self.flushes.items():
            end = begin + flush.count
            synced[name] = _outcome_of(flush, partial(flush.on_synced, errors[begin:end]))
            begin = end
        assert begin == len(errors), "each descriptor has one result"
        return Synced(synced)


def _outcome_of(flush: Flush, run: Callable[[], None]) -> Flush | DiskFailed:
    try:
        run()
    except DiskFailed as failed:
        return failed
    return flush


class Flushes:
    """Flushes of one broker's logs."""

    def __init__(self, partitions: Mapping[TopicPartition, Partition], purgatory: Purgatory, steps: NextSteps) -> None:
        self._partitions = partitions
        self._purgatory = purgatory
        self._steps = steps
        self._due: dict[TopicPartition, None] = {}
        self._under_way: dict[TopicPartition, Partition] = {}
        self._syncs = 0  # The number of running syncs.
        # Flushes that failed with too many open files: retried about once a second.
        self._postponed: dict[TopicPartition, None] = {}
        self.held: set[TopicPartition] = set()  # No flush of these may begin: they are about to be replaced.

    def request_flush(self, name: TopicPartition) -> None:
        """Request a flush of a log by the next sync that may begin."""
        self._due[name] = None

    def request_flushes(self, names: Iterable[TopicPartition]) -> None:
        self._due.update(dict.fromkeys(names))

    def forget(self, name: TopicPartition) -> None:
        """Cancel the due flush of a deleted log."""
        self._due.pop(name, None)

    def try_again(self) -> None:
        """Request the postponed flushes again."""
        if self._postponed:
            self._due.update(self._postponed)
            self._postponed.clear()

    def is_under_way(self, name: TopicPartition) -> bool:
        return name in self._under_way

    @property
    def has_pending(self) -> bool:
        """Return whether a write still needs a sync, running or due."""
        return bool(self._due or self._syncs or self._postponed)

    @property
    def may_begin(self) -> bool:
        """Return whether `take_syncs` would return anything."""
        return bool(self._due) and self._syncs < SYNCS_AT_ONCE

    def take_syncs(self) -> list[Sync]:
        """Distribute the due logs without a running sync over the syncs that may still begin."""
        flushes = {}
        free = SYNCS_AT_ONCE - self._syncs
        waiting = (name for name in self._due if name not in self._under_way and name not in self.held)
        for name in list(islice(waiting, free * LOGS_PER_SYNC)):
            del self._due[name]
            partition = self._partitions.get(name)
            if partition is None or not partition.is_online:
                continue
            try:
                flushes[name] = begin_flush(partition.log)
                self._under_way[name] = partition
            except DiskFailed as failed:  # A file had to be opened for the flush.
                self._failed(name, partition, failed)
        names = list(flushes)
        syncs = [Sync({name: flushes[name] for name in names[first::free]}) for first in range(min(free, len(names)))]
        assert sum(len(sync.flushes) for sync in syncs) == len(flushes), "each flush is in one sync"
        self._syncs += len(syncs)
        assert self._syncs <= SYNCS_AT_ONCE, "a sync begins where one is free"
        return syncs

    def on_synced(self, event: Synced, now: Moment) -> None:
        """Complete a Sync."""
        self._syncs -= 1
        assert self._syncs >= 0, "a sync ends once"
        for name, flush in event.flushes.items():
            flushed, partition = self._under_way.pop(name), self._partitions.get(name)
            # A topic that was deleted during the sync may exist again, with another log.
            if partition is None or partition is not flushed:
                continue
            if partition.is_online:
                if isinstance(flush, DiskFailed):
                    self._failed(name, partition, flush)
                elif partition.flushed(flush, now):
                    self._purgatory.happened(name)
            self._steps.moved(name, now)

    def _failed(self, name: TopicPartition, partition: Partition, failed: DiskFailed) -> None:
        if failed.is_out_of_files:
            self._postponed[name] = None
            return
        # The kernel has dropped data that it failed to write: the contents of the disk are unknown.
        _LOG.error("%s is offline: flush failed: %s", name, failed)
        partition.take_offline(failed)
        self._purgatory.happened(name)
