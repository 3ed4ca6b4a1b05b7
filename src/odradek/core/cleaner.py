"""The log cleaner: which compacted log is cleaned next, one step after the other, and what became of it.

    keep_house ──> the filthiest log ──> Clean, an effect ──> ended ──> Clean again, until the pass is over
                                              a thread builds the map, then cleans one group of segments at a time

As in Apache Kafka the log with the highest dirty ratio above its min.cleanable.dirty.ratio goes first, or one with
something older than max.compaction.lag.ms.  Before them goes what somebody asked for (compactions.py).  A log that
can't be cleaned is set aside and told of; the others go on.  As there, too, the retention of what is compacted is the
cleaner's, every log.cleaner.backoff.ms (compact,delete); housekeeping.py has that of all other logs.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT64_MAX, SECOND_MS, TimestampMs, TopicPartition
from odradek.core.compactions import Compaction, Compactions, check_is_compacted
from odradek.core.configs.broker import BrokerConfigs
from odradek.core.log_starts import LogStarts
from odradek.core.moment import Moment
from odradek.core.parked import ParkingLot
from odradek.core.partition import Partition
from odradek.log.checkpoints import write_uncleanable
from odradek.log.cleanable import Cleanable, cleanable, must_roll
from odradek.log.cleaner import Cleaning, Group, Options, Throttle, Uncleanable, Withdrawn
from odradek.log.config import LogConfig
from odradek.log.disk import Disk, DiskFailed
from odradek.log.names import UNCLEANABLE
from odradek.record.compaction import Rules

_LOG = logging.getLogger(__name__)

LOOKED_AT_PER_SLICE = 256
JUDGED_PER_SLICE = 16  # Of those that are compacted: as in housekeeping.py.
ATTENDED_PER_SLICE = 16  # To roll a log takes some hundred microseconds.
RETRY_MS = 60 * SECOND_MS  # After the disk was full, or no descriptor was free.
IO_BUFFERS = 2  # One for what is read, one for what is written: log.cleaner.io.buffer.size is of both.

Partitions = Mapping[TopicPartition, Partition]


class Clean(NamedTuple):
    """An effect: take the next step of a pass, in a thread; Broker.cleaned gets how it ended."""

    partition: Partition
    cleaning: Cleaning

    def run(self, throttle: Throttle) -> Cleaned:
        try:
            if not self.cleaning.is_mapped:
                self.cleaning.build_map(throttle)
                return Cleaned(self, None, None)
            return Cleaned(self, self.cleaning.clean(throttle), None)
        except (Withdrawn, Uncleanable, DiskFailed) as failure:
            # Of a log that was cut meanwhile it may have read what is not there any more.
            ended = Withdrawn() if self.cleaning.is_withdrawn else failure.with_traceback(None)
            return Cleaned(self, None, ended)


class Cleaned(NamedTuple):
    """The end of a step."""

    step: Clean
    group: Group | None
    failure: Withdrawn | Uncleanable | DiskFailed | None


class SetAsideNote(NamedTuple):
    """A chore: write down what can't be compacted in one log directory, for `odradek doctor`."""

    disk: Disk
    directory: str
    reasons: Mapping[TopicPartition, str]

    def run(self) -> None:
        write_uncleanable(self.disk, f"{self.directory}/{UNCLEANABLE}", self.reasons)


class Won(NamedTuple):
    """What all passes since the start have won, and what the last look and the last pass found.  Sizes in bytes."""

    passes: int = 0
    read_bytes: int = 0
    kept_bytes: int = 0
    dropped_records: int = 0
    max_dirty_ratio: float = 0.0
    last_recopied_ratio: float = 0.0

    def plus(self, cleaning: Cleaning) -> Won:
        return Won(
            self.passes + 1,
            self.read_bytes + cleaning.read_bytes,
            self.kept_bytes + cleaning.kept_bytes,
            self.dropped_records + cleaning.dropped_records,
            self.max_dirty_ratio,
            cleaning.kept_bytes / max(cleaning.read_bytes, 1),
        )


