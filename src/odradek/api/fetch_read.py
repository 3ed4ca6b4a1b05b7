"""Reading the partitions of one fetch, and making its answer."""

from __future__ import annotations

from collections.abc import Generator, Hashable
from typing import TypeAlias

from odradek.api.call import Call
from odradek.api.follower_fetch import follower_of, may_rest, take_in
from odradek.api.outcome import Wait
from odradek.api.parts import Parts, whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.tuples import new_tuple
from odradek.base.units import NO_OFFSET, LeaderEpoch, Offset, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.access import CLUSTER_NAME, Operation, ResourceType
from odradek.core.cold import Cold, Place
from odradek.core.effects import DiskWait
from odradek.core.fetch_sessions import FetchKey, FetchRound, LogEnd, Session, Wanted, Watchers
from odradek.core.partition import Partition
from odradek.core.positions import READ_COMMITTED
from odradek.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from odradek.wire.schema import maker

CURRENT_LEADER_SINCE = 16
NO_RECORDS = b""
WAITS_FOR_NOTHING_MAX = 4  # What was loaded may be gone again before it is read.
# A partition that is nowhere was never read, and Apache Kafka then says that it has no aborted transactions; after a
# read that failed it says nothing of them.
_NEVER_READ = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
_partition_data = maker(PartitionData)
_ASKS_FOR_LEADER = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}

Read: TypeAlias = list[tuple[Wanted, PartitionData]]


