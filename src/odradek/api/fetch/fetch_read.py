"""Reads of the partitions of one fetch.

The reader's parameters are in api/fetch/fetch_params.py, the results in api/fetch/fetch_response.py.
"""

from __future__ import annotations

from collections.abc import Generator

from odradek.api.fetch.fetch_params import FetchParams
from odradek.api.fetch.fetch_response import (
    Read,
    diverging_result,
    error_result,
    is_final,
    read_result,
    redirect_result,
    respond,
    size_of,
)
from odradek.api.fetch.follower_fetch import is_caught_up, record_position
from odradek.api.request.call import Call
from odradek.api.request.outcome import Wait
from odradek.api.request.sliced_response import Parts, whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.tuples import new_tuple
from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.fetch.disk_waits import ColdRead, DiskWait, Place
from odradek.core.fetch.fetch_sessions import CachedPartition, FetchContext, FetchKey, FetchSession
from odradek.core.partition.partition import Partition
from odradek.wire.messages.fetch import FetchRequest, FetchResponse, LeaderIdAndEpoch, PartitionData

CURRENT_LEADER_SINCE = 16
FUTILE_WAITS_MAX = 4  # Loaded pages may be evicted again before they are read.
_RETURNS_LEADER = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}


class FetchRead:
    """One fetch, which can be tried again when data arrives.

    It keeps nothing of the request's bytes.
    """

    def __init__(self, call: Call, body: FetchRequest, context: FetchContext) -> None:
        self.broker = call.broker
        self.params = FetchParams(call, body)
        self._names_leader = call.version >= CURRENT_LEADER_SINCE
        self.min_bytes = body.min_bytes
        self._max_bytes = min(body.max_bytes, call.broker.fetch_bytes_max)
        self._context = context
        self._now = call.now
        self._records_position = self.params.follower is not None  # Until the fetch waits.
        self._size = 0  # Bytes of records in the last read.
        self._has_final = False  # The last read has a result that waiting cannot change.
        self._cold: list[ColdRead] = []  # Reads that the last read left out.

    def partition(self, cached_partition: CachedPartition) -> Partition | None:
        """Return the partition, None if it is not on this broker."""
        name = self._name(cached_partition.key)
        if name is None:
            return None
        return self.broker.partitions.get(new_tuple(TopicPartition, (name, cached_partition.key.partition)))

    def is_served_by_any(self, partition: Partition, cached_partition: CachedPartition) -> bool:
        """Return whether one record is enough and the partition has one.

        This check is cheap, because thousands of fetches may wait for the same record.
        """
        if self.min_bytes > 1:
            return False
        return cached_partition.fetch_offset < self.params.end_offset_of(partition)

    def waits(self) -> None:
        """Note that the fetch has to wait: later reads bring no news about the follower."""
        self._records_position = False

    def available(self, cached_partition: CachedPartition) -> int | None:
        """Return how many bytes the fetch could get from one partition; None if it would get an error."""
        data = self._read(cached_partition, self.partition(cached_partition), self._max_bytes, at_least_one=True)
        return None if self._has_new_start(cached_partition, data) or is_final(data) else size_of(data)

    def _has_new_start(self, cached_partition: CachedPartition, data: PartitionData) -> bool:
        """Return whether a waiting follower does not know the log start offset yet.

        A client that deletes records waits until the follower knows it.
        """
        is_tracked = self.params.follower is not None and self._context.session is not None
        return is_tracked and data.log_start_offset != cached_partition.sent_log_start

    def _name(self, key: FetchKey) -> TopicName | None:
        return self.broker.view.names.get(Uuid(key.topic)) if isinstance(key.topic, bytes) else TopicName(key.topic)

    @property
    def is_enough(self) -> bool:
        """Return whether the last read found min_bytes or an error, or there is nothing to wait for."""
        if self._size >= self.min_bytes or self._has_final:
            return True
        return not (self._context.partitions or self._context.is_incremental)

    @property
    def session(self) -> FetchSession | None:
        """Return the session of an incremental fetch; None for a fetch that waits only for named partitions."""
        return self._context.session if self._context.is_incremental else None

    def answer(self) -> FetchResponse:
        """Answer with the data that can be read now, from at most as many partitions as one slice reads."""
        return whole(self.respond(whole(self.read(SLICE_ELEMENTS))))

    def respond(self, read: Read) -> Parts[FetchResponse]:
        if self.params.follower is not None:
            self.broker.replicated_out_bytes += sum(size_of(data) for _, data in read)
        return respond(self._context, read)

    def read_after_loading(self) -> Generator[Wait, object, Read]:
        """Read as `read` does; if data is not in memory, let a thread load it and read everything again."""
        loaded: set[Place] = set()
        futile_waits = 0
        while futile_waits < FUTILE_WAITS_MAX:
            read = yield from self.read(cached=True)
            if not self._cold:
                return read
            missing = {cold.place for cold in self._cold}
            futile_waits += missing <= loaded
            loaded |= missing
            yield DiskWait(self._cold)
        return (yield from self.read())

    def read(self, count: int | None = None, *, cached: bool = False) -> Parts[Read]:
        """Read the partitions that are due, at most `count`; with `cached`, only data in memory.

        Partitions of an incremental fetch without news are not due again before they change.
        """
        self._size, self._has_final, self._cold = 0, False, []
        left = self._max_bytes
        read = []
        for cached_partition in self._context.due(count):
            partition = self.partition(cached_partition)
            if self._skip_unchanged(cached_partition, partition):
                yield
                continue
            # The first records are returned whole, however small the limits, so that a reader makes progress (KIP-74).
            at_least_one = left == self._max_bytes
            data = None
            try:
                data = self._read(cached_partition, partition, left, at_least_one, cached)
            except ColdRead as cold:
                self._cold.append(cold)
            if data is None:
                yield  # Not in the except clause: compiled, it would keep the exception for ever.
                continue
            size = size_of(data)
            left -= size
            self._size += size
            if self.params.follower is not None and self._skip_unchanged_for_follower(
                cached_partition, partition, data
            ):
                yield
                continue
            self._has_final = self._has_final or is_final(data)
            read.append((cached_partition, data))
            yield
        return read

    def _skip_unchanged(self, cached_partition: CachedPartition, partition: Partition | None) -> bool:
        """Remove a session's partition without news from the due ones, unread; return whether it was removed."""
        session, params = self.session, self.params
        if (
            session is None
            or cached_partition.session is not session
            or params.follower is not None
            or self._max_bytes < 0
        ):
            return False
        if partition is None or not params.is_served_by(partition):
            return False
        log = partition.log
        if (
            cached_partition.must_respond(partition.positions.high_watermark, log.start_offset)
            or cached_partition.max_bytes < 0
        ):
            return False
        if (
            not max(params.end_offset_of(partition), log.start_offset)
            <= cached_partition.fetch_offset
            <= log.end_offset
        ):
            return False
        if params.preferred(partition, cached_partition.fetch_offset) is not None:
            return False
        if not params.may_fetch(self._name(cached_partition.key)):
            return False
        try:
            partition.check_leader_epoch(cached_partition.current_leader_epoch)
            if (
                partition.diverging_epoch(cached_partition.last_fetched_epoch, cached_partition.fetch_offset)
                is not None
            ):
                return False
        except Refused:
            return False
        session.await_change(cached_partition, partition.watchers)
        return True

    def _skip_unchanged_for_follower(
        self, cached_partition: CachedPartition, partition: Partition | None, data: PartitionData
    ) -> bool:
        """Do the work of `_skip_unchanged` for a follower, after the read; a new log start is returned at once.

        A new high watermark is returned with the next records, or when the wait ends. Otherwise the follower that
        advances it would send two requests for each record before the producer is answered (KAFKA-9952). Without a
        session, the broker does not know which high watermark the follower has.
        """
        session, follower = self._context.session, self.params.follower
        if session is None or follower is None or partition is None or is_final(data):
            return False
        if self._has_new_start(cached_partition, data):
            self._has_final = True
            return False
        if session is not self.session or cached_partition.session is not session:
            return False
        is_up_to_date = not size_of(data) and data.high_watermark == cached_partition.sent_high_watermark
        if not is_up_to_date or not is_caught_up(partition, follower, cached_partition):
            return False
        session.await_change(cached_partition, partition.end_watchers)
        return True

    def _read(
        self,
        cached_partition: CachedPartition,
        partition: Partition | None,
        left: int,
        at_least_one: bool,
        cached: bool = False,
    ) -> PartitionData:
        index, params = cached_partition.key.partition, self.params
        try:
            name = self._name(cached_partition.key)
            if not params.may_fetch(name):
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if cached_partition.max_bytes < 0 or self._max_bytes < 0:
                raise Refused(ErrorCode.INVALID_FETCH_SIZE, "the fetch size is negative")
            if partition is None:
                raise self._missing(name, index)
            params.check_role(partition, cached_partition.current_leader_epoch)
            follower = params.follower
            if follower is not None:
                partition.leader().follower(follower.broker, cached_partition.current_leader_epoch)
            else:
                preferred = params.preferred(partition, cached_partition.fetch_offset)
                if preferred is not None:
                    return redirect_result(partition, index, preferred)
            divergence = partition.diverging_epoch(cached_partition.last_fetched_epoch, cached_partition.fetch_offset)
            if divergence is not None:
                return diverging_result(partition, index, divergence, params.read_committed)
            if follower is not None and self._records_position:
                record_position(self.broker, partition, follower, cached_partition, self._now)
            readable = partition.read(
                cached_partition.fetch_offset,
                min(cached_partition.max_bytes, left),
                at_least_one=at_least_one,
                read_committed=params.read_committed,
                cached=cached,
                to_end=follower is not None,
            )
            return read_result(index, readable, params.read_committed)
        except Refused as refused:
            data = error_result(index, refused.code)
            if self._names_leader and partition is not None and refused.code in _RETURNS_LEADER:
                info = partition.info
                data.current_leader = LeaderIdAndEpoch(leader_id=info.leader, leader_epoch=info.leader_epoch)
            return data

    def _missing(self, name: TopicName | None, index: int) -> Refused:
        """Return the error for a partition that is not on this broker."""
        return Refused(ErrorCode.UNKNOWN_TOPIC_ID) if name is None else self.broker.without_replica(name, index)