class LogCleaner:
    """The passes that are under way, and what is known of the logs that are compacted."""

    def __init__(
        self, configs: BrokerConfigs, seed: Callable[[], bytes], lot: ParkingLot, log_starts: LogStarts
    ) -> None:
        """`configs` are asked each time, as most of what the cleaner goes by may be altered; `seed` gives 16 bytes."""
        self._configs = configs
        self._seed = seed
        self._log_starts = log_starts
        self._running: dict[TopicPartition, Clean] = {}
        self._queue: deque[Partition] = deque()  # Found to be worth a pass, the filthiest first.
        self._asked = Compactions(lot)  # To be cleaned whatever their ratio, once synced up to their ends.
        self._asked_queue: deque[Compaction] = deque()  # Those that a pass is to begin for.
        self._steps: list[Clean] = []  # To be taken by the shell.
        self._retry: dict[Partition, int] = {}
        self._next_look = 0
        self.set_aside: dict[Partition, str] = {}  # And why.
        self.won = Won()
        self._noted: dict[str, Mapping[TopicPartition, str]] = {}  # What was set aside, by directory.
        self._disks: dict[str, Disk] = {}
        self._is_stopped = False

    def take(self) -> list[Clean]:
        steps, self._steps = self._steps, []
        return steps

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    def ask(self, partition: Partition) -> Compaction:
        """Has a log compacted up to its present end as soon as that is synced; also one that was set aside."""
        self.set_aside.pop(partition, None)
        return self._asked.ask(partition)

    def look_soon(self) -> None:
        """Has the next round look for something to clean: what it goes by was altered."""
        self._next_look = 0

    def stop(self) -> None:
        """Ends all passes; nothing is begun any more."""
        self._is_stopped = True
        self._steps.clear()
        for step in self._running.values():
            step.cleaning.withdraw()

    def notes(self) -> list[SetAsideNote]:
        """Returns what is to be written down of logs that were set aside, or are not any more."""
        noted: dict[str, dict[TopicPartition, str]] = {directory: {} for directory in self._noted}
        for partition, reason in self.set_aside.items():
            if partition.is_online:
                directory = partition.log.directory.rpartition("/")[0]
                noted.setdefault(directory, {})[partition.topic_partition] = reason
                self._disks[directory] = partition.log.disk
        changed = [name for name, reasons in noted.items() if reasons != self._noted.get(name)]
        self._noted = dict(noted)
        return [SetAsideNote(self._disks[name], name, noted[name]) for name in changed]

    # ------------------------------------------------------------------ choosing

    def keep_house(self, now: Moment, partitions: Partitions) -> Iterator[None]:
        """Begins passes, if there is something to clean and a thread is free; once a second, in short steps."""
        self._drop_lost(partitions)
        for number, compaction in enumerate(self._asked.all(), 1):
            self._attend(compaction, now)
            if not number % ATTENDED_PER_SLICE:
                yield
        is_enabled = self._configs.bool("log.cleaner.enable")
        if is_enabled and self._has_free_thread and not self._queue and now.steady >= self._next_look:
            yield from self._look(now, partitions)
        while self._begin_next(now):
            yield

    @property
    def _has_free_thread(self) -> bool:
        threads = max(self._configs.int("log.cleaner.threads"), 1 if self._asked else 0)
        return len(self._running) < threads and not self._is_stopped

    def _drop_lost(self, partitions: Partitions) -> None:
        for name, step in self._running.items():
            partition = step.partition
            is_there = partitions.get(name) is partition and partition.is_online
            if not is_there or partition.log.cleaning is not step.cleaning:
                step.cleaning.withdraw()
        for known in (self.set_aside, self._retry):
            for one in [one for one in known if partitions.get(one.topic_partition) is not one]:
                del known[one]
        for partition in [one.partition for one in self._asked.all()]:
            name = partition.topic_partition
            if partitions.get(name) is not partition:
                self._asked.end_all(partition, Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is gone"))
            elif not partition.is_online:
                refused = Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} is offline")
                self._asked.end_all(partition, refused)

    def _attend(self, compaction: Compaction, now: Moment) -> None:
        """Sets a compaction's end, queues it for its next pass, or ends it: whichever it is time for."""
        partition = compaction.partition
        if compaction.is_queued or compaction.outcome is not None or not partition.is_online:
            return
        log = partition.log
        if not log.may_be_cleaned:
            return  # A pass is under way, or its files have not got their names yet.
        try:
            check_is_compacted(partition)
            if compaction.to is None:
                log.roll(now.wall)
                compaction.begin(log, now.steady)
            seen = self._cleanable(partition, now)
        except Refused as refused:
            self._asked.end(partition, Refused(refused.code, refused.detail))
            return
        except DiskFailed as failed:
            self._failed(partition, failed, now)
            return
        assert compaction.to is not None, "it has begun"
        if min(log.synced_to, partition.positions.high_watermark) < compaction.to:
            return
        won = compaction.won(log, seen, now.steady)
        if won is not None:
            self._asked.end(partition, won)
        else:
            compaction.is_queued = True
            self._asked_queue.append(compaction)

    def _look(self, now: Moment, partitions: Partitions) -> Iterator[None]:
        found: list[tuple[float, Partition]] = []
        self.won = self.won._replace(max_dirty_ratio=0.0)
        left = LOOKED_AT_PER_SLICE
        for name in list(partitions):
            partition = partitions.get(name)
            left -= 1
            if partition is not None and partition.is_online and partition.log.config.cleanup_compact:
                left -= LOOKED_AT_PER_SLICE // JUDGED_PER_SLICE
                if self._retain(partition, now):
                    left = 0
                else:
                    ratio = self._worth(partition, now)
                    if ratio is not None:
                        found.append((ratio, partition))
            if left <= 0:
                left = LOOKED_AT_PER_SLICE
                yield
        self._queue.extend(partition for _, partition in sorted(found, key=lambda one: -one[0]))
        if not found:
            self._next_look = now.steady + self._configs.int("log.cleaner.backoff.ms")

    def _retain(self, partition: Partition, now: Moment) -> bool:
        """Begins a log's retention; returns True if something of it goes: a pass would find less soon.

        That of a log which is being cleaned, or is set aside, waits; the former would lose what its pass has done.
        """
        if partition in self.set_aside or partition.topic_partition in self._running:
            return False
        return self._log_starts.retain(partition, now)

    def _worth(self, partition: Partition, now: Moment) -> float | None:
        """Returns the log's dirty ratio if it is to be cleaned now, else None."""
        if partition in self.set_aside or partition.topic_partition in self._running:
            return None
        if self._retry.get(partition, 0) > now.steady:
            return None
        log = partition.log
        try:
            if must_roll(log, now.wall):
                log.roll(now.wall)
            seen = self._cleanable(partition, now)
        except DiskFailed as failed:
            self._failed(partition, failed, now)
            return None
        self.won = self.won._replace(max_dirty_ratio=max(self.won.max_dirty_ratio, seen.ratio))
        if seen.first_uncleanable <= seen.first_dirty:
            return None
        is_due = seen.is_overdue or seen.ratio > log.config.min_cleanable_dirty_ratio
        return seen.ratio if is_due else None

    @staticmethod
    def _cleanable(partition: Partition, now: Moment) -> Cleanable:
        return cleanable(partition.log, now.wall, partition.positions.high_watermark)

    def _begin_next(self, now: Moment) -> bool:
        """Begins a pass if one is wanted and a thread is free; returns False if not."""
        if not self._has_free_thread:
            return False
        if self._asked_queue:
            compaction = self._asked_queue.popleft()
            compaction.is_queued = False
            if compaction.outcome is None:
                self._begin(compaction.partition, now)
        elif self._queue:
            self._begin(self._queue.popleft(), now)
        else:
            return False
        return True

    def _begin(self, partition: Partition, now: Moment) -> None:
        if partition in self.set_aside:
            return  # It was in both queues.
        try:
            log = partition.log
            seen = self._cleanable(partition, now)
        except (DiskFailed, Refused):
            return
        compaction = self._asked.of(partition)
        if compaction is not None and compaction.to is not None:  # What comes in meanwhile is not to make it longer.
            seen = seen._replace(first_uncleanable=min(seen.first_uncleanable, compaction.to))
        if not log.may_be_cleaned or seen.first_uncleanable <= seen.first_dirty:
            return  # Files have not got their names yet, or are not cut where the log says.
        cleaning = log.cleaning = Cleaning(log, seen, self._options(log.config, now.wall))
        self._go_on(Clean(partition, cleaning))

    def _options(self, config: LogConfig, now: TimestampMs) -> Options:
        configs = self._configs
        threads = max(configs.int("log.cleaner.threads"), 1)
        return Options(
            memory_bytes=configs.int("log.cleaner.dedupe.buffer.size") // threads,
            io_bytes=configs.int("log.cleaner.io.buffer.size") // threads // IO_BUFFERS,
            load_factor=configs.float("log.cleaner.io.buffer.load.factor"),
            seed=self._seed(),
            rules=Rules(
                now,
                TimestampMs(min(now + config.delete_retention_ms, INT64_MAX)),
                config.max_decompressed_message_bytes,
            ),
        )

    def _go_on(self, step: Clean) -> None:
        self._running[step.partition.topic_partition] = step
        self._steps.append(step)

    # ------------------------------------------------------------------ what became of it

    def ended(self, event: Cleaned, now: Moment) -> None:
        """Takes in the end of a step: the log gets the group's segments, and the pass goes on, or the next log's."""
        self._take_in(event, now)
        while self._begin_next(now):
            pass

    def _take_in(self, event: Cleaned, now: Moment) -> None:
        step = event.step
        partition, cleaning = step.partition, step.cleaning
        del self._running[partition.topic_partition]
        try:
            log = partition.log
        except Refused:
            return  # It is offline, or was deleted.
        if log.cleaning is not cleaning:
            return  # The partition has another log by now.
        if event.failure is None and not self._take_over(event, now):
            event = event._replace(failure=Withdrawn())
        if event.failure is not None:
            log.cleaning = None
            log.drop_cleaned(cleaning)
            if not isinstance(event.failure, Withdrawn):
                self._failed(partition, event.failure, now)
        elif self._is_stopped or cleaning.is_withdrawn:
            log.cleaning = None
        elif not cleaning.is_over:
            self._go_on(step)
        else:
            log.cleaning = None
            log.cleaned(cleaning.end)
            self.won = self.won.plus(cleaning)
            compaction = self._asked.of(partition)
            if compaction is not None and compaction.to is not None:
                compaction.removed_records += cleaning.dropped_records
            self._next_look = 0
            _tell(partition, cleaning)

    def _take_over(self, event: Cleaned, now: Moment) -> bool:
        """Gives the log its new segments; returns False if it has lost their sources meanwhile."""
        group, cleaning = event.group, event.step.cleaning
        if group is None or not group.segments:
            return True
        log = event.step.partition.log
        if not log.swap_in([source.segment for source in group.sources], group.segments, now.wall):
            cleaning.withdraw()
            return False
        cleaning.swapped_in()
        return True

    def _failed(self, partition: Partition, failure: Uncleanable | DiskFailed, now: Moment) -> None:
        name = partition.topic_partition
        if isinstance(failure, DiskFailed) and (failure.is_full or failure.errno == errno.ENOENT):
            if partition not in self._retry:
                _LOG.warning("%s could not be compacted, and will be: %s", name, failure)
            self._retry[partition] = now.steady + RETRY_MS
        else:
            self.set_aside[partition] = str(failure)
            _LOG.error("%s is not compacted any more, the other logs are: %s", name, failure)
        is_damage = isinstance(failure, Uncleanable)
        code = ErrorCode.CORRUPT_MESSAGE if is_damage else ErrorCode.KAFKA_STORAGE_ERROR
        self._asked.end(partition, Refused(code, f"{name} can't be compacted: {failure}"))


def _tell(partition: Partition, cleaning: Cleaning) -> None:
    name, before, after = partition.topic_partition, cleaning.read_bytes, cleaning.kept_bytes
    text = "%s is compacted up to offset %d: %d bytes became %d, %d records went"
    _LOG.info(text, name, cleaning.end, before, after, cleaning.dropped_records)
