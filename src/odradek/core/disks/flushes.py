"""Flushes of logs: which are due, which are under way, and which Sync has them (group commit).

    ask ──> due ──> take: Syncs, effects ──> ended: who waits for one of their logs is told

A log is in one Sync at a time; what is written to it meanwhile goes into the next one.
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
from odradek.core.kernel.parked import ParkingLot
from odradek.core.partition.partition import Partition
from odradek.log.files.disk import DiskFailed
from odradek.log.log.durability import begin_flush
from odradek.log.log.flush import Flush

_LOG = logging.getLogger(__name__)

# One sync after another waits for a journal commit each; some at a time share it.  What comes while all are under way
# is gathered for the next.
SYNCS_AT_ONCE = 4
LOGS_PER_SYNC = 500  # To begin it, and to hear of its end, is two milliseconds each.


class Synced(NamedTuple):
    """The end of a Sync: what each log's flush covered, or why its disk failed."""

    flushes: Mapping[TopicPartition, Flush | DiskFailed]


class Sync(NamedTuple):
    """An effect: make these logs durable; who waits for one of them stays parked until `Broker.synced`."""

    flushes: Mapping[TopicPartition, Flush]

    @property
    def is_instant(self) -> bool:
        """True if `run` has no disk to wait for."""
        return all(flush.is_instant for flush in self.flushes.values())

    def run(self) -> Synced:
        """Syncs; takes milliseconds unless it is instant, so that it is meant for a thread."""
        return Synced({name: _how_ended(flush, flush.run) for name, flush in self.flushes.items()})

    def descriptors(self) -> list[int] | None:
        """Returns the descriptors whose fdatasync does the same as `run`; None if only `run` can do it."""
        found: list[int] = []
        for flush in self.flushes.values():
            descriptors = flush.descriptors()
            if descriptors is None:
                return None
            found += descriptors
        return found

    def ended(self, errors: Sequence[int]) -> Synced:
        """Takes the result of syncs that somebody else did: an errno, or 0, for each descriptor."""
        synced, begin = {}, 0
        for name, flush in self.flushes.items():
            end = begin + flush.count
            synced[name] = _how_ended(flush, partial(flush.ended, errors[begin:end]))
            begin = end
        return Synced(synced)


def _how_ended(flush: Flush, run: Callable[[], None]) -> Flush | DiskFailed:
    try:
        run()
    except DiskFailed as failed:
        return failed
    return flush


class Flushes:
    """The flushes of one broker's logs."""

    def __init__(self, partitions: Mapping[TopicPartition, Partition], lot: ParkingLot, steps: NextSteps) -> None:
        self._partitions = partitions
        self._lot = lot
        self._steps = steps
        self._due: dict[TopicPartition, None] = {}
        self._under_way: dict[TopicPartition, Partition] = {}
        self._syncs = 0  # How many are under way.
        # What could not be begun or done since too many files are open: tried again about once a second.
        self._postponed: dict[TopicPartition, None] = {}
        self.held: set[TopicPartition] = set()  # No flush of these may begin: they are about to get another log.

    def ask(self, name: TopicPartition) -> None:
        """Has a log flushed by the next sync that may begin."""
        self._due[name] = None

    def ask_all(self, names: Iterable[TopicPartition]) -> None:
        self._due.update(dict.fromkeys(names))

    def forget(self, name: TopicPartition) -> None:
        """Begins no flush of a log that is gone."""
        self._due.pop(name, None)

    def try_again(self) -> None:
        """Has those flushed that were postponed."""
        if self._postponed:
            self._due.update(self._postponed)
            self._postponed.clear()

    def is_under_way(self, name: TopicPartition) -> bool:
        return name in self._under_way

    @property
    def are_open(self) -> bool:
        """True while something written is still to be synced, by a sync under way or one that is due."""
        return bool(self._due or self._syncs or self._postponed)

    @property
    def may_begin(self) -> bool:
        """True if `take` would find something to do."""
        return bool(self._due) and self._syncs < SYNCS_AT_ONCE

    def take(self) -> list[Sync]:
        """Shares out the logs that are due, and are in no sync, among the syncs that may still begin."""
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
        self._syncs += len(syncs)
        return syncs

    def ended(self, event: Synced, now: Moment) -> None:
        """Takes in the end of a Sync."""
        self._syncs -= 1
        for name, flush in event.flushes.items():
            flushed, partition = self._under_way.pop(name), self._partitions.get(name)
            # A topic that was deleted meanwhile may be there again, with a log that this flush is not of.
            if partition is None or partition is not flushed:
                continue
            if partition.is_online:
                if isinstance(flush, DiskFailed):
                    self._failed(name, partition, flush)
                elif partition.flushed(flush, now):
                    self._lot.happened(name)
            self._steps.moved(name, now)

    def _failed(self, name: TopicPartition, partition: Partition, failed: DiskFailed) -> None:
        if failed.is_out_of_files:
            self._postponed[name] = None
            return
        # The kernel has dropped what it could not write: nobody knows any more what is on the disk.
        _LOG.error("%s goes offline, its sync failed: %s", name, failed)
        partition.take_offline(failed)
        self._lot.happened(name)
