"""A data directory (an entry of log.dirs): its lock, its identity, its partitions, its checkpoints.

    open     .lock → meta.properties → clean-shutdown marker read and removed → every partition opened
    running  make (in a thread), create, delete, begin_checkpoint, begin_reap
    close    every log flushed (begin_close: in threads) → checkpoints → clean-shutdown marker → lock released

One partition that can't be opened does not keep the others from running: it is in `offline` with the reason.  A
directory that fails as a whole has a `failure`: nothing more is read or written there before the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, Offset, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.log import names
from odradek.log.checkpoints import (
    BadCheckpoint,
    read_offsets,
    read_segments,
    write_offsets,
    write_segments,
    write_topic_id,
)
from odradek.log.config import LogConfig
from odradek.log.damages import Damages, DamagesWrite
from odradek.log.disk import Disk, DiskFailed, Lock, read_file, replace_file
from odradek.log.durability import flush_now
from odradek.log.failures import SegmentMissing
from odradek.log.log import FIRST_OFFSET, Log
from odradek.log.meta_properties import claim
from odradek.log.moving import begin_with, rename_log
from odradek.log.presence import noted_text
from odradek.log.probe import Probe
from odradek.log.producers import ProducerStateEntry
from odradek.log.reaper import DirectoryRetirement, Reap, Reaper
from odradek.log.starts import StartsWrite

Offsets = dict[TopicPartition, Offset]
Each: TypeAlias = Callable[[Callable[[Callable[[], None]], None], list[Callable[[], None]]], Iterable[None]]
_MARKER = b'{"version":0,"brokerEpoch":-1}'
_MARKER_BYTES_MAX = 4096
NOBODY_ELSE: AbstractContextManager[object] = nullcontext()


@dataclass(slots=True)
class Checkpoint:
    """One checkpoint as a value: the files to write.  run() may be called in any thread; it raises DiskFailed."""

    disk: Disk
    directory: str
    contents: dict[str, Offsets]
    turns: AbstractContextManager[object]
    is_stale: bool = field(default=False, init=False)
    has_old_starts: bool = field(default=False, init=False)  # Newer log starts were written, or will be.
    is_done: bool = field(default=False, init=False)
    failure: DiskFailed | None = field(default=None, init=False)

    def run(self) -> None:
        try:
            self._write()
        except DiskFailed as failure:
            self.failure = failure
            raise

    def _write(self) -> None:
        with self.turns:
            for name, offsets in self.contents.items():
                if self.is_stale:  # A newer checkpoint was written, or will be, while this one waited for its thread.
                    return
                if name == names.LOG_STARTS and self.has_old_starts:
                    continue
                write_offsets(self.disk, f"{self.directory}/{name}", offsets)
        self.is_done = True


@dataclass(slots=True)
class Closing:
    """One log's close, as a value: nearly all of it is waiting for syncs, and a file system does many at once.

    run() may be called in any thread, once, when nobody uses the log any more.
    """

    partition: TopicPartition
    log: Log
    now_ms: TimestampMs
    failure: str | None = field(default=None, init=False)
    is_done: bool = field(default=False, init=False)

    def run(self) -> None:
        try:
            self.log.close(self.now_ms)
        except DiskFailed as failure:
            self.failure = f"{self.partition}: {failure}"
        self.is_done = True


def make_durable_directory(disk: Disk, path: str) -> None:
    """Makes a directory, with its parents, whose name survives a power failure right after.  Raises DiskFailed."""
    for changed in disk.make_directory(path):
        disk.sync_directory(changed)


def _do(work: Callable[[], None]) -> None:
    work()


class LogDirectory:
    """The logs of one data directory, open and locked."""

    def __init__(
        self, disk: Disk, path: str, lock: Lock | None, cluster_id: str | None, turns: AbstractContextManager[object]
    ) -> None:
        self._disk = disk
        self._lock = lock
        self._turns = turns
        self.path = path
        self.cluster_id = cluster_id
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, str] = {}
        self._made: dict[TopicPartition, Log] = {}  # By make(), waiting for create().
        self._begun: set[TopicPartition] = set()  # Partitions that may have files, though there is no log.
        self.failure: str | None = None  # Why the whole directory is offline.
        self.problems: list[str] = []  # Worth a line in the broker's log; nothing that stops it.
        self.high_watermarks: Offsets = {}  # As of the last checkpoint.
        self.clean_shutdown = False
        self.reaper = Reaper(disk, turns)
        self.damages = Damages(disk, path)
        self._noted: dict[TopicPartition, str] = {}  # The segments of each log at the last clean stop.
        self._compacted: Offsets = {}  # By Kafka: how far.
        self._loaded: dict[str, Offsets] = {}  # What the checkpoints said at the start.
        self._written: dict[str, Offsets] = {}
        self._named: set[TopicPartition] = set()  # By a checkpoint on the disk, or one that may come back.
        self._last_checkpoint: Checkpoint | None = None
        self._starts: StartsWrite | None = None  # It is under way.
        self._promised: Offsets = {}  # Log starts that are on the disk, or will be, before the logs know of them.
        self._doubt: OSError | None = None  # Something in it failed, and nobody has looked yet what else does.
        self._probe: Probe | None = None
        self._closings: list[Closing] = []
        self.futures: dict[TopicPartition, Log] = {}  # Copies in the making of logs in other directories.
        self.begun_futures: dict[str, TopicPartition] = {}  # Those that the last stop found, by their paths.

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        now_ms: TimestampMs,
        *,
        broker_id: BrokerId,
        cluster_id: str | None,
        config_of: Callable[[TopicName], LogConfig],
        turns: AbstractContextManager[object] = NOBODY_ELSE,
        each: Each = map,
    ) -> LogDirectory:
        """Makes the directory if it is not there.  `turns` is a lock where checkpoints run in threads.

        `each` opens the partitions: one after the other, or some at a time in threads.
        Raises DirectoryInUse, WrongDirectory (another broker's or cluster's), DiskFailed.
        """
        path = path.rstrip("/") or "/"
        make_durable_directory(disk, path)
        lock = disk.lock(f"{path}/{names.LOCK}")
        try:
            cluster_id = claim(disk, path, now_ms, broker_id, cluster_id)
            directory = cls(disk, path, lock, cluster_id, turns)
            directory._load(now_ms, config_of, each)
        except BaseException:
            lock.release()
            raise
        return directory

    @classmethod
    def broken(cls, disk: Disk, path: str, why: str) -> LogDirectory:
        """Returns a directory that could not be opened: it is not known what is in it."""
        directory = cls(disk, path, None, None, NOBODY_ELSE)
        directory.failure = why
        return directory

    def _load(self, now_ms: TimestampMs, config_of: Callable[[TopicName], LogConfig], each: Each) -> None:
        marker = f"{self.path}/{names.CLEAN_SHUTDOWN}"
        self.clean_shutdown = read_file(self._disk, marker, _MARKER_BYTES_MAX) is not None
        self._disk.unlink(f"{self.path}/{names.UNCLEANABLE}")  # Each is tried again.
        self.problems += self.damages.load()
        recovery_points = self._read_checkpoint(names.RECOVERY_POINTS)
        starts = self._read_checkpoint(names.LOG_STARTS)
        self.high_watermarks = self._read_checkpoint(names.HIGH_WATERMARKS)
        self._read_segments()
        if self.clean_shutdown:
            self._disk.unlink(marker)
            self._disk.sync_directory(self.path)
        found: list[Callable[[], None]] = []
        for entry in self._disk.entries(self.path):
            if entry.size >= 0:
                continue
            if names.mark(entry.name) == names.DELETE:
                self.reaper.add_directory(f"{self.path}/{entry.name}", now_ms)
            future = names.partition_marked(entry.name, names.FUTURE)
            if future is not None:
                self.begun_futures[f"{self.path}/{entry.name}"] = future
            partition = names.parse_partition(entry.name)
            if partition is not None:
                config = config_of(partition.topic)
                offsets = recovery_points.get(partition, FIRST_OFFSET), starts.get(partition, FIRST_OFFSET)
                found.append(partial(self._load_partition, partition, config, now_ms, offsets))
        for _ in each(_do, found):
            pass

    def _read_checkpoint(self, name: str) -> Offsets:
        """Reads one offset checkpoint; a damaged one counts as empty: recovery scans more, logs start at a segment."""
        try:
            offsets = read_offsets(self._disk, f"{self.path}/{name}")
        except BadCheckpoint as bad:
            self.problems.append(str(bad))
            offsets = {}
        self._loaded[name] = offsets
        self._written[name] = offsets
        self._named.update(offsets)
        return dict(offsets)

    def _read_segments(self) -> None:
        """Reads the two files by which a missing segment is noticed; damage in them is noted, and nothing is missed."""
        problems = len(self.problems)
        self._compacted = self._read_checkpoint(names.CLEANER_OFFSETS)
        try:
            self._noted = read_segments(self._disk, f"{self.path}/{names.SEGMENTS}")
        except BadCheckpoint as bad:
            self.problems.append(str(bad))
        if len(self.problems) > problems:
            self._noted = {}

    def unsynced(self) -> list[TopicPartition]:
        """Returns the logs of which a crash may have left something that is not on the disk yet."""
        return [partition for partition, log in self.logs.items() if log.recovery_point < log.end_offset]

    def flush(self, partition: TopicPartition) -> None:
        """Syncs a log, in any thread, before anybody uses it; one that can't be synced is offline."""
        log = self.logs[partition]
        try:
            flush_now(log)
        except DiskFailed as failure:
            if not failure.is_full:  # Else it is tried again, by who opens it next.
                self.offline[partition] = str(failure)
                del self.logs[partition]
                self.doubt(failure)

    def _load_partition(
        self, partition: TopicPartition, config: LogConfig, now_ms: TimestampMs, offsets: tuple[Offset, Offset]
    ) -> None:
        try:
            log = Log.open(
                self._disk,
                self._path(partition),
                config,
                now_ms,
                recovery_point=offsets[0],
                clean_shutdown=self.clean_shutdown,
                start_offset=offsets[1],
                reaper=self.reaper,
                noted=self._noted.get(partition, ""),
                was_compacted=partition in self._compacted,
            )
        except (DiskFailed, SegmentMissing, BadCheckpoint) as failure:
            self.offline[partition] = str(failure)
            return
        log.compaction.cleaned_to = self._compacted.get(partition, FIRST_OFFSET)
        if log.aside is not None:
            self.problems.append(f"{partition}: {log.aside}")
        elif log.lost_bytes:
            self.problems.append(f"{partition}: {log.lost_bytes} bytes at the end were not whole and are cut off")
        if log.aside is None and log.end_offset < offsets[0]:
            text = f"the log ends at offset {log.end_offset}, and had been synced up to {offsets[0]}"
            self.problems.append(f"{partition}: {text}")
        self._add(partition, log)

    def _add(self, partition: TopicPartition, log: Log) -> None:
        log.on_recovery_point_lowered = lambda _: self.checkpoint_now()
        log.on_failure = self.doubt
        self.damages.watch(partition, log)
        self.logs[partition] = log
        self._begun.discard(partition)

    # ------------------------------------------------------------------ create, delete

    def create(self, partition: TopicPartition, topic_id: Uuid | None, config: LogConfig, now_ms: TimestampMs) -> Log:
        """Returns the partition's log; a new, empty one (perhaps made by make()) if there is none.

        An earlier log of that name that could not be renamed when it was deleted is renamed first.
        Raises Refused(KAFKA_STORAGE_ERROR), DiskFailed; it may be called again then.
        Until the first flush of the log a power failure may take all of it, the directory included.
        """
        if partition in self.logs:
            return self.logs[partition]
        if partition in self.offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is offline: {self.offline[partition]}")
        if self.reaper.is_retiring(self._path(partition)):
            self.reaper.finish(self._path(partition))
        if self._is_written(partition):
            self.checkpoint_now()  # Offsets of an earlier log of this name would be taken for this one's.
        log = self._made.pop(partition, None)
        if log is None or log.topic_id != topic_id:
            log = self._new(partition, topic_id, config, now_ms)
        self._add(partition, log)
        return log

    def make(self, partition: TopicPartition, topic_id: Uuid | None, config: LogConfig, now_ms: TimestampMs) -> None:
        """Makes the files of a log that create() will be asked for.  May run in any thread; raises DiskFailed.

        Six names are made for each partition: 0.4 ms on an idle file system, ten times that on a busy one.
        """
        has_name = partition in self.logs or partition in self.offline or self.reaper.is_retiring(self._path(partition))
        if not has_name and not self._is_written(partition):
            self._made[partition] = self._new(partition, topic_id, config, now_ms)

    def is_made(self, partition: TopicPartition) -> bool:
        return partition in self._made

    @property
    def count(self) -> int:
        """How many logs are here, or were made by make() and not created yet."""
        return len(self.logs) + len(self._made)

    def _new(self, partition: TopicPartition, topic_id: Uuid | None, config: LogConfig, now_ms: TimestampMs) -> Log:
        path = self._path(partition)
        self._begun.add(partition)
        self._disk.make_directory(path)
        if topic_id is not None:
            write_topic_id(self._disk, path, topic_id)
        return Log.open(self._disk, path, config, now_ms, reaper=self.reaper)

    def _path(self, partition: TopicPartition) -> str:
        return f"{self.path}/{partition}"

    def _is_written(self, partition: TopicPartition) -> bool:
        """True if a checkpoint may name the partition, also after a power failure."""
        return partition in self._named

    def assign_topic_id(self, partition: TopicPartition, topic_id: Uuid) -> None:
        """Gives a topic id to a log without one (empty, or from before Kafka 2.8), durably, as it may have records."""
        log = self.logs[partition]
        assert log.topic_id is None, "a topic's id never changes"
        write_topic_id(self._disk, log.directory, topic_id, durable=True)
        self._disk.sync_directory(log.directory)
        log.topic_id = topic_id

    def delete(self, partition: TopicPartition, now_ms: TimestampMs) -> None:
        """Renames the log's directory, whose files are unlinked after file.delete.delay.ms; slices stay readable.

        What the disk refuses now is done in a later round, and before a log of that name is made.
        """
        log = self.logs.get(partition)
        delay_ms = LogConfig().file_delete_delay_ms if log is None else log.config.file_delete_delay_ms
        self._remove(partition, names.DELETE, now_ms, TimestampMs(now_ms + delay_ms))

    def set_aside(self, partition: TopicPartition, now_ms: TimestampMs) -> str:
        """Renames the directory of a log that is not of the topic of that name, for good, and returns the new name.

        As in delete, what the disk refuses now is done later.
        """
        return self._remove(partition, names.STRAY, now_ms, None)

    def _remove(self, partition: TopicPartition, mark: str, now_ms: TimestampMs, unlink_ms: TimestampMs | None) -> str:
        log = self.logs.pop(partition, None)
        self.offline.pop(partition, None)
        self.high_watermarks.pop(partition, None)
        self._made.pop(partition, None)
        self._promised.pop(partition, None)
        self._compacted.pop(partition, None)
        if log is not None and log.compaction.cleaning is not None:
            log.compaction.cleaning.withdraw()
        self._begun.discard(partition)
        path = self._path(partition)
        if self.failure is not None:
            return path  # The next start finds a log that nobody has, and sets it aside.
        self.reaper.withdraw(path)
        unique = f"{partition} {None if log is None else log.topic_id!r} {now_ms}"
        name = f"{self.path}/{names.marked_partition(partition, mark, unique)}"
        self.reaper.retire_soon(DirectoryRetirement(path, name, unlink_ms))
        return name

    def has(self, partition: TopicPartition) -> bool:
        """True if there is a log of the partition, or may be files of one."""
        return partition in self.logs or partition in self.offline or partition in self._begun

    def begin_reap(self, now_ms: TimestampMs) -> Reap | None:
        """Returns the work on files whose delay is over, to be run() in a thread; None if there is none."""
        return self.reaper.begin(now_ms) if self.failure is None else None

    def begin_damages(self, now_ms: TimestampMs) -> DamagesWrite | None:
        """Returns the write of the damages that are known now, to be run() in a thread; None if nothing changed."""
        return self.damages.begin(now_ms, self.logs, self.offline) if self.failure is None else None

    # ------------------------------------------------------------------ moving logs

    def make_future(
        self,
        partition: TopicPartition,
        origin: Log,
        start: Offset,
        producers: Sequence[ProducerStateEntry],
        unique: str,
    ) -> Log:
        """Makes an empty log that is to become a copy of `origin` from `start` on.  May run in any thread.

        `producers` are those as of `start`.  Raises DiskFailed.
        """
        path = f"{self.path}/{names.marked_partition(partition, names.FUTURE, unique)}"
        self._disk.make_directory(path)
        if origin.topic_id is not None:
            write_topic_id(self._disk, path, origin.topic_id)
        future = Log.open(self._disk, path, origin.config, origin.last_append_ms, start_offset=start)
        begin_with(future, producers)
        return future

    def take_in(self, partition: TopicPartition, future: Log) -> None:
        """Gives the copy of a log the partition's name, durably.  Raises DiskFailed; then the copy is of no use."""
        assert partition not in self.logs, "a log is moved from another directory"
        path = self._path(partition)
        if self.reaper.is_retiring(path):
            self.reaper.finish(path)
        self.logs[partition] = future
        try:
            # Offsets of an earlier log of this name would be taken for this one's, and its start must not be lost.
            if self._is_written(partition) or future.start_offset > future.segments[0].base_offset:
                self.checkpoint_now()
            rename_log(future, path)
        except DiskFailed:
            del self.logs[partition]
            raise
        future.reaper = self.reaper
        self.futures.pop(partition, None)
        self._add(partition, future)

    def let_go(self, partition: TopicPartition, now_ms: TimestampMs) -> None:
        """Deletes a log that goes on in another directory; it does not come back, not even after a power failure."""
        self.delete(partition, now_ms)
        with suppress(DiskFailed):  # It has been overtaken by the other when the next start finds both.
            self._disk.sync_directory(self.path)

    def remove_soon(self, path: str, now_ms: TimestampMs) -> None:
        """Has the next round unlink a copy that is given up."""
        self.reaper.add_directory(path, now_ms)

    def drop_begun_future(self, path: str, now_ms: TimestampMs) -> None:
        """Gives up a copy that the last stop found in the making."""
        del self.begun_futures[path]
        self.remove_soon(path, now_ms)

    # ------------------------------------------------------------------ failing as a whole

    def doubt(self, failed: OSError) -> None:
        """Notes that something in the directory failed: it is to be found out whether all of it does."""
        self._doubt = failed

    def begin_probe(self) -> Probe | None:
        """Returns a look at whether the directory works, to be run() in a thread; None if nothing speaks against it."""
        checkpoint = self._last_checkpoint
        failed = self._doubt or (checkpoint.failure if checkpoint is not None else None)
        if self.failure is not None or failed is None or (isinstance(failed, DiskFailed) and failed.is_full):
            return None
        self._doubt = None
        if checkpoint is not None:
            checkpoint.failure = None
        self._probe = Probe(self._disk, self.path)
        return self._probe

    @property
    def is_found_broken(self) -> bool:
        """True if the last look failed, and the directory is not offline yet."""
        return self.failure is None and self._probe is not None and self._probe.failure is not None

    def fail(self) -> list[TopicPartition]:
        """Goes offline, after is_found_broken, and returns the logs that go with it: none of them is made elsewhere."""
        assert self._probe is not None and self._probe.failure is not None
        self.failure = str(self._probe.failure)
        names = list(self.logs)
        self.offline |= dict.fromkeys(names, self.failure)
        self.logs.clear()
        return names

    # ------------------------------------------------------------------ checkpoints

    def begin_checkpoint(self, high_watermarks: Mapping[TopicPartition, Offset] | None = None) -> Checkpoint | None:
        """Returns a checkpoint of what changed since the last one, to be run() in a thread; None if nothing did."""
        if self.failure is not None:
            return None
        if high_watermarks is not None:
            self.high_watermarks = dict(high_watermarks)
        self.high_watermarks = {p: hw for p, hw in self.high_watermarks.items() if p in self.logs}
        logs = self.logs.items()
        cleaned = {p: log.compaction.cleaned_to for p, log in logs}
        current = {
            names.RECOVERY_POINTS: {p: log.recovery_point for p, log in logs},
            names.LOG_STARTS: self._log_starts(),
            names.HIGH_WATERMARKS: dict(self.high_watermarks),
            names.CLEANER_OFFSETS: {p: to for p, to in cleaned.items() if to or p in self._compacted},
        }
        for name, offsets in current.items():  # What is known of a log that could not be opened is kept for it.
            offsets.update({p: offset for p, offset in self._loaded[name].items() if p in self.offline})
        if self._last_checkpoint is not None and not self._last_checkpoint.is_done:
            self._last_checkpoint.is_stale = True
            self._written.clear()  # It failed, or is not through yet.
        if self._starts is not None:  # It has all log starts, and these have their turn after it.
            self._written[names.LOG_STARTS] = current[names.LOG_STARTS] = self._starts.offsets
        changed = {name: offsets for name, offsets in current.items() if offsets != self._written.get(name)}
        if not changed:
            return None
        self._written |= changed
        self._named.update(*changed.values())
        self._last_checkpoint = Checkpoint(self._disk, self.path, changed, self._turns)
        return self._last_checkpoint

    def _log_starts(self) -> Offsets:
        """Returns the log starts that the names of the segments do not tell."""
        starts = {
            p: log.start_offset
            for p, log in self.logs.items()
            # What is being retired would come back in a crash, and with it what the log had before.
            if log.start_offset > log.segments[0].base_offset or self.reaper.is_retiring(log.directory)
        }
        starts.update({p: max(starts.get(p, start), start) for p, start in self._promised.items()})
        return starts

    def begin_starts(self, starts: Mapping[TopicPartition, Offset]) -> StartsWrite:
        """Returns the durable write of log starts that nobody is told before; to be run() in a thread, one at a time.

        `end_starts` takes it in, and then the logs take in the starts, before the next one begins.
        """
        assert self._starts is None, "log starts are written one after the other"
        self._promised = dict(starts)
        if self._last_checkpoint is not None:
            self._last_checkpoint.has_old_starts = True
        offsets = self._written.get(names.LOG_STARTS)
        if offsets is None:
            offsets = self._log_starts()
            offsets.update({p: start for p, start in self._loaded[names.LOG_STARTS].items() if p in self.offline})
        offsets = self._written[names.LOG_STARTS] = offsets | self._promised
        self._named.update(starts)
        self._starts = StartsWrite(self._disk, self.path, offsets, self._turns)
        return self._starts

    def end_starts(self, write: StartsWrite) -> None:
        """Takes in that a write of log starts ended, or failed."""
        if self._starts is write:
            self._starts = None
        if not write.is_done:
            self._promised.clear()
            self._written.pop(names.LOG_STARTS, None)

    def checkpoint_now(self) -> None:
        """Writes a durable checkpoint of everything; blocks.  Called before a change that must come after it."""
        if self._last_checkpoint is not None:
            self._last_checkpoint.is_stale = True
        if self._starts is not None:
            self._starts.is_stale = True
            self._starts = None
        self._written.clear()
        checkpoint = self.begin_checkpoint()
        assert checkpoint is not None, "nothing counts as written"
        checkpoint.run()
        self._disk.sync_directory(self.path)
        self._named = {partition for offsets in self._written.values() for partition in offsets}

    def begin_close(self, now_ms: TimestampMs) -> list[Closing]:
        """Returns the close of each log, which may be run in threads before close(); close() runs the others."""
        self._closings = [Closing(partition, log, now_ms) for partition, log in self.logs.items()]
        return self._closings

    def close(self, now_ms: TimestampMs, high_watermarks: Mapping[TopicPartition, Offset] | None = None) -> list[str]:
        """Stops cleanly and returns what went wrong.  If anything did there is no marker: the next start checks all."""
        if self.failure is not None:
            self.abandon()
            return [f"{self.path} is offline: {self.failure}"]
        closings = self._closings or self.begin_close(now_ms)
        for closing in closings:
            if not closing.is_done:
                closing.run()
        failures = [f"{partition}: {reason}" for partition, reason in self.offline.items()]
        failures += [closing.failure for closing in closings if closing.failure is not None]
        self.reaper.finish_all()
        try:
            self.begin_checkpoint(high_watermarks)
            self.checkpoint_now()
            self._note_segments()
            damages = self.begin_damages(now_ms)
            if damages is not None:
                damages.run()
            if not failures:
                replace_file(self._disk, f"{self.path}/{names.CLEAN_SHUTDOWN}", _MARKER)
                self._disk.sync_directory(self.path)
        except DiskFailed as failure:
            failures.append(str(failure))
        self.abandon()
        return failures

    def _note_segments(self) -> None:
        """Writes down each log's segments; of a log that could not be opened what was noted before."""
        noted = {partition: noted_text(log.segments) for partition, log in self.logs.items()}
        noted |= {partition: text for partition, text in self._noted.items() if partition in self.offline}
        write_segments(self._disk, f"{self.path}/{names.SEGMENTS}", noted)

    def abandon(self) -> None:
        """Leaves everything as it is; without the marker that is as a killed process does: the next start checks."""
        if self._lock is not None:
            self._lock.release()
