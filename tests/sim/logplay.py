"""`python -m sim.logplay SEED`, with PYTHONPATH=tests: plays the history of one log, and prints it.

A log in its data directory is written, flushed, cut and compacted, with whatever else may come between two steps of a
pass in its thread; calls to the disk fail, processes are killed and the power fails at any call.  After each restart
and each step of compaction the log is held against a plain list of what was appended (logmodel).
"""

from __future__ import annotations

import errno
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import TypeVar, cast

from odradek.base.errors import Refused
from odradek.base.limits import UNPACKED_BYTES_MAX
from odradek.base.units import (
    BrokerId,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicName,
    TopicPartition,
)
from odradek.core.cleaner import Clean
from odradek.core.partition import Partition
from odradek.log import cleaned_segments
from odradek.log.cleanable import cleanable
from odradek.log.cleaner import Cleaning, Group, Options, Uncleanable
from odradek.log.config import LogConfig
from odradek.log.directory import LogDirectory
from odradek.log.disk import DiskFailed
from odradek.log.flush import Flush
from odradek.log.log import Log
from odradek.log.reaper import Reap
from odradek.record.batch import Batch
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compaction import Rules
from odradek.record.compression import Codec
from odradek.record.markers import EndMarker, end_marker_batch
from sim.logmodel import (
    Broken,
    Model,
    Written,
    check_batches,
    check_committed,
    check_epochs,
    check_indexes,
    check_producers,
    times,
    written,
)
from sim.simdisk import SimDisk, Stopped
from support.cleaning import batches_of, committed
from support.invariants import check
from support.logs import T0

T = TypeVar("T")
ROOT, NAME = "/data", TopicPartition(TopicName("t"), 0)
DAY_MS = 86_400_000
STEPS = 70
ERRORS = (errno.EIO, errno.ENOSPC, errno.EMFILE)


class Turns:
    """The lock around renames: who waits for it in a thread lets others do something."""

    def __init__(self, play: LogPlay) -> None:
        self._play = play

    def __enter__(self) -> None:
        self._play.interleave(0.1)

    def __exit__(self, *_: object) -> None:
        pass


