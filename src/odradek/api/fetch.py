"""Fetch, versions 4 to 18.

Whole batches come back as slices of files, undecoded; an offset inside a batch returns the batch.  Who reads committed
records gets what lies below the last stable offset, and is told which transactions in it were aborted.  v5: log start
offset.  v7: incremental sessions (KIP-227).  v9: the client's leader epoch is checked (KIP-320).  v12: flexible, and
logs that part are told where (KIP-595).  v13: topics by id (KIP-516).  v15: the replica id is a tagged field (KIP-903).
v16: the current leader for who asks the wrong broker (KIP-951).

Differs from Apache Kafka: never a batch cut short at the end of an answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from odradek.api.call import Call
from odradek.api.isolation import ISOLATION_LEVELS, READ_COMMITTED
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.access import CLUSTER_NAME, Operation, ResourceType
from odradek.core.fetch_sessions import FetchKey, FetchRound, Session, Wanted
from odradek.core.parked import Parked
from odradek.core.partition import Partition
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


def handle(call: Call, body: FetchRequest) -> FetchResponse | Parked[FetchResponse]:
    if body.isolation_level not in ISOLATION_LEVELS:
        return refuse(call, body, ErrorCode.INVALID_REQUEST)
    try:
        fetch = _Fetch(call, body)
    except Refused as refused:
        return FetchResponse(error_code=refused.code, responses=[])
    response = fetch.attempt()
    if response is not None or body.max_wait_ms <= 0:
        return response or fetch.answer()
    return Parked(_DataArrived(fetch, fetch.found()), call.now.steady + body.max_wait_ms, fetch.answer)


def refuse(call: Call, body: FetchRequest, code: ErrorCode) -> FetchResponse:
    if call.version >= TOP_LEVEL_ERROR_SINCE:
        return FetchResponse(error_code=code, responses=[])
    parts = ((topic.topic, part.partition) for topic in body.topics for part in topic.partitions)
    return FetchResponse(
        responses=[FetchableTopicResponse(topic=topic, partitions=[_refused(index, code)]) for topic, index in parts]
    )


class _Fetch:
    """One fetch and what it needs to be tried again when data has come.  Holds nothing of the request's bytes.

    Every partition is asked about at each fetch of a session; one that waits is answered by the rights it came with.
    """

    def __init__(self, call: Call, body: FetchRequest) -> None:
        self.broker = call.broker
        self._by_id = call.version >= TOPIC_IDS_SINCE
        self._names_leader = call.version >= CURRENT_LEADER_SINCE
        self.min_bytes = body.min_bytes
        self._max_bytes = min(body.max_bytes, call.broker.fetch_bytes_max)
        self._round = _begin(call, body, self._by_id)
        self._read_committed = body.isolation_level == READ_COMMITTED
        replica = body.replica_state.replica_id if call.version >= REPLICA_STATE_SINCE else body.replica_id
        self._is_follower = replica >= 0
        self._by_name: dict[TopicPartition, Wanted] = {}
        self._rights = call.rights
        self._readable: dict[TopicName, bool] = {}

    def found(self) -> dict[TopicPartition, int]:
        """What a first try found, by partition: what a long poll starts from."""
        names = ((self._name(wanted.key), wanted) for wanted in self._round.wanted)
        self._by_name = {TopicPartition(name, wanted.key.partition): wanted for name, wanted in names if name}
        return {name: self.available(name) or 0 for name in self._by_name}

    def available(self, name: TopicPartition) -> int | None:
        """Bytes that this fetch could get from one partition now; None if it would get an error."""
        data = self._read(self._by_name[name], self._max_bytes, at_least_one=True)
        return None if _is_final(data) else _size(data)

    def _name(self, key: FetchKey) -> TopicName | None:
        return self.broker.view.names.get(Uuid(key.topic)) if isinstance(key.topic, bytes) else TopicName(key.topic)

    def attempt(self) -> FetchResponse | None:
        """The answer, if there is enough for one: min_bytes of records, or an error, or nothing to wait for."""
        read = self._read_all()
        size = sum(_size(data) for _, data in read)
        if size >= self.min_bytes or not read or any(_is_final(data) for _, data in read):
            return self._respond(read)
        return None

    def answer(self) -> FetchResponse:
        """Whatever there is now."""
        return self._respond(self._read_all())

    def _read_all(self) -> list[tuple[Wanted, PartitionData]]:
        left = self._max_bytes
        read = []
        for wanted in self._round.wanted:
            # The first records go out whole, however small the limits: a reader must get on (KIP-74).
            at_least_one = left == self._max_bytes
            data = self._read(wanted, left, at_least_one)
            left -= _size(data)
            read.append((wanted, data))
        return read

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

    def _respond(self, read: list[tuple[Wanted, PartitionData]]) -> FetchResponse:
        session = self._round.session
        if self._round.is_incremental:
            read = [(wanted, data) for wanted, data in read if _is_news(wanted, data)]
        else:
            for wanted, data in read:
                wanted.is_news(data.high_watermark, data.log_start_offset)
        if session is not None:
            _rotate(session, read)
        return FetchResponse(session_id=self._round.session_id, responses=self._by_topic(read))

    def _by_topic(self, read: list[tuple[Wanted, PartitionData]]) -> list[FetchableTopicResponse]:
        topics: dict[str | Uuid, FetchableTopicResponse] = {}
        for wanted, data in read:
            topic = wanted.key.topic
            answer = topics.get(topic)
            if answer is None:
                answer = topics[topic] = _topic_answer(topic)
            answer.partitions.append(data)
        return list(topics.values())


class _DataArrived:
    """A long poll's condition: enough bytes, or an error, in the partitions that moved since it was parked."""

    def __init__(self, fetch: _Fetch, found: dict[TopicPartition, int]) -> None:
        self._fetch = fetch
        self._found = found

    @property
    def keys(self) -> Iterable[TopicPartition]:
        return self._found

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        assert isinstance(key, TopicPartition)
        size = self._fetch.available(key)
        if size is None:
            return True
        self._found[key] = size
        return sum(self._found.values()) >= self._fetch.min_bytes


