"""Moves of partitions between data directories while they are served (AlterReplicaLogDirs, KIP-113).

    alter ──> a log is created in the other directory, named …-future
              its batches are copied, a slice at a time in a thread, as a follower would fetch them
              little is left: no sync of the old log begins any more; on the loop the rest is copied and synced,
              …-future gets the partition's name there, and the old log is deleted

As in Apache Kafka, the copy gets the name before the old log loses it.  A stop in between leaves two logs of the name,
and the longer one contains the other (core/partition/storage.py).  A stop before that leaves an incomplete copy: the
next start restarts the move.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import MOVED_AT_LAST_BYTES, MOVED_AT_ONCE_BYTES
from odradek.base.units import SECOND_MS, Offset, TimestampMs, TopicName, TopicPartition
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.disks.flushes import Flushes
from odradek.core.kernel.entropy import Entropy
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Timer, Timers
from odradek.core.partition.log_starts import LogStarts
from odradek.core.partition.partition import Partition
from odradek.core.partition.storage import Storage
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.future_log import producers_at_first, take_over
from odradek.log.files.disk import DiskFailed, FileSlice
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.files.log_file_names import has_future_name
from odradek.log.log.durability import flush_now, is_flushed
from odradek.log.log.log import Log
from odradek.record.record_batch import Batch, iter_batches

_LOG = logging.getLogger(__name__)

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Mover(Protocol):
    """Parts of the broker that moves use."""

    partitions: dict[TopicPartition, Partition]
    storage: Storage
    configs: BrokerConfigs
    timers: Timers
    entropy: Entropy
    log_starts: LogStarts
    flushes: Flushes

    def replica(self, topic: TopicName, index: int) -> Partition:
        """Return a partition; raise Refused if the broker does not have it."""

    def commit(self, now: Moment) -> None:
        """Write all staged batches."""

    def moved(self, name: TopicPartition, now: Moment) -> None:
        """Handle a new or missing log of a partition."""


class Move:
    """Move of one partition from one directory to another; `future` is the copy, once created."""

    def __init__(self, partition: Partition, origin: LogDirectory, target: LogDirectory) -> None:
        assert origin is not target, "a log moves to another directory"
        self.partition = partition
        self.name = partition.topic_partition
        self.origin = origin
        self.target = target
        self.future: Log | None = None
        self.cuts = 0  # Truncations of the log before the copy was begun.
        self.is_busy = False  # A thread has the copy.
        self.pause: Timer | None = None
        self.is_dropped = False

    @property
    def is_waiting(self) -> bool:
        return self.is_busy or self.pause is not None


class Copying:
    """Work of a move for a thread; ends in this value as an event."""

    def __init__(self, move: Move, run: Callable[[], Log | None], pause_ms: int = 0) -> None:
        self.move = move
        self.pause_ms = pause_ms
        self.created: Log | None = None
        self.failure: DiskFailed | Refused | None = None
        self._run = run

    def run(self) -> Copying:
        try:
            self.created = self._run()
        except (DiskFailed, Refused) as failure:
            self.failure = failure
        return self


class Moves:
    """Moves of one broker."""

    def __init__(self, broker: Mover) -> None:
        self._broker = broker
        self._storage = broker.storage
        self._moves: dict[TopicPartition, Move] = {}
        self._queued: list[Copying] = []

    def __iter__(self) -> Iterator[Move]:
        return iter(list(self._moves.values()))

    def take_copies(self) -> list[Copying]:
        """Return the work for threads."""
        taken, self._queued = self._queued, []
        return taken

    def alter(self, name: TopicPartition, target: LogDirectory | None, now: Moment) -> None:
        """Move a partition to another directory; None means one that this broker does not have.

        A move of the partition elsewhere is cancelled, and a partition that is in `target` stays there.  Raises Refused
        with the codes of Apache Kafka: INVALID_TOPIC_EXCEPTION, LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, and those of
        Broker.replica.
        """
        if not has_future_name(name):
            raise Refused(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name.topic} is too long for a future log directory"
            )
        if target is None:
            raise Refused(ErrorCode.LOG_DIR_NOT_FOUND)
        if target.failure is not None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{target.path} is offline")
        partition = self._broker.replica(name.topic, name.partition)
        present = self._moves.get(name)
        if present is not None:
            if present.target is target:
                return
            self._drop(present, now)
        origin = self._storage.directory_of(name)
        if origin is None or not partition.is_online:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name} is offline")
        if origin is target:
            return
        if not self._storage.is_whole:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, "partitions cannot be moved while a log directory is offline")
        self._begin(Move(partition, origin, target), now)

    def resume(self, now: Moment) -> None:
        """Restart the moves that the last stop interrupted.

        A copy without its original is left alone.
        """
        for target in self._storage.online:
            for path, name in list(target.begun_futures.items()):
                partition, origin = self._broker.partitions.get(name), self._storage.directory_of(name)
                if partition is not None and partition.is_online and origin is not None:
                    target.drop_begun_future(path, now.wall)
                    if origin is not target and name not in self._moves:
                        self._begin(Move(partition, origin, target), now)

    def advance_waiting_moves(self, now: Moment) -> None:
        """Advance moves that wait for their turn, or for another event."""
        for move in self:
            if not move.is_waiting or (self._is_over(move) and not move.is_busy):
                self._advance(move, now)

    def on_synced(self, names: Iterable[TopicPartition], now: Moment) -> None:
        """Advance moves that waited for the end of a sync."""
        for name in self._broker.flushes.held.intersection(names):
            if not self._moves[name].is_waiting:
                self._advance(self._moves[name], now)

    def on_copied(self, event: Copying, now: Moment) -> None:
        """Complete a Copying."""
        move = event.move
        assert move.is_busy, "a thread ends its work on a move once"
        move.is_busy = False
        if event.failure is not None and not _was_cut(move):  # Otherwise the thread may have read what was cut off.
            self._abort(move, event.failure, now)
            return
        if event.created is not None:
            move.future = event.created
            if not move.is_dropped:
                move.target.futures[move.name] = event.created
        if event.pause_ms and not move.is_dropped:
            move.pause = self._broker.timers.at(now.steady + event.pause_ms, partial(self._after_pause, move))
        else:
            self._advance(move, now)

    def _after_pause(self, move: Move, now: Moment) -> None:
        assert not move.is_dropped, "the pause of a dropped move is cancelled"
        move.pause = None
        self._advance(move, now)

    # ------------------------------------------------------------------ one move

    def _begin(self, move: Move, now: Moment) -> None:
        assert move.name not in self._moves, ("a partition has one move at a time", move.name)
        _LOG.info("moving %s from %s to %s", move.name, move.origin.path, move.target.path)
        self._moves[move.name] = move
        self._advance(move, now)

    def _advance(self, move: Move, now: Moment) -> None:
        """Take the next step of a move; called on the loop while no thread works on it."""
        assert not move.is_busy, "no thread works on the copy"
        if self._is_over(move):
            self._drop(move, now)
            return
        partition = move.partition
        try:
            if move.future is None:
                self._create_copy(move, now)
            elif _is_prefix(move, move.future, partition.log):
                self._copy(move, move.future, now)
            else:  # The next records were deleted by retention, or copied ones were truncated since.
                self._drop(move, now)
                self._begin(Move(partition, move.origin, move.target), now)
        except (DiskFailed, Refused) as failure:
            self._abort(move, failure, now)

    def _is_over(self, move: Move) -> bool:
        is_present = self._broker.partitions.get(move.name) is move.partition and move.partition.is_online
        return move.is_dropped or not is_present or move.target.failure is not None

    def _create_copy(self, move: Move, now: Moment) -> None:
        if sum(one.future is not None or one.is_busy for one in self) >= len(list(self._storage)):
            return  # As many at a time as there are directories, as in Apache Kafka.
        log = move.partition.log
        start, producers = log.segments[0].base_offset, producers_at_first(log)
        move.cuts = log.cuts
        create = partial(
            move.target.make_future,
            move.name,
            log,
            start,
            producers,
            f"{now.wall} {self._broker.entropy.random_int31()}",
        )
        self._work(Copying(move, create))

    def _copy(self, move: Move, future: Log, now: Moment) -> None:
        self._broker.commit(now)  # Staged batches have offsets in the old log.
        log, rate = move.partition.log, max(self._broker.configs.int(RATE), 1)
        end = log.end_offset
        rest = log.read_stored(future.end_offset, min(MOVED_AT_ONCE_BYTES, rate), end)
        if is_flushed(future) and rest.size <= MOVED_AT_LAST_BYTES:
            batches = _verified(rest, future.end_offset, end)
            if (batches[-1].next_offset if batches else future.end_offset) == end:
                self._end(move, future, batches, now)
                return
        copy = partial(_append_slice, future, rest, end, now.wall)
        self._work(Copying(move, copy, rest.size * SECOND_MS // rate))

    def _work(self, work: Copying) -> None:
        assert not work.move.is_waiting, "one thread works on a move"
        work.move.is_busy = True
        self._queued.append(work)

    def _end(self, move: Move, future: Log, batches: list[Batch], now: Moment) -> None:
        """Copy the rest and rename the copy, or wait until no operation on the old log is running."""
        name, partition = move.name, move.partition
        if self._broker.flushes.is_under_way(name):
            self._broker.flushes.held.add(name)
            return
        if self._broker.log_starts.has_pending:
            return  # They write to the old log's directory; the next round tries again.
        if batches:
            future.append_as_follower(batches, now.wall)
        assert not _was_cut(move), "a copy has the records of its original"
        take_over(future, partition.log)
        flush_now(future, now.wall)
        move.target.adopt_future(name, future)
        partition.replace_log(future, now)
        move.origin.delete_moved(name, now.wall)
        assert self._storage.directory_of(name) is move.target, "a partition has its log in one directory"
        self._forget(move)
        _LOG.info("moved %s to %s", name, move.target.path)
        self._broker.moved(name, now)

    def _abort(self, move: Move, failure: DiskFailed | Refused, now: Moment) -> None:
        if not move.is_dropped:
            _LOG.error(
                "failed to move %s to %s, it remains in its log directory: %s", move.name, move.target.path, failure
            )
        if isinstance(failure, DiskFailed) and (failure.takes_offline or isinstance(failure, LogDamaged)):
            if f"{failure.filename}/".startswith(f"{move.target.path}/"):
                move.target.note_failure(failure)
            else:
                move.partition.disk_failed(failure)
                self._broker.moved(move.name, now)
        self._drop(move, now)

    def _drop(self, move: Move, now: Moment) -> None:
        """Drop the copy, now or after its thread; leave it on disk if the original has failed."""
        move.is_dropped = True
        if move.pause is not None:
            move.pause.cancel()
        if self._moves.get(move.name) is move:
            self._forget(move)
        if move.future is None or move.is_busy:
            return
        if move.target.futures.get(move.name) is move.future:
            del move.target.futures[move.name]
        if move.partition.is_online or self._broker.partitions.get(move.name) is not move.partition:
            move.target.remove_soon(move.future.directory, now.wall)

    def _forget(self, move: Move) -> None:
        assert self._moves[move.name] is move, "a move ends once"
        del self._moves[move.name]
        self._broker.flushes.held.discard(move.name)


def _was_cut(move: Move) -> bool:
    """Return whether the log was truncated since the copy was begun."""
    return move.partition.is_online and move.partition.log.cuts != move.cuts


def _is_prefix(move: Move, future: Log, log: Log) -> bool:
    """Return whether the next records of the log continue the copy.

    After a truncation the log may end behind the copy again, but with other records.
    """
    return not _was_cut(move) and log.segments[0].base_offset <= future.end_offset <= log.end_offset


def _append_slice(future: Log, slice_: FileSlice, end: Offset, now: TimestampMs) -> None:
    """Copy a slice of a log that ends at `end`, in a thread.  Raises DiskFailed; Refused for an invalid batch."""
    batches = _verified(slice_, future.end_offset, end)
    if batches:
        future.append_as_follower(batches, now)
    if slice_.size < MOVED_AT_ONCE_BYTES:  # Perhaps the last.
        flush_now(future, now)


def _verified(slice_: FileSlice, start: Offset, end: Offset) -> list[Batch]:
    """Return the batches after a check, so that damage is not copied.

    No checksum covers their base offsets, which must rise from `start` to below `end`.  Raises LogDamaged; Refused.
    """
    batches, position = [], slice_.position
    try:
        for batch in iter_batches(slice_.read()):
            if not batch.is_intact:
                raise LogDamaged(slice_.file.path, position, "the batch checksum does not match")
            if not start <= batch.base_offset < batch.next_offset <= end:
                why = f"unexpected offsets {batch.base_offset} to {batch.last_offset}"
                raise LogDamaged(slice_.file.path, position, why)
            start = batch.next_offset
            batches.append(batch)
            position += batch.size
    except Refused as refused:
        if refused.code != ErrorCode.CORRUPT_MESSAGE:
            raise
        raise LogDamaged(slice_.file.path, position, "the batch is truncated") from None
    if position < slice_.position + slice_.size:
        raise LogDamaged(slice_.file.path, position, "the batch exceeds its slice")
    return batches
