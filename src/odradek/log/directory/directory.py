"""A data directory (an entry of log.dirs): its lock, its identity, its partitions, its checkpoints.

    open     (shard_loading.py)
    running  make (in a thread), create, delete, begin_checkpoint, begin_reap
    close    every log flushed (begin_close: in threads) → checkpoints → clean-shutdown marker → lock released

A partition that can't be opened is in `offline` with the reason, and the others are served.  A directory that fails as
a whole has a `failure`: nothing more is read or written there before the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import Offset, TimestampMs, TopicPartition
from odradek.base.uuids import Uuid
from odradek.log.directory.checkpointing import Checkpoint, Checkpointing
from odradek.log.directory.damage_register import Damages, DamagesWrite
from odradek.log.directory.future_log import begin_with, rename_log
from odradek.log.files import log_file_names as names
from odradek.log.files.disk import Disk, DiskFailed, Lock, replace_file
from odradek.log.files.log_config import LogConfig
from odradek.log.files.probe import ROOM_BYTES, Probe
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.producers.producer_state import ProducerStateEntry
from odradek.log.recovery.missing_segments import noted_text
from odradek.log.removal.reaper import DirectoryRetirement, Reap, Reaper
from odradek.log.segment.checkpoints import write_segments, write_topic_id

# As Kafka's, but for the line's end: so the next start knows that nobody had the directory since, and misses whatever
# of a log was there and is gone.
MARKER = b'{"version":0,"brokerEpoch":-1}\n'
Open: TypeAlias = Callable[[LogConfig, TimestampMs], None]
NOBODY_ELSE: AbstractContextManager[object] = nullcontext()


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


class LogDirectory:
    """The logs of one data directory, open and locked."""

    def __init__(
        self, disk: Disk, path: str, lock: Lock | None, cluster_id: str | None, turns: AbstractContextManager[object]
    ) -> None:
        self.disk = disk
        self._lock = lock
        self.path = path
        self.cluster_id = cluster_id
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, str] = {}
        self._unopened: dict[TopicPartition, tuple[DiskFailed, Open]] = {}  # Of them, those the start had no room for.
        self._made: dict[TopicPartition, Log] = {}  # By make(), waiting for create().
        self._begun: set[TopicPartition] = set()  # Partitions that may have files, though there is no log.
        self.failure: str | None = None  # Why the whole directory is offline.
        self.problems: list[str] = []  # Worth a line in the broker's log; nothing that stops it.
        self.clean_shutdown = False
        self.is_undisturbed = False  # The last clean stop was ours, and nobody had the directory since.
        self.reaper = Reaper(disk, turns)
        self.damages = Damages(disk, path)
        self.noted: dict[TopicPartition, str] = {}  # The segments of each log at the last clean stop.
        self.checkpoints = Checkpointing(disk, path, turns, logs=self.logs, offline=self.offline, reaper=self.reaper)
        self._doubt: OSError | None = None  # Something in it failed, and nobody has looked yet what else does.
        self._probe: Probe | None = None
        self._room: Probe | None = None  # The last look for room, while a log waits for some.
        self._closings: list[Closing] = []
        self.futures: dict[TopicPartition, Log] = {}  # Copies in the making of logs in other directories.
        self.begun_futures: dict[str, TopicPartition] = {}  # Those that the last stop found, by their paths.

    @classmethod
    def broken(cls, disk: Disk, path: str, why: str) -> LogDirectory:
        """Returns a directory that could not be opened: it is not known what is in it."""
        directory = cls(disk, path, None, None, NOBODY_ELSE)
        directory.failure = why
        return directory

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

    def add(self, partition: TopicPartition, log: Log) -> None:
        log.on_recovery_point_lowered = lambda _: self.checkpoints.write_now()
        log.on_failure = self.doubt
        self.damages.watch(partition, log)
        self.logs[partition] = log
        self._begun.discard(partition)

    def had_no_room(self, partition: TopicPartition, failed: DiskFailed, again: Open) -> None:
        """Notes that a log is offline for want of room, or of a descriptor; `again` tries to open it."""
        self.offline[partition] = str(failed)
        self._unopened[partition] = failed, again
        self.await_room()

    def open_again(self, partition: TopicPartition, config: LogConfig, now_ms: TimestampMs) -> None:
        """Opens a log that the start had no room for; nothing if this is none.

        Raises DiskFailed while there is no room; it may be called again then.
        """
        if partition in self._unopened and self.has_room:
            _, again = self._unopened.pop(partition)
            del self.offline[partition]
            again(config, now_ms)
        if partition in self._unopened:
            failed, _ = self._unopened[partition]
            raise DiskFailed.of(failed, failed.filename)

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
        if self.reaper.is_retiring(self.path_of(partition)):
            self.reaper.finish(self.path_of(partition))
        if self.checkpoints.may_name(partition):
            self.checkpoints.write_now()  # Offsets of an earlier log of this name would be taken for this one's.
        log = self._made.pop(partition, None)
        if log is None or log.topic_id != topic_id:
            log = self._new(partition, topic_id, config, now_ms)
        self.add(partition, log)
        return log

    def make(self, partition: TopicPartition, topic_id: Uuid | None, config: LogConfig, now_ms: TimestampMs) -> None:
        """Makes the files of a log that create() will be asked for.  May run in any thread; raises DiskFailed.

        Six names are made for each partition: 0.4 ms on an idle file system, ten times that on a busy one.
        """
        has_log = partition in self.logs or partition in self.offline
        if not (has_log or self.reaper.is_retiring(self.path_of(partition)) or self.checkpoints.may_name(partition)):
            self._made[partition] = self._new(partition, topic_id, config, now_ms)

    def is_made(self, partition: TopicPartition) -> bool:
        return partition in self._made

    @property
    def count(self) -> int:
        """How many logs are here, or were made by make() and not created yet."""
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
        """Gives a topic id to a log without one (empty, or from before Kafka 2.8), durably, as it may have records."""
        log = self.logs[partition]
        assert log.topic_id is None, "a topic's id never changes"
        write_topic_id(self.disk, log.directory, topic_id, durable=True)
        self.disk.sync_directory(log.directory)
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
        self._unopened.pop(partition, None)
        self._made.pop(partition, None)
        self.checkpoints.forget(partition)
        if log is not None and log.compaction.cleaning is not None:
            log.compaction.cleaning.withdraw()
        self._begun.discard(partition)
        path = self.path_of(partition)
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

    def begin_checkpoint(self, high_watermarks: Mapping[TopicPartition, Offset] | None = None) -> Checkpoint | None:
        """Returns a checkpoint of what changed since the last one, to be run() in a thread; None if nothing did."""
        return self.checkpoints.begin(high_watermarks) if self.failure is None else None

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
        self.disk.make_directory(path)
        if origin.topic_id is not None:
            write_topic_id(self.disk, path, origin.topic_id)
        future = Log.open(self.disk, path, origin.config, origin.last_append_ms, start_offset=start)
        begin_with(future, producers)
        return future

    def take_in(self, partition: TopicPartition, future: Log) -> None:
        """Gives the copy of a log the partition's name, durably.  Raises DiskFailed; then the copy is of no use."""
        assert partition not in self.logs, "a log is moved from another directory"
        path = self.path_of(partition)
        if self.reaper.is_retiring(path):
            self.reaper.finish(path)
        self.logs[partition] = future
        try:
            # Offsets of an earlier log of this name would be taken for this one's, and its start must not be lost.
            if self.checkpoints.may_name(partition) or future.start_offset > future.segments[0].base_offset:
                self.checkpoints.write_now()
            rename_log(future, path)
        except DiskFailed:
            del self.logs[partition]
            raise
        future.reaper = self.reaper
        self.futures.pop(partition, None)
        self.add(partition, future)

    def let_go(self, partition: TopicPartition, now_ms: TimestampMs) -> None:
        """Deletes a log that goes on in another directory; it does not come back, not even after a power failure."""
        self.delete(partition, now_ms)
        with suppress(DiskFailed):  # It has been overtaken by the other when the next start finds both.
            self.disk.sync_directory(self.path)

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
        failed = self._doubt or self.checkpoints.failure
        if self.failure is not None or failed is None or (isinstance(failed, DiskFailed) and failed.is_full):
            return None
        self._doubt = self.checkpoints.failure = None
        self._probe = Probe(self.disk, self.path)
        return self._probe

    def await_room(self) -> None:
        """Has it looked for room again and again, until `has_room`."""
        self._room = Probe(self.disk, self.path, ROOM_BYTES)

    @property
    def has_room(self) -> bool:
        """True if the last look that `await_room` asked for has found room."""
        return self._room is not None and self._room.found_room

    def begin_room_probe(self) -> Probe | None:
        """Returns a look for room, to be run() in a thread; None if nobody waits for some."""
        return self._room if self.failure is None and not self.has_room else None

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

    # ------------------------------------------------------------------ close

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
            self.checkpoints.begin(high_watermarks)
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
        """Writes down each log's segments; of a log that could not be opened what was noted before."""
        noted = {partition: noted_text(log.segments) for partition, log in self.logs.items()}
        noted |= {partition: text for partition, text in self.noted.items() if partition in self.offline}
        write_segments(self.disk, f"{self.path}/{names.SEGMENTS}", noted)

    def abandon(self) -> None:
        """Leaves everything as it is; without the marker that is as a killed process does: the next start checks."""
        if self._lock is not None:
            self._lock.release()
