"""Log cleaner: chooses compacted logs, runs their passes step by step, and handles the results.

    schedule_passes ──> the dirtiest log ──> Clean, an effect ──> on_cleaned ──> Clean again, until the pass is over
                                                   a thread builds the map, then cleans one group of segments at a time

Requested compactions (core/cleaner/compaction_queue.py) have precedence over dirty logs (core/cleaner/dirty_logs.py).
A log that cannot be cleaned is set aside (core/cleaner/uncleanable_logs.py) and reported; the others continue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicPartition
from odradek.core.cleaner.cleaning_steps import Clean, Cleaned, CleanerStats, cleaning_options
from odradek.core.cleaner.compaction_queue import Compactions
from odradek.core.cleaner.compaction_request import Compaction
from odradek.core.cleaner.dirty_logs import DirtyLogs
from odradek.core.cleaner.uncleanable_logs import UncleanableLogs
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.disks.flushes import Flushes
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import Purgatory
from odradek.core.partition.log_starts import LogStarts
from odradek.core.partition.partition import Partition
from odradek.log.compaction.cleanable import cleanable
from odradek.log.compaction.cleaner import Cleaning, CleaningAborted, Uncleanable
from odradek.log.compaction.replacement import drop_cleaned, may_be_cleaned, swap_in
from odradek.log.files.disk import DiskFailed
from odradek.log.files.disk_failures import LogDamaged

_LOG = logging.getLogger(__name__)

Partitions = Mapping[TopicPartition, Partition]


class LogCleaner:
    """Running passes, and the choice of the next logs."""

    def __init__(
        self,
        configs: BrokerConfigs,
        seed: Callable[[], bytes],
        purgatory: Purgatory,
        log_starts: LogStarts,
        flushes: Flushes,
    ) -> None:
        """Create a cleaner without running passes.

        `configs` is read on each use, as most keys of the cleaner may be altered; `seed` returns 16 bytes.
        """
        self._configs = configs
        self._seed = seed
        self._running: dict[TopicPartition, Clean] = {}
        self._steps: list[Clean] = []  # Not taken by the shell yet.
        self.set_aside = UncleanableLogs()
        self._requested = Compactions(purgatory, flushes, self._failed)  # To be cleaned whatever their ratio.
        self._dirty = DirtyLogs(configs, log_starts, self.set_aside, self._running, self._failed)
        self._stats = CleanerStats()
        self._is_stopped = False

    def take_cleans(self) -> list[Clean]:
        steps, self._steps = self._steps, []
        return steps

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    @property
    def stats(self) -> CleanerStats:
        return self._stats._replace(max_dirty_ratio=self._dirty.max_ratio)

    def request_compaction(self, partition: Partition) -> Compaction:
        """Request the compaction of a log up to its current end, also if it was set aside.

        `advance_compactions` or the next round begins it.
        """
        self.set_aside.try_again(partition)
        return self._requested.request_compaction(partition)

    def on_synced(self, names: Collection[TopicPartition], now: Moment) -> None:
        """Advance requested compactions that waited for syncs of these logs."""
        if self._requested:
            self._requested.on_synced(names)
            self.advance_compactions(now)

    @property
    def awaits_rename(self) -> bool:
        """Return whether a requested compaction waits for the reaper to rename files."""
        return self._requested.awaits_rename

    def on_renamed(self, now: Moment) -> None:
        """Advance requested compactions that waited for the reaper."""
        self._requested.on_renamed()
        self.advance_compactions(now)

    def advance_compactions(self, now: Moment) -> None:
        """Take the next steps of requested compactions, and begin passes as far as threads are free."""
        self._requested.advance_due(now)
        while self._begin_next(now):
            pass

    def search_soon(self) -> None:
        """Search for dirty logs in the next round: a relevant configuration was altered."""
        self._dirty.search_soon()

    def stop(self) -> None:
        """End all passes and begin no others."""
        self._is_stopped = True
        self._steps.clear()
        for step in self._running.values():
            step.cleaning.withdraw()

    # ------------------------------------------------------------------ choosing

    def schedule_passes(self, now: Moment, partitions: Partitions) -> Iterator[None]:
        """Begin passes if a log is dirty and a thread is free; called once a second, in short steps."""
        self._withdraw_lost(partitions)
        self.set_aside.forget_removed(partitions)
        yield from self._requested.advance_all(now, partitions)
        if self._configs.bool("log.cleaner.enable") and self._has_free_thread:
            yield from self._dirty.find_dirty_logs(now, partitions)
        while self._begin_next(now):
            yield

    @property
    def _has_free_thread(self) -> bool:
        threads = max(self._configs.int("log.cleaner.threads"), 1 if self._requested else 0)
        return len(self._running) < threads and not self._is_stopped

    def _withdraw_lost(self, partitions: Partitions) -> None:
        for name, step in self._running.items():
            partition = step.partition
            is_present = partitions.get(name) is partition and partition.is_online
            if not is_present or partition.log.compaction.cleaning is not step.cleaning:
                step.cleaning.withdraw()

    def _begin_next(self, now: Moment) -> bool:
        """Begin a pass if one is due and a thread is free; return whether one began."""
        if not self._has_free_thread:
            return False
        partition = self._requested.next() or self._dirty.next()
        if partition is None:
            return False
        self._begin(partition, now)
        return True

    def _begin(self, partition: Partition, now: Moment) -> None:
        if partition in self.set_aside:
            return  # It was in both queues.
        if partition.topic_partition in self._running:
            return  # A thread may still write files for a deleted partition of this name; a later round tries again.
        try:
            log = partition.log
            to_clean = cleanable(log, now.wall, partition.positions.high_watermark)
        except (DiskFailed, Refused):
            return
        end = self._requested.end_for(partition)
        if end is not None:  # Later writes do not extend it.
            to_clean = to_clean._replace(first_uncleanable=min(to_clean.first_uncleanable, end))
        if not may_be_cleaned(log) or to_clean.first_uncleanable <= to_clean.first_dirty:
            return  # Files are not renamed yet, or not truncated to the end of the log.
        assert log.compaction.cleaning is None, "a log has one running pass"
        options = cleaning_options(self._configs, log.config, self._seed(), now.wall)
        cleaning = log.compaction.cleaning = Cleaning(log, to_clean, options)
        self._start_step(Clean(partition, cleaning))

    def _start_step(self, step: Clean) -> None:
        assert step.partition.topic_partition not in self._running, "a log has one running pass"
        self._running[step.partition.topic_partition] = step
        self._steps.append(step)

    # ------------------------------------------------------------------ results

    def on_cleaned(self, event: Cleaned, now: Moment) -> None:
        """Complete a step: swap the group's segments into the log, and continue its pass or begin the next."""
        self._complete_step(event, now)
        if event.step.partition.topic_partition not in self._running:
            self._requested.on_log_released(event.step.partition)
        self.advance_compactions(now)

    def _complete_step(self, event: Cleaned, now: Moment) -> None:
        step = event.step
        partition, cleaning = step.partition, step.cleaning
        assert self._running[partition.topic_partition] is step, "a step ends once, before the next one begins"
        del self._running[partition.topic_partition]
        try:
            log = partition.log
        except Refused:
            return  # It is offline, or was deleted.
        if log.compaction.cleaning is not cleaning:
            return  # The partition has another log by now.
        # If the log was truncated during the step, other bytes may be where the step has failed.
        is_void = not self._swap_in(event, now) if event.failure is None else cleaning.is_withdrawn
        if is_void:
            event = event._replace(failure=CleaningAborted())
        if event.failure is not None:
            log.compaction.cleaning = None
            drop_cleaned(log, cleaning)
            if not isinstance(event.failure, CleaningAborted):
                self._failed(partition, event.failure, now)
        elif self._is_stopped or cleaning.is_withdrawn:
            log.compaction.cleaning = None
        elif not cleaning.is_over:
            self._start_step(step)
        else:
            log.compaction.cleaning = None
            assert cleaning.end <= log.end_offset, "a truncation withdraws the pass"
            log.compaction.cleaned(cleaning.end)
            self._stats = self._stats.plus(cleaning)
            self._requested.on_pass_completed(partition, cleaning.dropped_records)
            self._dirty.search_soon()
            _log_result(partition, cleaning)

    def _swap_in(self, event: Cleaned, now: Moment) -> bool:
        """Swap the new segments into the log; return False if it has lost their sources in between."""
        group, cleaning = event.group, event.step.cleaning
        if group is None or not group.segments:
            return True
        log = event.step.partition.log
        if not swap_in(log, [source.segment for source in group.sources], group.segments, now.wall):
            cleaning.withdraw()
            return False
        cleaning.swapped_in()
        return True

    def _failed(self, partition: Partition, failure: Uncleanable | DiskFailed, now: Moment) -> None:
        damage = failure.damage if isinstance(failure, Uncleanable) else failure
        if isinstance(damage, LogDamaged):
            partition.found_damage(damage)
        text = self.set_aside.failed(partition, failure, now.steady)
        if text is not None:
            _LOG.log(logging.ERROR if partition in self.set_aside else logging.WARNING, text)
        code = ErrorCode.CORRUPT_MESSAGE if isinstance(failure, Uncleanable) else ErrorCode.KAFKA_STORAGE_ERROR
        self._requested.finish_compaction(
            partition, Refused(code, f"failed to compact {partition.topic_partition}: {failure}")
        )


def _log_result(partition: Partition, cleaning: Cleaning) -> None:
    name, before, after = partition.topic_partition, cleaning.read_bytes, cleaning.kept_bytes
    text = "compacted %s up to offset %d: size reduced from %d to %d bytes, %d records removed"
    _LOG.info(text, name, cleaning.end, before, after, cleaning.dropped_records)