def wanted_of(topic: FetchTopic, part: FetchPartition, by_id: bool) -> Wanted:
    return Wanted(
        FetchKey(Uuid(topic.topic_id) if by_id else topic.topic, part.partition),
        part.fetch_offset,
        part.partition_max_bytes,
        max(part.current_leader_epoch, NO_EPOCH),  # Any number below 0 says nothing.
        part.last_fetched_epoch,
    )


def _begin(call: Call, body: FetchRequest, by_id: bool) -> FetchRound:
    wanted = [wanted_of(topic, part, by_id) for topic in body.topics for part in topic.partitions]
    forgotten = [
        FetchKey(Uuid(topic.topic_id) if by_id else topic.topic, index)
        for topic in body.forgotten_topics_data
        for index in topic.partitions
    ]
    return call.broker.sessions.begin(
        body.session_id, body.session_epoch, wanted, forgotten, uses_ids=by_id, steady=call.now.steady
    )


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


def _is_news(wanted: Wanted, data: PartitionData) -> bool:
    moved = wanted.is_news(data.high_watermark, data.log_start_offset)
    return moved or bool(data.records) or _is_final(data)


def _rotate(session: Session, read: list[tuple[Wanted, PartitionData]]) -> None:
    for wanted, data in read:
        if data.records or data.error_code:
            session.serve_last(wanted.key)


def _topic_answer(topic: str | Uuid) -> FetchableTopicResponse:
    if isinstance(topic, bytes):
        return FetchableTopicResponse(topic_id=topic, partitions=[])
    return FetchableTopicResponse(topic=topic, topic_id=ZERO_UUID, partitions=[])
