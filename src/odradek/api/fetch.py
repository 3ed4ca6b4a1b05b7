"""Fetch, versions 4 to 18.

Whole batches come back as slices of files, undecoded; an offset inside a batch returns the batch.  Who reads committed
records gets what lies below the last stable offset, and is told which transactions in it were aborted.  v5: log start
offset.  v7: incremental sessions (KIP-227).  v9: the client's leader epoch is checked (KIP-320).  v12: flexible, and
logs that part are told where (KIP-595).  v13: topics by id (KIP-516).  v15: the replica id is a tagged field (KIP-903).
v16: the current leader for who asks the wrong broker (KIP-951).

A fetch of many partitions is done in slices, and what follows on its connection waits for it, as in Kafka.
Differs from Apache Kafka: never a batch cut short at the end of an answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeAlias, cast

from odradek.api.call import Call
from odradek.api.gate import Admission
from odradek.api.outcome import Slices
from odradek.api.parts import Parts, nothing, whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import NO_EPOCH, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.access import CLUSTER_NAME, Operation, ResourceType
from odradek.core.fetch_sessions import FetchKey, FetchRound, Rules, Session, Wanted
from odradek.core.parked import Parked
from odradek.core.partition import Partition
from odradek.core.positions import ISOLATION_LEVELS, READ_COMMITTED
from odradek.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)

TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15
TOP_LEVEL_ERROR_SINCE = 7
CURRENT_LEADER_SINCE = 16
NO_RECORDS = b""
# A partition that nobody has was never read, and Apache Kafka then says that it has no aborted transactions; after a
# read that failed it says nothing of them.
_NEVER_READ = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
_ASKS_FOR_LEADER = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}


Read: TypeAlias = list[tuple[Wanted, PartitionData]]


def handle(call: Call, body: FetchRequest) -> FetchResponse | Parked[FetchResponse] | Slices:
    if body.isolation_level not in ISOLATION_LEVELS:
        raise Refused(ErrorCode.INVALID_REQUEST, f"isolation level {body.isolation_level}")
    if _is_long(call, body):
        return _in_slices(call, body)
    try:
        begun = whole(_begin(call, body))
    except Refused as refused:
        return FetchResponse(error_code=refused.code, responses=[])
    return answer_begun(call, body, begun)


def answer_begun(call: Call, body: FetchRequest, begun: FetchRound) -> FetchResponse | Parked[FetchResponse]:
    """The answer of a short request; what `body` names is in `begun`, or due in its session."""
    fetch = _Fetch(call, body, begun)
    read = whole(fetch.read())
    if body.max_wait_ms <= 0 or fetch.is_enough:
        return whole(fetch.respond(read))
    return Parked(whole(_DataArrived(fetch).watch(read)), call.now.steady + body.max_wait_ms, fetch.answer)


def answer_waiting(call: Call, body: FetchRequest, begun: FetchRound) -> FetchResponse:
    """The answer of a short request that has waited elsewhere, with whatever there is now."""
    return _Fetch(call, body, begun).answer()


def _is_long(call: Call, body: FetchRequest) -> bool:
    """True if it is about more partitions than are looked at in a slice."""
    session = call.broker.sessions.find(body.session_id)
    count = 0
    if session is not None:
        is_as_before = session.rules == rules_of(call.admission, body.isolation_level)
        count = len(session.due) if is_as_before else len(session.wanted)
    if count <= SLICE_ELEMENTS:
        count += sum(len(topic.partitions) for topic in body.topics)
        count += sum(len(topic.partitions) for topic in body.forgotten_topics_data)
    return count > SLICE_ELEMENTS


def _in_slices(call: Call, body: FetchRequest) -> Slices:
    deadline = call.now.steady + body.max_wait_ms
    try:
        fetch = _Fetch(call, body, (yield from _begin(call, body)))
    except Refused as refused:
        return FetchResponse(error_code=refused.code, responses=[])
    call.leave(fetch)
    read = yield from fetch.read()
    call.leave(read)
    if body.max_wait_ms > 0 and not fetch.is_enough:
        arrived = yield from _DataArrived(fetch).watch(read)
        if not arrived.has_come_since():
            yield Parked(arrived, deadline, nothing)
        read = yield from fetch.read()
        call.leave(read)
    return (yield from fetch.respond(read))


def refuse(call: Call, body: FetchRequest, code: ErrorCode) -> FetchResponse:
    if call.version >= TOP_LEVEL_ERROR_SINCE:
        return FetchResponse(error_code=code, responses=[])
    parts = ((topic.topic, part.partition) for topic in body.topics for part in topic.partitions)
    return FetchResponse(
        responses=[FetchableTopicResponse(topic=topic, partitions=[_refused(index, code)]) for topic, index in parts]
    )


class _Fetch:
    """One fetch and what it needs to be tried again when data has come.  Holds nothing of the request's bytes.

    One that waits is answered by the rights it came with.
    """

    def __init__(self, call: Call, body: FetchRequest, begun: FetchRound) -> None:
        self.broker = call.broker
        self._names_leader = call.version >= CURRENT_LEADER_SINCE
        self.min_bytes = body.min_bytes
        self._max_bytes = min(body.max_bytes, call.broker.fetch_bytes_max)
        self._round = begun
        self._read_committed = body.isolation_level == READ_COMMITTED
        replica = body.replica_state.replica_id if call.version >= REPLICA_STATE_SINCE else body.replica_id
        self._is_follower = replica >= 0
        self._rights = call.rights
        self._readable: dict[TopicName, bool] = {}
        self._size = 0  # Bytes of records that were read last.
        self._has_final = False  # Something was read that waiting would not better.

    def partition(self, wanted: Wanted) -> Partition | None:
        """None if it is not here."""
        name = self._name(wanted.key)
        return None if name is None else self.broker.partitions.get(TopicPartition(name, wanted.key.partition))

    def is_served_by_any(self, partition: Partition, wanted: Wanted) -> bool:
        """True if one record is enough, and the partition has one: thousands may wait for the same."""
        if self.min_bytes > 1:
            return False
        return wanted.fetch_offset < partition.readable_end(read_committed=self._read_committed)

    def available(self, wanted: Wanted) -> int | None:
        """Bytes that this fetch could get from one partition now; None if it would get an error."""
        data = self._read(wanted, self._max_bytes, at_least_one=True)
        return None if _is_final(data) else _size(data)

    def _name(self, key: FetchKey) -> TopicName | None:
        return self.broker.view.names.get(Uuid(key.topic)) if isinstance(key.topic, bytes) else TopicName(key.topic)

    @property
    def is_enough(self) -> bool:
        """True if what was read is min_bytes of records, or an error, or there is nothing to wait for."""
        if self._size >= self.min_bytes or self._has_final:
            return True
        return not (self._round.wanted or self._round.is_incremental)

    @property
    def session(self) -> Session | None:
        """None if it is not incremental: what it waits for is no other than what it named."""
        return self._round.session if self._round.is_incremental else None

    def answer(self) -> FetchResponse:
        """Whatever there is now, as much as is looked at in a slice."""
        return whole(self.respond(whole(self.read(SLICE_ELEMENTS))))

    def read(self, count: int | None = None) -> Parts[Read]:
        """What is due, `count` partitions at most; those of an incremental fetch with nothing new rest from now on."""
        self._size, self._has_final = 0, False
        left = self._max_bytes
        read = []
        for wanted in self._round.due(count):
            if self._rests(wanted):
                yield
                continue
            # The first records go out whole, however small the limits: a reader must get on (KIP-74).
            at_least_one = left == self._max_bytes
            data = self._read(wanted, left, at_least_one)
            size = _size(data)
            left -= size
            self._size += size
            self._has_final = self._has_final or _is_final(data)
            read.append((wanted, data))
            yield
        return read

    def _rests(self, wanted: Wanted) -> bool:
        """True if there is nothing to tell of a session's partition; found without reading it."""
        session = self.session
        if session is None or wanted.session is not session or self._is_follower or self._max_bytes < 0:
            return False
        partition = self.partition(wanted)
        if partition is None or not partition.is_online:
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

    def _read(self, wanted: Wanted, left: int, at_least_one: bool) -> PartitionData:
        index = wanted.key.partition
        partition = None
        try:
            name = self._allowed(wanted.key)
            if wanted.max_bytes < 0 or self._max_bytes < 0:
                raise Refused(ErrorCode.INVALID_FETCH_SIZE, "a size below 0")
            partition = self._find(name, wanted.key)
            if self._is_follower:
                # Nobody else is among the replicas, so far.
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the fetching broker is no replica")
            partition.check_leader_epoch(wanted.current_leader_epoch)
            return _read_partition(partition, wanted, left, at_least_one, read_committed=self._read_committed)
        except Refused as refused:
            data = _refused(index, refused.code)
            if self._names_leader and partition is not None and refused.code in _ASKS_FOR_LEADER:
                info = partition.info
                data.current_leader = LeaderIdAndEpoch(leader_id=info.leader, leader_epoch=info.leader_epoch)
            return data

    def _allowed(self, key: FetchKey) -> TopicName | None:
        """The topic's name, None if no topic has that id.  Raises Refused(TOPIC_AUTHORIZATION_FAILED)."""
        name = self._name(key)
        if self._is_follower:
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

    def _find(self, name: TopicName | None, key: FetchKey) -> Partition:
        if name is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.broker.partition(name, key.partition)

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