class LogPlay:
    """One history: a log, what it should be, and what it is that happens to it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Random(f"log {seed}")
        self.lines: list[str] = []
        self.trace = ""
        self.disk = SimDisk()
        self.disk.reorders = random.random() < 0.5
        self.disk.drops_unsynced = random.random() < 0.5
        self.now = T0
        self.config = LogConfig(
            segment_bytes=random.choice([1_500, 4_000, 60_000]),
            index_interval_bytes=random.choice([0, 200, 4096]),
            segment_index_bytes=random.choice([64, 1 << 20]),
            cleanup_compact=True,
            cleanup_delete=random.random() < 0.25,
            retention_bytes=random.choice([-1, 6_000]),
            delete_retention_ms=random.choice([0, 60, DAY_MS]),
            min_compaction_lag_ms=random.choice([0, 0, 30]),
            file_delete_delay_ms=random.choice([0, 50]),
            log_append_time=random.random() < 0.2,
            preallocate=random.random() < 0.1,
        )
        self.has_faults = random.random() < 0.5
        self.keys = random.choice([3, 10, 40])
        self.model = Model()
        self.versions: list[list[Written]] = []  # What else a power failure may leave: what was cut, or refused.
        self.safe = 0  # What is below is durable.
        self.noted_start = 0  # In a checkpoint.
        self.high_watermark = 0
        self.leader_epoch = 0
        self.cleaned_end = 0  # A pass may have gone that far.
        self.was_cut = False  # Below that.
        self.producers_seen_to = 0  # By a pass: what it keeps of a producer may be cut off.
        self.may_forget = False
        self.empty_since = -1  # Where it ended behind a hole.
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.flushes: list[Flush] = []
        self.reap: Reap | None = None
        self.cleaning: Cleaning | None = None
        self._is_in_thread = False
        self.is_stopping = False
        self.stopped_at = 0
        self.is_cutting = False  # Files are being renamed that the log does not need.
        self.directory: LogDirectory
        self.log: Log
        self.start(clean=False)

    def tell(self, event: str, detail: object = "") -> None:
        self.lines.append(f"{self.disk.calls:6} {self.now - T0:10} {event:<10} {detail}".rstrip())

    def __str__(self) -> str:
        return "\n".join(self.lines)

    # ------------------------------------------------------------------ playing

    def play(self) -> str | None:
        """Returns what was broken, if anything was."""
        limit = cleaned_segments.INT32_MAX
        try:
            cleaned_segments.INT32_MAX = self.random.choice([limit, 900])  # type: ignore[misc]
            for _ in range(STEPS):
                self.step()
            self.settle_down()
            self.check_rebuilt()
        except (AssertionError, Refused) as broken:
            self.trace = traceback.format_exc()
            return str(broken) or repr(broken)
        finally:
            cleaned_segments.INT32_MAX = limit  # type: ignore[misc]
        return None

    def step(self) -> None:
        self.now = TimestampMs(self.now + self.random.choice([0, 1, 1, 2, 10, 10, 100, DAY_MS // 4]))
        names = list(STEPS_OF)
        name = self.random.choices(names, [STEPS_OF[name] for name in names])[0]
        try:
            self.do(name)
        except Stopped:
            self.die()

    def do(self, name: str) -> None:
        disk, failures = self.disk, self.disk.failures
        try:
            getattr(self, name)()
        except DiskFailed as failed:
            self.tell("failed", f"{name}: {failed}")
            if self.disk is disk and self.disk.failures == failures:
                raise AssertionError(f"{name}: the disk has refused nothing: {failed}") from failed
        if not self._is_in_thread:
            self.glance()

    def interleave(self, share: float) -> None:
        """In a thread: something else happens on the loop."""
        if self._is_in_thread and self.random.random() < share:
            self._is_in_thread = False
            names = list(BETWEEN)
            name = self.random.choices(names, [BETWEEN[name] for name in names])[0]
            self.tell("meanwhile", name)
            try:
                self.do(name)
            finally:
                self._is_in_thread = True

    def in_thread(self, work: Callable[[], T]) -> T:
        self._is_in_thread = True
        try:
            return work()
        finally:
            self._is_in_thread = False

    def throttle(self, _: int) -> None:
        self.interleave(0.15)

    # ------------------------------------------------------------------ writing

    def append(self) -> None:
        producer = self.random.choice([-1, 0, 1, 2, 3])
        is_transactional = producer in (0, 1)
        count = self.random.randrange(1, 6)
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        raw = encode_batch(
            [self.record() for _ in range(count)],
            self.random.choice(list(Codec)),
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(self.epochs.get(producer, 0) if producer >= 0 else -1),
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        self.add(Batch.checked(memoryview(raw)))

    def record(self) -> RecordIn:
        random = self.random
        key = None if random.random() < 0.03 else b"k%d" % random.randrange(self.keys)
        value = None if random.random() < 0.2 else random.randbytes(random.randrange(60))
        headers = [("h", b"v")] if random.random() < 0.2 else []
        return key, value, headers, self.now - random.randrange(5)

    def add(self, batch: Batch) -> None:
        log, before = self.log, list(self.model.batches)
        base, gap = log.end_offset, self.random.random() < 0.04
        try:
            if gap:
                base = Offset(base + self.random.randrange(1, 30))
                batch.stamp(base, LeaderEpoch(self.leader_epoch))
                if self.config.log_append_time:
                    batch.stamp_log_append_time(self.now)
                log.append_as_follower([batch], self.now)
            else:
                log.append(batch, LeaderEpoch(self.leader_epoch), self.now)
        except (DiskFailed, Stopped):
            batch.stamp(base, LeaderEpoch(self.leader_epoch))
            self.versions.append([*before, written(batch)])  # It may come back.
            self.leader_epoch += 1  # Its epoch may be noted from there on.
            raise
        one = written(batch)
        assert one.base == base, "the next offset"
        self.model.batches.append(one)
        self.tell("append", f"{batch} of {batch.producer_id}")
        if batch.producer_id >= 0 and not batch.is_control:
            self.sequences[batch.producer_id] = (batch.last_sequence + 1) & 0x7FFFFFFF

    def end_transaction(self) -> None:
        opened = [one.id for one in self.log.producers.open_transactions()]
        producer = self.random.choice(opened) if opened else self.random.choice([0, 1])
        if self.random.random() < 0.2:
            self.epochs[producer] = self.epochs.get(producer, 0) + 1
            self.sequences[producer] = 0
        marker = EndMarker(self.random.random() < 0.5, 0)
        epoch = ProducerEpoch(self.epochs.get(producer, 0))
        self.add(end_marker_batch(marker, ProducerId(producer), epoch, self.now))

    def new_epoch(self) -> None:
        self.leader_epoch += 1

    def roll(self) -> None:
        self.log.roll(self.now)
        self.tell("roll")

    # ------------------------------------------------------------------ flushing

    def begin_flush(self) -> None:
        if len(self.flushes) < 3:
            self.flushes.append(self.log.begin_flush())
            self.tell("flush", f"begun, to {self.flushes[-1].end_offset}")

    def end_flush(self) -> None:
        if not self.flushes:
            self.begin_flush()
        if not self.flushes:
            return
        flush, log = self.flushes.pop(0), self.log
        try:
            self.in_thread(flush.run)
        except DiskFailed:
            if flush.has_failed and log is self.log:  # The broker takes it offline.
                self.tell("offline")
                self.restart(self.disk.kill(), is_whole=False)
            raise
        if log is not self.log:
            return
        log.flushed(flush, self.now)
        self.safe = max(self.safe, log.recovery_point)
        self.high_watermark = max(self.high_watermark, log.recovery_point)
        log.producers.high_watermark_advanced(Offset(self.high_watermark))
        self.tell("flushed", f"to {flush.end_offset}")
        if log.is_flushed and not self.flushes:
            self.versions.clear()

    def flush(self) -> None:
        self.begin_flush()
        while self.flushes:
            self.end_flush()

    # ------------------------------------------------------------------ cutting

    def retention(self) -> None:
        self.is_cutting = True
        try:
            count = self.log.delete_old_segments(self.now, Offset(self.high_watermark))
        finally:
            self.model.start = self.log.start_offset
        self.tell("retention", f"{count} segments, from {self.log.start_offset}")

    def delete_records(self) -> None:
        low, high = self.log.start_offset, self.high_watermark
        if low < high:
            self.is_cutting = True
            self.log.advance_start(Offset(self.random.randint(low, min(high, low + 60))))
            self.model.start = self.log.start_offset
            self.tell("trim", f"to {self.model.start}")
            self.log.delete_below_start(self.now)

    def truncate(self) -> None:
        """Not below what is visible, as a rule."""
        if self.may_drop:
            return
        low = self.high_watermark if self.random.random() < 0.85 else self.log.start_offset
        batches = self.model.batches  # Not amid a gap: the log would end there until it is opened again.
        inside = [one for before, one in pairwise(batches) if low <= one.base == before.last + 1]
        if inside:
            one = self.random.choice(inside)
            self.safe = min(self.safe, one.base)
            self.cut(Offset(self.random.randint(one.base, one.last)))

    def cut(self, offset: Offset) -> None:
        log, before = self.log, self.model.batches
        self.is_cutting = True
        if not log.truncate_to(offset, self.now):
            return
        end = log.end_offset
        self.tell("truncate", f"to {offset}, ends at {end}")
        self.versions.append(before)
        self.model.batches = [one for one in before if one.last < end]
        if [one for one in before if one.base < end <= one.last] and end > self.cleaned_end:
            raise Broken(f"a batch was cut in two at {end}")
        self.empty_since = end if end <= self.cleaned_end else -1
        self.was_cut |= end < self.high_watermark and self.cleaned_end > 0
        self.was_shortened(end)
        if self.was_cut:
            there = {batch.base_offset for batch in batches_of(log)}
            first = log.segments[0].base_offset  # What lies below may come back.
            self.model.batches = [one for one in self.model.batches if one.base in there or one.base < first]
            self.safe = min(self.safe, self.model.end(0))

    def was_shortened(self, end: int) -> None:
        self.safe, self.high_watermark = min(self.safe, end), min(self.high_watermark, end)
        self.model.start = min(self.model.start, end)
        self.noted_start = min(self.noted_start, end)
        self.was_cut |= end < self.cleaned_end
        self.may_forget |= end < self.producers_seen_to
        self.leader_epoch += 1
        self.relearn()

    def relearn(self) -> None:
        """Producers go on from what the log knows of them."""
        self.sequences.clear()
        self.epochs.clear()
        for one in self.log.producers:
            self.sequences[one.id] = (one.last_sequence + 1) & 0x7FFFFFFF
            self.epochs[one.id] = max(one.epoch, 0)

    @property
    def may_drop(self) -> bool:
        """True if a cut might be told that its sync failed: it tries again, and takes what was dropped for synced."""
        return self.disk.drops_unsynced and self.disk.is_failing

    def start_over(self) -> None:
        if self.may_drop:
            return
        start = Offset(self.log.end_offset + self.random.randrange(20))
        self.is_cutting, self.safe, self.noted_start = True, 0, 0
        self.versions.append([])
        self.log.truncate_fully(start, self.now)
        self.tell("start over", f"at {start}")
        before = self.model.batches
        self.begin_anew(start)
        if self.log.owes:
            self.versions = [before]

    def begin_anew(self, start: int) -> None:
        self.model, self.versions = Model(start=start), []
        self.safe, self.high_watermark = 0, start
        self.noted_start = min(self.noted_start, start)
        self.was_cut = False
        self.leader_epoch += 1
        self.relearn()

    def delete(self) -> None:
        """The topic is deleted, and made again."""
        if self.random.random() < 0.8:
            return
        self.tell("delete")
        self.directory.delete(NAME, self.now)
        self.flushes.clear()
        versions = [*self.versions, self.model.batches]
        self.model, self.versions, self.safe, self.noted_start = Model(), versions, 0, 0
        try:
            self.make()
        except DiskFailed:
            self.disk.mend()
            self.make()
        self.versions = versions  # Until the directory's name is synced.

    def make(self) -> None:
        self.log = self.directory.create(NAME, None, self.config, self.now)
        self.begin_anew(0)
        self.noted_start = self.cleaned_end = 0
        self.tell("made")

    # ------------------------------------------------------------------ housekeeping

    def begin_reap(self) -> None:
        if self.reap is None:
            self.reap = self.directory.begin_reap(self.now)

    def end_reap(self) -> None:
        if self.reap is None:
            self.begin_reap()
        if self.reap is not None:
            reap, self.reap = self.reap, None
            self.in_thread(reap.run)
            self.is_cutting &= self.directory.reaper.is_retiring(self.log.directory)
            self.tell("reaped", [type(one).__name__ for one in reap.done])

    def checkpoint(self) -> None:
        checkpoint = self.directory.begin_checkpoint({NAME: Offset(self.high_watermark)})
        start = self.log.start_offset
        if checkpoint is not None:
            log = self.log
            self.in_thread(checkpoint.run)
            if checkpoint.is_done and log is self.log:
                self.disk.sync_directory(ROOT)
                self.noted_start = max(self.noted_start, min(start, self.log.start_offset))
            self.tell("checkpoint", f"cleaned to {self.log.cleaned_to}, safe to {self.log.recovery_point}")

    # ------------------------------------------------------------------ compaction

    def clean(self) -> None:
        """One step of a pass, as core/cleaner takes them."""
        if self.cleaning is None:
            self.begin_pass()
            return
        cleaning, log = self.cleaning, self.log
        self.cleaning = None
        event = self.in_thread(lambda: Clean(cast(Partition, None), cleaning).run(self.throttle))
        ended = event.failure
        if ended is not None:
            self.tell("pass ended", ended or "withdrawn")
            if log.cleaning is cleaning:
                log.cleaning = None
                log.drop_cleaned(cleaning)
            if isinstance(ended, Uncleanable) and log is self.log:
                raise AssertionError(str(ended)) from ended
            if isinstance(ended, DiskFailed) and not (ended.errno == errno.ENOENT and self.has_lost(cleaning)):
                raise ended
            return
        if log is not self.log or log.cleaning is not cleaning:
            return
        self.took(cleaning, log, event.group)

    def took(self, cleaning: Cleaning, log: Log, group: Group | None) -> None:
        """What core.cleaner.LogCleaner.ended does."""
        if group is None:
            self.cleaned_end = max(self.cleaned_end, cleaning.end)
            if not cleaning.is_withdrawn:
                self.model.compacted(cleaning.end, cleaning._options.rules.now, self.config.delete_retention_ms)
            self.tell("mapped", f"to {cleaning.end}")
        elif group.segments:
            sources = [one.segment for one in group.sources]
            if not log.swap_in(sources, group.segments, self.now):
                self.tell("withdrawn", "sources went")
                cleaning.withdraw()
                log.cleaning = None
                log.drop_cleaned(cleaning)
                return
            cleaning.swapped_in()
            self.tell("swapped in", [one.base_offset for one in sources])
            self.look()
        if cleaning.is_withdrawn:
            log.cleaning = None
        elif cleaning.is_over:
            log.cleaning = None
            log.cleaned(cleaning.end)
            self.tell("cleaned", f"to {cleaning.end}, {cleaning.dropped_records} records went")
            self.look()
            self.check_compact(cleaning)
        else:
            self.cleaning = cleaning

    def check_compact(self, cleaning: Cleaning) -> None:
        """A pass leaves one record of each key, and none without."""
        trouble = self.disk.suspend()
        try:
            seen = committed(self.log, cleaning.end, 1 << 20)
        finally:
            self.disk.resume(trouble)
        counts = Counter(one.key for one in seen if one.offset < cleaning.end)
        twice = [key for key, count in counts.items() if count > 1 or key is None]
        if twice and not self.was_cut:
            raise Broken(f"{twice[0]!r} is there {counts[twice[0]]} times below {cleaning.end}")

    def has_lost(self, cleaning: Cleaning) -> bool:
        """True if the log has lost something that the pass reads."""
        there = {id(one) for one in self.log.segments}
        return any(id(one.segment) not in there for one in cleaning._sources)

    def begin_pass(self) -> None:
        log = self.log
        if self.random.random() < 0.5:
            self.roll()
            self.flush()
        if log is not self.log or log.is_swapping or log.owes or log.cleaning is not None:
            return
        found = cleanable(log, self.now, Offset(self.high_watermark))
        if found.first_uncleanable <= found.first_dirty:
            return
        rules = Rules(self.now, TimestampMs(self.now + self.config.delete_retention_ms), UNPACKED_BYTES_MAX)
        memory = self.random.choice([1_600, 1 << 20])
        options = Options(memory, self.random.choice([100, 4096]), 0.9, self.random.randbytes(16), rules)
        self.producers_seen_to = log.end_offset
        self.cleaning = log.cleaning = Cleaning(log, found, options)
        self.tell("pass", f"from {found.first_dirty} to {found.first_uncleanable}")

    def clean_all(self) -> None:
        self.clean()
        for _ in range(40):
            if self.cleaning is None:
                break
            self.clean()

    # ------------------------------------------------------------------ what happens to it

    def fail(self) -> None:
        if not self.has_faults:
            return
        disk, kind = self.disk, self.random.choice(("once", "once", "on", "sync", "full"))
        error, before = self.random.choice(ERRORS), self.random.randrange(60)
        disk.mend()
        disk.reads_fail = self.random.random() < 0.5
        if kind == "once":
            disk.fail_call(before, error)
        elif kind == "on":
            disk.fail_from(before, error)
        elif kind == "sync":
            disk.fails_to_sync = True
        else:
            disk.room = self.random.randrange(3_000)
        self.tell("disk", f"{kind} {errno.errorcode[error]} after {before}")

    def mend(self) -> None:
        self.disk.mend()

    def doom(self) -> None:
        """The process ends at one of the next calls."""
        self.disk.stop_at(self.random.randrange(120))

    def doomed_pass(self) -> None:
        """The process ends at one of the calls that put new segments in the place of others."""
        if self.random.random() < 0.5:
            self.clean()
            self.clean()
            self.disk.stop_at(self.random.randrange(80))
            self.clean_all()
        else:
            self.clean_all()
            self.disk.stop_at(self.random.randrange(30))
            self.end_reap()

    def die(self) -> None:
        """Kills the process, or fails the power; the next start may end so, too."""
        disk = self.disk
        while True:
            is_kill = self.random.random() < 0.3
            self.tell("kill" if is_kill else "power")
            disk = disk.kill() if is_kill else disk.crash(self.random)
            if self.random.random() < 0.15:
                disk.stop_at(self.random.randrange(60))
            try:
                self.restart(disk, is_whole=False)
                return
            except Stopped:
                disk = self.disk

    def stop_and_start(self) -> None:
        """A clean stop."""
        if self.reap is not None:
            self.end_reap()
        self.tell("stop")
        start, self.is_stopping = self.log.start_offset, True
        problems = self.directory.close(self.now, {NAME: Offset(self.high_watermark)})
        if problems:
            assert self.disk.failures, problems
            self.tell("unclean", problems)
            self.restart(self.disk.kill(), is_whole=False)
            return
        self.safe = self.stopped_at = self.log.end_offset
        self.noted_start = max(self.noted_start, start)
        self.restart(self.disk.kill(), is_whole=True)

    def restart(self, disk: SimDisk, *, is_whole: bool) -> None:
        calls = disk._stops_at
        disk.calls, self.disk = self.disk.calls, disk
        if calls is not None:
            disk.stop_at(calls)
        self.flushes.clear()
        self.reap = self.cleaning = None
        self._is_in_thread = False
        self.start(clean=is_whole)

    def start(self, *, clean: bool) -> None:
        self.directory = LogDirectory.open(
            self.disk,
            ROOT,
            self.now,
            broker_id=BrokerId(1),
            cluster_id=None,
            config_of=lambda _: self.config,
            turns=Turns(self),  # type: ignore[arg-type]
        )
        if self.directory.offline:
            raise Broken(f"does not open: {self.directory.offline}")
        log = self.directory.logs.get(NAME)
        if log is None:
            if self.safe:
                raise Broken("the log is gone")
            self.make()
            return
        self.log = log
        self.tell("start", f"{log.start_offset} to {log.end_offset}, cleaned to {log.cleaned_to}")
        if self.directory.clean_shutdown != clean and not self.is_stopping:
            raise Broken("a clean stop was not seen" if clean else "taken for a clean stop")
        self.is_stopping = False
        self.restarted(clean=clean)

    def restarted(self, *, clean: bool) -> None:
        log, end = self.log, self.log.end_offset
        self.safe = 0 if self.was_cut else min(self.safe, self.model.end(self.safe))
        if end < self.safe:
            raise Broken(f"ends at {end}, and was synced up to {self.safe}")
        if clean and not self.was_cut and (end, log.start_offset) != (self.stopped_at, self.noted_start):
            raise Broken(f"{log.start_offset} to {end}, was {self.noted_start} to {self.stopped_at} at a clean stop")
        if log.start_offset < self.noted_start:
            raise Broken(f"starts at {log.start_offset}, and began at {self.noted_start} in a checkpoint")
        left = {entry.name.rpartition(".")[2] for entry in self.disk.entries(f"{ROOT}/{NAME}")}
        if left & {"cleaned", "swap", "deleted", "tmp"}:
            raise Broken(f"left in the directory: {left}")
        if log.aside is not None and log.aside.end_offset < self.safe:
            raise Broken(f"set aside: {log.aside}")
        self.may_forget |= end < self.producers_seen_to
        self.match()
        self.empty_since = end
        self.high_watermark = end
        log.producers.high_watermark_advanced(end)
        self.leader_epoch += 1
        self.relearn()
        self.look()

    def match(self) -> None:
        """What the log is now is a run of what it was, or of what was cut off or refused before."""
        end, batches, first = self.log.end_offset, batches_of(self.log), None
        for version in (self.model.batches, *reversed(self.versions)):
            found = Model([one for one in version if one.last < end], self.log.start_offset)
            try:
                is_empty_last = not self.log.segments[-1].size  # Behind a hole that nobody can tell.
                if not is_empty_last and found.end(end) < min(end, self.log.start_offset):
                    raise Broken(f"the log ends at {end}, its last batch at {found.end(0)}")
                self.leave_out(found, {batch.base_offset for batch in batches})
                found.settle()
                check_batches(found, batches, end)
            except Broken as broken:
                self.tell("no version", broken)
                first = first or broken
                continue
            self.was_cut |= self.disk.reorders and self.is_cutting
            self.model, self.versions, self.is_cutting = found, [], False
            self.safe = end if self.log.recovery_point == end else min(self.safe, end)
            return
        raise first or Broken("no version")

    def leave_out(self, found: Model, there: set[Offset]) -> None:
        """Whole segments that were not synced may be missing: a compacted log has holes by right."""
        bases = [segment.base_offset for segment in self.log.segments]
        hole: list[Written] = []
        for one in [*found.batches, None]:
            base = self.log.end_offset if one is None else one.base
            if one is not None and one.base not in there:
                if one.base >= self.safe:
                    hole.append(one)
                if self.disk.reorders and self.is_cutting and one.last >= self.log.start_offset:
                    found.batches.remove(one)  # A cut relies on the journal's order.
                continue
            if hole and any(hole[-1].last < begin <= base for begin in bases):
                self.may_forget = True
                found.batches = [other for other in found.batches if other not in hole]
            hole = []

    # ------------------------------------------------------------------ what always holds

    def glance(self) -> None:
        log, model = self.log, self.model
        if log.end_offset not in (model.end(log.end_offset), self.empty_since):
            raise Broken(f"ends at {log.end_offset}, its last batch at {model.end(-1)}")
        if log.start_offset != model.start:
            raise Broken(f"starts at {log.start_offset}, not at {model.start}")
        if not log.cleaned_to <= self.cleaned_end:
            raise Broken(f"cleaned to {log.cleaned_to}, no pass went beyond {self.cleaned_end}")

    def look(self) -> None:
        """A thorough look, which reads all; the disk lets it."""
        trouble = self.disk.suspend()
        try:
            log, model = self.log, self.model
            model.settle()
            if not self.was_cut:
                check(log)
            batches = batches_of(log)
            check_batches(model, batches, log.end_offset)
            check_indexes(log, batches)
            check_epochs(log, batches)
            stable = min(log.producers.first_unstable, self.high_watermark)
            if not self.was_cut:
                self.check_stable(stable)
                if not self.may_forget:
                    check_producers(model.producers(), log)
                check_committed(
                    model,
                    committed(log, Offset(stable), self.random.choice([1, 700, 1 << 20])),
                    stable,
                    was_cut=self.was_cut,
                )
        finally:
            self.disk.resume(trouble)

    def check_stable(self, stable: int) -> None:
        unstable = self.model.first_open(1 << 62)
        if stable > unstable:
            raise Broken(f"stable up to {stable}, where a transaction is open since {unstable}")

    def settle_down(self) -> None:
        """At the end all is mended, the log is compacted once more, and everybody sees all of it."""
        self.disk.mend()
        self.disk.stop_at(None)
        with suppress(DiskFailed):
            self.log.settle()
        if self.log.owes or any(flush.has_failed for flush in self.log._flushing):
            self.restart(self.disk.kill(), is_whole=False)
        for _ in range(4):
            self.now = TimestampMs(self.now + 10 * DAY_MS)
            self.end_reap()
            self.log.roll(self.now)
            self.flush()
            self.clean_all()
        self.look()

    def check_rebuilt(self) -> None:
        """Without its indexes and snapshots the log is the same."""
        self.end_reap()
        log, disk = self.log, SimDisk()
        disk.make_directory(f"{ROOT}/{NAME}")
        for name, node in self.disk.folders[f"{ROOT}/{NAME}"].live.items():
            if name.endswith((".log", "checkpoint")) and node is not None:
                disk.create(f"{ROOT}/{NAME}/{name}").write(0, bytes(node.live))
        again = Log.open(disk, log.directory, self.config, self.now, start_offset=log.start_offset)
        ends = log.end_offset, self.model.end(-1)
        if not self.was_cut and (again.start_offset != log.start_offset or again.end_offset not in ends):
            raise Broken(f"rebuilt from {again.start_offset} to {again.end_offset}")
        batches = batches_of(again)
        check_indexes(again, batches)
        if not (self.was_cut or self.may_forget):
            self.check_known(log.segments[0].base_offset, again)
        expected = list(times(batches, log.start_offset))
        for _ in range(0 if self.was_cut else 5):
            self.look_up(log, again, expected)

    def check_known(self, since: int, again: Log) -> None:
        """Of a producer whose last records went with the log's start a marker alone may be left, or nothing."""
        known, rest = self.model.producers(), self.model.producers(since)
        lasts = {producer: one.last for producer, one in known.items()}
        check_producers({one: rest[one] for one in rest if lasts[one] == rest[one].last}, again)

    def look_up(self, log: Log, again: Log, expected: list[tuple[int, int]]) -> None:
        wanted = TimestampMs(self.random.choice(expected)[0] + self.random.randrange(2)) if expected else self.now
        first = next((one for one in expected if one[0] >= wanted), None)
        for one in (log, again):
            found = one.lookup_timestamp(wanted)
            if (found and (found.timestamp, found.offset)) != first:
                raise Broken(f"{wanted} is found at {found}, is at {first}")
        if log.start_offset < log.end_offset:
            offset = Offset(self.random.randrange(log.start_offset, log.end_offset))
            read = [one.read(offset, 1, log.end_offset).read() for one in (log, again)]
            if read[0] != read[1]:
                raise Broken(f"reads from {offset} differ")