class FetchRead:
    """One fetch, and what it needs to be tried again when data has come.  It keeps nothing of the request's bytes.

    A fetch that waits is answered by the rights that it came with.
    """

    def __init__(self, call: Call, body: FetchRequest, begun: FetchRound) -> None:
        self.broker = call.broker
        self._names_leader = call.version >= CURRENT_LEADER_SINCE
        self.min_bytes = body.min_bytes
        self._max_bytes = min(body.max_bytes, call.broker.fetch_bytes_max)
        self._round = begun
        self._follower = follower_of(body, call.version)
        self._read_committed = body.isolation_level == READ_COMMITTED and self._follower is None
        self._now = call.now
        self._takes_in = self._follower is not None  # What a follower has, until the fetch has to wait.
        self._rights = call.rights
        self._readable: dict[TopicName, bool] = {}
        self._size = 0  # Bytes of records in the last read.
        self._has_final = False  # Something was read that does not change by waiting.
        self._cold: list[Cold] = []  # What the last read left out.

    def partition(self, wanted: Wanted) -> Partition | None:
        """Returns the partition, None if it is not on this broker."""
        name = self._name(wanted.key)
        if name is None:
            return None
        return self.broker.partitions.get(new_tuple(TopicPartition, (name, wanted.key.partition)))

    def is_served_by_any(self, partition: Partition, wanted: Wanted) -> bool:
        """True if one record is enough and the partition has one; cheap, as thousands may wait for the same record."""
        if self.min_bytes > 1:
            return False
        return wanted.fetch_offset < self._end(partition)

    def _end(self, partition: Partition) -> Offset:
        """Returns where reading ends for now; -1 if a follower would get an error."""
        if self._follower is None:
            return partition.readable_end(read_committed=self._read_committed)
        return NO_OFFSET if partition.leading is None else partition.log.end_offset

    def watchers(self, partition: Partition) -> Watchers:
        """Returns where to register for the changes of a partition."""
        return partition.watchers if self._follower is None else partition.end_watchers

    def keys(self, partition: Partition) -> tuple[Hashable, ...]:
        """Returns what a fetch without a session is woken by."""
        name = partition.topic_partition
        return (name,) if self._follower is None else (name, LogEnd(name))

    def waits(self) -> None:
        """Called when the fetch has to wait: what is read later says nothing new of who fetches."""
        self._takes_in = False

    def has_changed(self, partition: Partition, wanted: Wanted, data: PartitionData) -> bool:
        """True if a partition may have more to tell than when `data` was read."""
        if partition.leading is None or partition.positions.high_watermark != data.high_watermark:
            return True
        if self._follower is not None:
            return partition.log.end_offset > wanted.fetch_offset
        return partition.last_stable_offset != data.last_stable_offset

    def available(self, wanted: Wanted) -> int | None:
        """Returns how many bytes the fetch could get from one partition now; None if it would get an error."""
        data = self._read(wanted, self.partition(wanted), self._max_bytes, at_least_one=True)
        return None if self._has_new_start(wanted, data) or _is_final(data) else size_of(data)

    def _has_new_start(self, wanted: Wanted, data: PartitionData) -> bool:
        """True for a log start that a follower which waits was not told: who deletes records waits for it.

        A high watermark it hears of with the next records; else each record would cost it two fetches.
        """
        is_told = self._follower is not None and self._round.session is not None
        return is_told and data.log_start_offset != wanted.told_log_start

    def _name(self, key: FetchKey) -> TopicName | None:
        return self.broker.view.names.get(Uuid(key.topic)) if isinstance(key.topic, bytes) else TopicName(key.topic)

    @property
    def is_enough(self) -> bool:
        """True if the last read has min_bytes of records or an error, or if there is nothing to wait for."""
        if self._size >= self.min_bytes or self._has_final:
            return True
        return not (self._round.wanted or self._round.is_incremental)

    @property
    def session(self) -> Session | None:
        """The session of an incremental fetch; None for any other, which waits only for what it named."""
        return self._round.session if self._round.is_incremental else None

    def answer(self) -> FetchResponse:
        """Answers with what can be read now, from no more partitions than a slice looks at."""
        return whole(self.respond(whole(self.read(SLICE_ELEMENTS))))

    def read_patiently(self) -> Generator[Wait, object, Read]:
        """Reads as `read`; where the disk has to be waited for, a thread does that, and all is read again."""
        waited_for: set[Place] = set()
        for_nothing = 0
        while for_nothing < WAITS_FOR_NOTHING_MAX:
            read = yield from self.read(cached=True)
            if not self._cold:
                return read
            missing = {cold.place for cold in self._cold}
            for_nothing += missing <= waited_for
            waited_for |= missing
            yield DiskWait(self._cold)
        return (yield from self.read())

    def read(self, count: int | None = None, *, cached: bool = False) -> Parts[Read]:
        """Reads the partitions that are due, `count` at most; with `cached` leaves out what the disk must be read for.

        Those of an incremental fetch that have nothing new are not due again until something changes in them.
        """
        self._size, self._has_final, self._cold = 0, False, []
        left = self._max_bytes
        read = []
        for wanted in self._round.due(count):
            partition = self.partition(wanted)
            if self._try_rest(wanted, partition):
                yield
                continue
            # The first records go out whole, however small the limits: a reader must get on (KIP-74).
            at_least_one = left == self._max_bytes
            try:
                data = self._read(wanted, partition, left, at_least_one, cached)
            except Cold as cold:
                self._cold.append(cold)
                yield
                continue
            size = size_of(data)
            left -= size
            self._size += size
            if self._follower is not None and self._try_rest_of_follower(wanted, partition, data):
                yield
                continue
            self._has_final = self._has_final or _is_final(data)
            read.append((wanted, data))
            yield
        return read

    def _try_rest(self, wanted: Wanted, partition: Partition | None) -> bool:
        """Takes a session's partition that has nothing new off the due ones, unread; returns whether it did."""
        session = self.session
        if session is None or wanted.session is not session or self._follower is not None or self._max_bytes < 0:
            return False
        if partition is None or partition.leading is None:
            return False
        log = partition.log
        if wanted.is_news(partition.positions.high_watermark, log.start_offset) or wanted.max_bytes < 0:
            return False
        end = partition.readable_end(read_committed=self._read_committed)
        if not max(end, log.start_offset) <= wanted.fetch_offset <= log.end_offset:
            return False
        try:
            self._allowed(wanted.key)
            partition.check_leader_epoch(wanted.current_leader_epoch)
            if partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset) is not None:
                return False
        except Refused:
            return False
        session.rest(wanted, partition.watchers)
        return True

    def _try_rest_of_follower(self, wanted: Wanted, partition: Partition | None, data: PartitionData) -> bool:
        """Does for a follower, after the read, what `_try_rest` does: it is answered at once if there is news.

        A high watermark that it was not told is news (KIP-392); without a session nobody knows what it was told.
        """
        session, follower = self._round.session, self._follower
        if session is None or follower is None or partition is None or _is_final(data):
            return False
        if wanted.is_news(data.high_watermark, data.log_start_offset):
            self._has_final = True
            return False
        if session is not self.session or wanted.session is not session:
            return False
        if size_of(data) or not may_rest(partition, follower, wanted):
            return False
        session.rest(wanted, partition.end_watchers)
        return True

    def _read(
        self, wanted: Wanted, partition: Partition | None, left: int, at_least_one: bool, cached: bool = False
    ) -> PartitionData:
        index = wanted.key.partition
        try:
            name = self._allowed(wanted.key)
            if wanted.max_bytes < 0 or self._max_bytes < 0:
                raise Refused(ErrorCode.INVALID_FETCH_SIZE, "a size below 0")
            if partition is None:
                raise self._nowhere(name, wanted.key)
            partition.check_leader(wanted.current_leader_epoch)
            follower = self._follower
            if follower is not None:
                partition.leader().follower(follower.broker, wanted.current_leader_epoch)
            parted = partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset)
            if parted is not None:
                return _diverging(partition, wanted, parted, self._read_committed)
            if follower is not None and self._takes_in:
                take_in(self.broker, partition, follower, wanted, self._now)
            to_end = follower is not None
            return _read_partition(partition, wanted, left, at_least_one, self._read_committed, cached, to_end)
        except Refused as refused:
            data = failed(index, refused.code)
            if self._names_leader and partition is not None and refused.code in _ASKS_FOR_LEADER:
                info = partition.info
                data.current_leader = LeaderIdAndEpoch(leader_id=info.leader, leader_epoch=info.leader_epoch)
            return data

    def _allowed(self, key: FetchKey) -> TopicName | None:
        """Returns the topic's name, None if no topic has that id.  Raises Refused(TOPIC_AUTHORIZATION_FAILED)."""
        name = self._name(key)
        if self._follower is not None:
            is_allowed = self._rights.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        elif name is None:
            is_allowed = True
        elif name in self._readable:
            is_allowed = self._readable[name]
        else:
            is_allowed = self._readable[name] = self._rights.allows(Operation.READ, ResourceType.TOPIC, name)
        if not is_allowed:
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return name

    def _nowhere(self, name: TopicName | None, key: FetchKey) -> Refused:
        """Returns the error for a partition that is not on this broker."""
        if name is None:
            return Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        try:
            self.broker.replica(name, key.partition)
        except Refused as refused:
            return refused
        raise AssertionError("it is here")

    def respond(self, read: Read) -> Parts[FetchResponse]:
        begun = self._round
        topics: dict[str | Uuid, FetchableTopicResponse] = {}
        for wanted, data in read:
            is_news = wanted.is_news(data.high_watermark, data.log_start_offset)
            if is_news or not begun.is_incremental or data.records or _is_final(data):
                wanted.told(data.high_watermark, data.log_start_offset)
                topic = wanted.key.topic
                answer = topics.get(topic)
                if answer is None:
                    answer = topics[topic] = _topic_answer(topic)
                answer.partitions.append(data)
                if begun.session is not None and (data.records or data.error_code):
                    begun.session.serve_last(wanted)
            yield
        return FetchResponse(session_id=begun.session_id, responses=list(topics.values()))


