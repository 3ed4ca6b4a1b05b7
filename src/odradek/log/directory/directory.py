"""Data directory (an entry of log.dirs): its lock, its identity, its partitions, its checkpoints.

    open     (log/directory/directory_loading.py)
    running  make (in a thread), create, delete, begin_checkpoint, begin_reap
    close    every log flushed (begin_close: in threads) → checkpoints → clean-shutdown marker → lock released

A partition that can't be opened is in `offline` with the reason, and the others are served.  A directory that fails as
a whole has a `failure`: it is neither read nor written before the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import Offset, TimestampMs, TopicPartition
from odradek.base.uuids import Uuid
from odradek.log.directory.checkpointing import Checkpoint, Checkpointing
from odradek.log.directory.damage_register import DamageRegister, DamageRegisterWrite
from odradek.log.directory.future_log import begin_with, rename_log
from odradek.log.files import log_file_names as names
from odradek.log.files.disk import Disk, DiskFailed, Lock, replace_file
from odradek.log.files.log_config import LogConfig
from odradek.log.files.probe import ROOM_BYTES, Probe
from odradek.log.log.durability import close_log, flush_now
from odradek.log.log.log import Log
from odradek.log.producers.producer_state import ProducerStateEntry
from odradek.log.recovery.missing_segments import segments_text
from odradek.log.removal.reaper import NO_LOCK, DirectoryRetirement, DueRemovals, Reaper
from odradek.log.segment.checkpoints import write_segments, write_topic_id

# As Kafka's, except for the line end.  By it the next start knows that no other broker used the directory since, and
# reports any part of a log that is missing.
MARKER = b'{"version":0,"brokerEpoch":-1}\n'
Open: TypeAlias = Callable[[LogConfig, TimestampMs], None]


@dataclass(slots=True)
class LogClose:
    """Close of one log as a value: mostly waiting for syncs, which a file system runs concurrently.

    run() may be called once, in any thread, when the log is no longer used.
    """

    partition: TopicPartition
    log: Log
    now_ms: TimestampMs
    failure: str | None = field(default=None, init=False)
    is_done: bool = field(default=False, init=False)

    def run(self) -> None:
        assert not self.is_done, "a log is closed once"
        try:
            close_log(self.log, self.now_ms)
        except DiskFailed as failure:
            self.failure = f"{self.partition}: {failure}"
        self.is_done = True


class LogDirectory:
    """Logs of one data directory, open and locked."""

    def __init__(
        self, disk: Disk, path: str, lock: Lock | None, cluster_id: str | None, turns: AbstractContextManager[object]
    ) -> None:
        self.disk = disk
        self._lock = lock
        self.path = path
        self.cluster_id = cluster_id
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, str] = {}
        self._unopened: dict[TopicPartition, tuple[DiskFailed, Open]] = {}  # Offline logs, for lack of room at startup.
        self._made: dict[TopicPartition, Log] = {}  # By make(), waiting for create().
        self._begun: set[TopicPartition] = set()  # Partitions without a log that may have files.
        self.failure: str | None = None  # The reason if the whole directory is offline.
        self.problems: list[str] = []  # Reported in the broker's log, but not fatal.
        self.clean_shutdown = False
        self.is_undisturbed = False  # No other broker used it since Odradek's last clean shutdown.
        self.reaper = Reaper(disk, turns)
        self.damages = DamageRegister(disk, path)
        self.recorded_segments: dict[TopicPartition, str] = {}  # The segments of each log at the last clean shutdown.
        self.checkpoints = Checkpointing(disk, path, turns, logs=self.logs, offline=self.offline, reaper=self.reaper)
        self._unprobed: OSError | None = None  # A failure in the directory that no probe has investigated yet.
        self._probe: Probe | None = None
        self._room: Probe | None = None  # The last probe for room, while a log waits for some.
        self._closings: list[LogClose] = []
        self.futures: dict[TopicPartition, Log] = {}  # Incomplete copies of logs in other directories.
        self.begun_futures: dict[str, TopicPartition] = {}  # Incomplete copies left by the last stop, by path.

    @classmethod
    def broken(cls, disk: Disk, path: str, why: str) -> LogDirectory:
        """Return a directory that could not be opened; its content is unknown."""
        directory = cls(disk, path, None, None, NO_LOCK)
        directory.failure = why
        return directory

    def unsynced(self) -> list[TopicPartition]:
        """Return the logs with data that may not be on the disk after a crash."""
        return [partition for partition, log in self.logs.items() if log.recovery_point < log.end_offset]

    def flush(self, partition: TopicPartition) -> None:
        """Sync a log, in any thread, before its first use; take it offline if that fails."""
        log = self.logs[partition]
        try:
            flush_now(log)
        except DiskFailed as failure:
            if not failure.is_full:  # Otherwise the next open retries the sync.
                self.offline[partition] = str(failure)
                del self.logs[partition]
                self.note_failure(failure)

    def add(self, partition: TopicPartition, log: Log) -> None:
        assert log.directory == self.path_of(partition), "a start finds a log by the name of its directory"
        log.on_recovery_point_lowered = lambda _: self.checkpoints.write_now()
        log.on_failure = self.note_failure
        self.damages.watch(partition, log)
        self.logs[partition] = log
        self._begun.discard(partition)

    def open_later(self, partition: TopicPartition, failed: DiskFailed, open_log: Open) -> None:
        """Record that a log is offline for lack of room or of a descriptor; `open_log` tries to open it."""
        assert failed.is_full, "more room does not repair any other failure"
        self.offline[partition] = str(failed)
        self._unopened[partition] = failed, open_log
        self.await_room()

    def retry_open(self, partition: TopicPartition, config: LogConfig, now_ms: TimestampMs) -> None:
        """Open a log that the start had no room for; do nothing for other logs.

        Raise DiskFailed while there is no room; the call may then be repeated.
        """
        if partition in self._unopened and self.has_room:
            _, open_log = self._unopened.pop(partition)
            del self.offline[partition]
            open_log(config, now_ms)
        if partition in self._unopened:
            failed, _ = self._unopened[partition]
            raise DiskFailed.of(failed, failed.filename)

    # ------------------------------------------------------------------ create, delete

    def create(self, partition: TopicPartition, topic_id: Uuid | None, config: LogConfig, now_ms: TimestampMs) -> Log:
        """Return the partition's log; without one, a new empty log, perhaps created by make() before.

        Before that, rename an earlier log of that name that could not be renamed when it was deleted.  Raise
        Refused(KAFKA_STORAGE_ERROR) or DiskFailed; the call may then be repeated.  Until the first flush of the
        log, a power failure may delete all of it, including the directory.
        """
        if partition in self.logs:
            return self.logs[partition]
        if partition in self.offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} is offline: {self.offline[partition]}")
        if self.reaper.is_retiring(self.path_of(partition)):
            self.reaper.finish(self.path_of(partition))
        if self.checkpoints.may_name(partition):
            self.checkpoints.write_now()  # Otherwise offsets of an earlier log of this name would be used for this one.
        log = self._made.pop(partition, None)
        if log is None or log.topic_id != topic_id:
            log = self._new(partition, topic_id, config, now_ms)
        self.add(partition, log)
        return log

    def make(self, partition: TopicPartition, topic_id: Uuid | None, config: LogConfig, now_ms: TimestampMs) -> None:
        """Create the files of a log in advance of create(); may run in any thread, raises DiskFailed.

        This creates six names for each partition: 0.4 ms on an idle file system, ten times that on a busy one.
        """
        has_log = partition in self.logs or partition in self.offline
        if not (has_log or self.reaper.is_retiring(self.path_of(partition)) or self.checkpoints.may_name(partition)):
            self._made[partition] = self._new(partition, topic_id, config, now_ms)

    def is_made(self, partition: TopicPartition) -> bool:
        return partition in self._made

    @property
    def count(self) -> int:
        """Return the number of logs, including those from make() without create()."""
        return len(self.logs) + len(self._made)

    def _new(self, partition: TopicPartition, topic_id: Uuid | None, config: LogConfig, now_ms: TimestampMs) -> Log:
        path = self.path_of(partition)
        self._begun.add(partition)
        self.disk.make_directory(path)
        if topic_id is not None:
            write_topic_id(self.disk, path, topic_id)
        return Log.open(self.disk, path, config, now_ms, reaper=self.reaper)

    def path_of(self, partition: TopicPartition) -> str:
        return f"{self.path}/{partition}"

    def assign_topic_id(self, partition: TopicPartition, topic_id: Uuid) -> None:
        """Give a topic id to a log without one (empty, or from before Kafka 2.8).

        The write is durable, because the log may contain records.
        """
        log = self.logs[partition]
        assert log.topic_id is None, "a topic id never changes"
        write_topic_id(self.disk, log.directory, topic_id, durable=True)
        self.disk.sync_directory(log.directory)
        log.topic_id = topic_id

    def delete(self, partition: TopicPartition, now_ms: TimestampMs) -> None:
        """Rename the log's directory; its files are unlinked after file.delete.delay.ms.

        Slices stay readable.  If the disk refuses now, a later round repeats the work, at the latest before a
        new log of that name is created.
        """
        log = self.logs.get(partition)
        delay_ms = LogConfig().file_delete_delay_ms if log is None else log.config.file_delete_delay_ms
        self._remove(partition, names.DELETE, now_ms, TimestampMs(now_ms + delay_ms))

    def set_aside(self, partition: TopicPartition, now_ms: TimestampMs) -> str:
        """Rename, for good, the directory of a log of another topic with the same name; return the new name.

        If the disk refuses now, the work is done later, as in `delete`.
        """
        return self._remove(partition, names.STRAY, now_ms, None)

    def _remove(self, partition: TopicPartition, mark: str, now_ms: TimestampMs, unlink_ms: TimestampMs | None) -> str:
        log = self.logs.pop(partition, None)
        self.offline.pop(partition, None)
        self._unopened.pop(partition, None)
        self._made.pop(partition, None)
        self.checkpoints.forget(partition)
        if log is not None and log.compaction.cleaning is not None:
            log.compaction.cleaning.withdraw()
        self._begun.discard(partition)
        path = self.path_of(partition)
        if self.failure is not None:
            return path  # The next start finds a log without an owner and sets it aside.
        self.reaper.withdraw(path)
        unique = f"{partition} {None if log is None else log.topic_id!r} {now_ms}"
        name = f"{self.path}/{names.marked_partition(partition, mark, unique)}"
        self.reaper.retire_soon(DirectoryRetirement(path, name, unlink_ms))
        return name

    def has(self, partition: TopicPartition) -> bool:
        """Return whether there is a log of the partition, or there may be files of one."""
        return partition in self.logs or partition in self.offline or partition in self._begun

    def begin_reap(self, now_ms: TimestampMs) -> DueRemovals | None:
        """Return the work on files that are due, to be run() in a thread; None if there is none."""
        return self.reaper.begin_reap(now_ms) if self.failure is None else None

    def begin_checkpoint(self, high_watermarks: Mapping[TopicPartition, Offset] | None = None) -> Checkpoint | None:
        """Return a checkpoint of the changes since the last one, to be run() in a thread; None without any."""
        return self.checkpoints.begin_checkpoint(high_watermarks) if self.failure is None else None

    def begin_damages(self, now_ms: TimestampMs) -> DamageRegisterWrite | None:
        """Return the write of the current damages, to be run() in a thread; None if nothing changed."""
        return self.damages.begin_write(now_ms, self.logs, self.offline) if self.failure is None else None

    # ------------------------------------------------------------------ moving logs

    def make_future(
        self,
        partition: TopicPartition,
        origin: Log,
        start: Offset,
        producers: Sequence[ProducerStateEntry],
        unique: str,
    ) -> Log:
        """Create an empty log that will become a copy of `origin` from `start` on; may run in any thread.

        `producers` are the producers as of `start`.  Raise DiskFailed on failure.
        """
        path = f"{self.path}/{names.marked_partition(partition, names.FUTURE, unique)}"
        self.disk.make_directory(path)
        if origin.topic_id is not None:
            write_topic_id(self.disk, path, origin.topic_id)
        future = Log.open(self.disk, path, origin.config, origin.last_append_ms, start_offset=start)
        begin_with(future, producers)
        return future

    def adopt_future(self, partition: TopicPartition, future: Log) -> None:
        """Give the copy of a log the partition's name, durably.

        Raise DiskFailed on failure; then the copy is useless.
        """
        assert partition not in self.logs, "a log is moved here from another log directory"
        path = self.path_of(partition)
        if self.reaper.is_retiring(path):
            self.reaper.finish(path)
        self.logs[partition] = future
        try:
            # Otherwise offsets of an earlier log of this name would be used for this one, or its start could be lost.
            if self.checkpoints.may_name(partition) or future.start_offset > future.segments[0].base_offset:
                self.checkpoints.write_now()
            rename_log(future, path)
        except DiskFailed:
            del self.logs[partition]
            raise
        future.reaper = self.reaper
        self.futures.pop(partition, None)
        self.add(partition, future)

    def delete_moved(self, partition: TopicPartition, now_ms: TimestampMs) -> None:
        """Delete a log that moved to another directory, so that not even a power failure restores it."""
        self.delete(partition, now_ms)
        with suppress(DiskFailed):  # If the next start finds both logs, the other one is newer.
            self.disk.sync_directory(self.path)

    def remove_soon(self, path: str, now_ms: TimestampMs) -> None:
        """Delete an abandoned copy in the next round."""
        self.reaper.add_directory(path, now_ms)

    def drop_begun_future(self, path: str, now_ms: TimestampMs) -> None:
        """Abandon an incomplete copy that the last stop left."""
        del self.begun_futures[path]
        self.remove_soon(path, now_ms)

    # ------------------------------------------------------------------ failure of the directory

    def note_failure(self, failed: OSError) -> None:
        """Record a failure in the directory; a probe must then test the whole directory."""
        self._unprobed = failed

    def begin_probe(self) -> Probe | None:
        """Return a probe of the directory, to be run() in a thread; None without a failure to investigate."""
        failed = self._unprobed or self.checkpoints.failure
        if self.failure is not None or failed is None or (isinstance(failed, DiskFailed) and failed.is_full):
            return None
        self._unprobed = self.checkpoints.failure = None
        self._probe = Probe(self.disk, self.path)
        return self._probe

    def await_room(self) -> None:
        """Start probing for room, repeatedly, until `has_room`."""
        self._room = Probe(self.disk, self.path, ROOM_BYTES)

    @property
    def has_room(self) -> bool:
        """Return whether the last probe of `await_room` has found room."""
        return self._room is not None and self._room.found_room

    def begin_room_probe(self) -> Probe | None:
        """Return a probe for room, to be run() in a thread; None if no log waits for room."""
        return self._room if self.failure is None and not self.has_room else None

    @property
    def is_found_broken(self) -> bool:
        """Return whether the last probe failed and the directory is not offline yet."""
        return self.failure is None and self._probe is not None and self._probe.failure is not None

    def fail(self) -> list[TopicPartition]:
        """Go offline after is_found_broken; return the affected logs, which are not created elsewhere."""
        assert self.failure is None, "a directory fails once"
        assert self._probe is not None and self._probe.failure is not None
        self.failure = str(self._probe.failure)
        names = list(self.logs)
        self.offline |= dict.fromkeys(names, self.failure)
        self.logs.clear()
        return names

    # ------------------------------------------------------------------ close

    def begin_close(self, now_ms: TimestampMs) -> list[LogClose]:
        """Return the close of each log to run in threads before close(), which runs the others itself."""
        self._closings = [LogClose(partition, log, now_ms) for partition, log in self.logs.items()]
        return self._closings

    def close(self, now_ms: TimestampMs, high_watermarks: Mapping[TopicPartition, Offset] | None = None) -> list[str]:
        """Shut down cleanly and return the failures.

        After any failure there is no marker, so the next start checks all logs.
        """
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
            self.checkpoints.begin_checkpoint(high_watermarks)
            self.checkpoints.write_now()
            self._note_segments()
            damages = self.begin_damages(now_ms)
            if damages is not None:
                damages.run()
            if not failures:
                replace_file(self.disk, f"{self.path}/{names.CLEAN_SHUTDOWN}", MARKER)
                self.disk.sync_directory(self.path)
        except DiskFailed as failure:
            failures.append(str(failure))
        self.abandon()
        return failures

    def _note_segments(self) -> None:
        """Store each log's segments; for a log that could not be opened, keep the stored list."""
        recorded_segments = {partition: segments_text(log.segments) for partition, log in self.logs.items()}
        recorded_segments |= {
            partition: text for partition, text in self.recorded_segments.items() if partition in self.offline
        }
        write_segments(self.disk, f"{self.path}/{names.SEGMENTS}", recorded_segments)

    def abandon(self) -> None:
        """Release the lock and leave everything as it is.

        Without the marker this equals a killed process: the next start checks all logs.
        """
        if self._lock is not None:
            self._lock.release()