class _DataArrived:
    """A long poll's condition: enough bytes, or an error, in the partitions that changed since they were read.

    An incremental one hears of any partition of its session; what was read and is still due it watches meanwhile.
    """

    def __init__(self, fetch: _Fetch) -> None:
        self._fetch = fetch
        self._session = fetch.session
        self._named: dict[TopicPartition, Wanted] = {}
        self._sizes: dict[Wanted, int] = {}
        self._total = 0
        self._read: list[tuple[Wanted, Partition | None, PartitionData]] = []

    def watch(self, read: Read) -> Parts[_DataArrived]:
        """Starts from what was found."""
        for wanted, data in read:
            partition = self._fetch.partition(wanted)
            if partition is not None:
                self._watch(wanted, partition)
            self._sizes[wanted] = size = _size(data)
            self._total += size
            self._read.append((wanted, partition, data))
            yield
        return self

    def _watch(self, wanted: Wanted, partition: Partition) -> None:
        if self._session is None:
            self._named[partition.topic_partition] = wanted
        elif wanted.session is self._session:
            wanted.watch(partition.watchers)

    @property
    def keys(self) -> Iterable[Hashable]:
        return self._named if self._session is None else (self._session,)

    def has_come_since(self) -> bool:
        """True if enough has come since it was read: others had their turns meanwhile."""
        read, self._read = self._read, []
        for wanted, partition, data in read:
            has_changed = (
                partition is None
                or partition.positions.high_watermark != data.high_watermark
                or partition.last_stable_offset != data.last_stable_offset
                or self._fetch.partition(wanted) is not partition
            )
            if has_changed and self._is_enough_with(wanted):
                return True
        session = self._session
        if session is None:
            return False
        due_again = [wanted for wanted in session.due if wanted not in self._sizes]
        return not session.is_open or any(map(self._is_enough_with, due_again))

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        if isinstance(key, TopicPartition):
            return self._is_enough_with(self._named[key])
        return news is None or self._is_enough_with(cast(Wanted, news))  # Or the session is over.

    def _is_enough_with(self, wanted: Wanted) -> bool:
        """Of this one there is something new."""
        partition = self._fetch.partition(wanted)
        if partition is not None:
            if self._fetch.is_served_by_any(partition, wanted):
                return True
            self._watch(wanted, partition)
        size = self._fetch.available(wanted)
        if size is None:
            return True
        self._total += size - self._sizes.get(wanted, 0)
        self._sizes[wanted] = size
        return self._total >= self._fetch.min_bytes