def _diverging(
    partition: Partition, wanted: Wanted, parted: tuple[LeaderEpoch, Offset], read_committed: bool
) -> PartitionData:
    epoch, end = parted
    return PartitionData(
        partition_index=wanted.key.partition,
        error_code=ErrorCode.NONE,
        high_watermark=partition.positions.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.start_offset,
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end),
        aborted_transactions=[] if read_committed else None,
        records=NO_RECORDS,
    )


def _read_partition(  # noqa: PLR0917
    partition: Partition,
    wanted: Wanted,
    left: int,
    at_least_one: bool,
    read_committed: bool,
    cached: bool,
    to_end: bool,
) -> PartitionData:
    index = wanted.key.partition
    max_bytes = min(wanted.max_bytes, left)
    readable = partition.read(
        wanted.fetch_offset,
        max_bytes,
        at_least_one=at_least_one,
        read_committed=read_committed,
        cached=cached,
        to_end=to_end,
    )
    return _partition_data(
        partition_index=index,
        error_code=ErrorCode.NONE,
        high_watermark=readable.high_watermark,
        last_stable_offset=readable.last_stable_offset,
        log_start_offset=readable.log_start_offset,
        aborted_transactions=[
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in readable.aborted
        ]
        if read_committed
        else None,
        records=readable.records if readable.records.size else NO_RECORDS,
    )


def failed(index: int, code: ErrorCode) -> PartitionData:
    aborted: list[AbortedTransaction] | None = [] if code in _NEVER_READ else None
    return PartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=aborted, records=NO_RECORDS
    )


def size_of(data: PartitionData) -> int:
    records = data.records
    return 0 if records is None or isinstance(records, bytes | bytearray | memoryview) else records.size


def _is_final(data: PartitionData) -> bool:
    """True for a partition's answer that does not change by waiting."""
    return bool(data.error_code) or data.diverging_epoch.end_offset >= 0


def _topic_answer(topic: str | Uuid) -> FetchableTopicResponse:
    if isinstance(topic, bytes):
        return FetchableTopicResponse(topic_id=topic, partitions=[])
    return FetchableTopicResponse(topic=topic, topic_id=ZERO_UUID, partitions=[])