STEPS_OF = {
    "append": 40.0,
    "end_transaction": 8,
    "new_epoch": 1,
    "roll": 3,
    "begin_flush": 2,
    "end_flush": 3,
    "flush": 3,
    "retention": 1,
    "delete_records": 1,
    "truncate": 1.5,
    "start_over": 0.2,
    "delete": 0.5,
    "begin_reap": 1,
    "end_reap": 3,
    "checkpoint": 2,
    "clean": 8,
    "clean_all": 3,
    "fail": 1,
    "mend": 1,
    "doom": 1,
    "doomed_pass": 1,
    "stop_and_start": 1,
}
BETWEEN = {
    "append": 6.0,
    "end_transaction": 2,
    "roll": 2,
    "begin_flush": 1,
    "retention": 1,
    "delete_records": 1,
    "truncate": 1,
    "start_over": 0.2,
    "delete": 0.5,
    "checkpoint": 1,
}


def failure(play: LogPlay, found: str) -> str:
    """What an assertion says: the seed first, and how to see what happened."""
    return f"seed {play.seed}: {found}\nThe history: PYTHONPATH=tests .venv/bin/python -m sim.logplay {play.seed}"


def main(seeds: list[int]) -> None:
    for seed in seeds:
        play = LogPlay(seed)
        found = play.play()
        if len(seeds) == 1:
            print(play, play.trace, sep="\n")
        if found:
            print(failure(play, found))


if __name__ == "__main__":
    first, *last = [int(text) for text in sys.argv[1:]]
    main(list(range(first, last[0])) if last else [first])