def wanted_of(topic: FetchTopic, part: FetchPartition, by_id: bool) -> Wanted:
    return Wanted(
        FetchKey(Uuid(topic.topic_id) if by_id else topic.topic, part.partition),
        part.fetch_offset,
        part.partition_max_bytes,
        max(part.current_leader_epoch, NO_EPOCH),  # Any number below 0 says nothing.
        part.last_fetched_epoch,
    )


def _begin(call: Call, body: FetchRequest) -> Parts[FetchRound]:
    """Merges the request into its session.  Raises Refused."""
    by_id = call.version >= TOPIC_IDS_SINCE
    wanted = {}
    for topic in body.topics:
        for part in topic.partitions:
            one = wanted_of(topic, part, by_id)
            wanted[one.key] = one
            yield
    forgotten = []
    for left_out in body.forgotten_topics_data:
        named = Uuid(left_out.topic_id) if by_id else left_out.topic
        for index in left_out.partitions:
            forgotten.append(FetchKey(named, index))
            yield
    begun = yield from call.broker.sessions.begin(
        body.session_id, body.session_epoch, wanted, forgotten, uses_ids=by_id, steady=call.now.steady
    )
    session = begun.session
    if session is not None and session.rules != (rules := rules_of(call.admission, body.isolation_level)):
        session.rules = rules
        for one in session.wanted.values():
            session.due[one] = None
            yield
    return begun


def rules_of(admission: Admission, isolation_level: int) -> Rules:
    return Rules(admission.principal, admission.version, isolation_level)


def _read_partition(
    partition: Partition, wanted: Wanted, left: int, at_least_one: bool, *, read_committed: bool
) -> PartitionData:
    index = wanted.key.partition
    parted = partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset)
    if parted is not None:
        epoch, end = parted
        return PartitionData(
            partition_index=index,
            error_code=ErrorCode.NONE,
            high_watermark=partition.positions.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.start_offset,
            diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end),
            aborted_transactions=[] if read_committed else None,
            records=NO_RECORDS,
        )
    max_bytes = min(wanted.max_bytes, left)
    readable = partition.read(wanted.fetch_offset, max_bytes, at_least_one=at_least_one, read_committed=read_committed)
    return PartitionData(
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


def _refused(index: int, code: ErrorCode) -> PartitionData:
    aborted: list[AbortedTransaction] | None = [] if code in _NEVER_READ else None
    return PartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=aborted, records=NO_RECORDS
    )


def _size(data: PartitionData) -> int:
    records = data.records
    return 0 if records is None or isinstance(records, bytes | bytearray | memoryview) else records.size


def _is_final(data: PartitionData) -> bool:
    """An answer that waiting would not better."""
    return bool(data.error_code) or data.diverging_epoch.end_offset >= 0


def _topic_answer(topic: str | Uuid) -> FetchableTopicResponse:
    if isinstance(topic, bytes):
        return FetchableTopicResponse(topic_id=topic, partitions=[])
    return FetchableTopicResponse(topic=topic, topic_id=ZERO_UUID, partitions=[])
