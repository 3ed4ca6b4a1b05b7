"""Produce, versions 3 to 13.

Order: batches of one connection are appended in the order received.  They are staged here, and written by the broker's
commit with those of the requests that came with them; the answer is made after it.  v5: log start offset in the answer.
v8: record errors and a sentence (KIP-467).  v9: flexible.  v10: the current leader for who asks the wrong broker
(KIP-951).  v12: a batch makes its partition part of its transaction (KIP-890).  v13: topics by id (KIP-516).  acks: 0
answers nothing, 1 after the write, all (-1) once the partition's in-sync replicas have it, which on an unreplicated
partition means: once it is synced to the disk.  A batch that its producer sent before is answered as it was then.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from odradek.api import txn_verification
from odradek.api.call import Call
from odradek.api.outcome import PAUSE, Slices, Wait
from odradek.api.parts import Parts, pauses, whole
from odradek.api.produce_parts import TOPIC_IDS_SINCE, is_transactional, join_together, topic_name
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import RECORD_ERRORS_MAX, SLICE_ELEMENTS
from odradek.base.units import NO_OFFSET, NO_TIMESTAMP, SECOND_MS, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core import ingress
from odradek.core.access import Operation, ResourceType, Rights
from odradek.core.broker import Broker
from odradek.core.coordinators.durable import Written
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.effects import Work
from odradek.core.leading import Leading
from odradek.core.moment import Moment
from odradek.core.parked import Parked
from odradek.core.partition import Partition
from odradek.core.staging import Append
from odradek.core.transactions.admission import PRODUCE_ADDS_SINCE, admit_batch, admit_verified
from odradek.core.transactions.verification import Verification
from odradek.record.batch import Batch, BatchHeader
from odradek.record.compression import Codec
from odradek.record.validation import RecordsRefused
from odradek.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.wire.schema import maker

Response = TypeVar("Response", ProduceResponse, None)

ACKS_NONE, ACKS_LEADER, ACKS_ALL = _ACKS = 0, 1, -1
LOOKED_INTO_PARTS = 10  # Of a slice: what a small batch whose records are read costs more than another.
FIRST_WRITE_PARTS = 20  # Of a slice: what the first write in a leader epoch costs more than another.
SYNC_MS_MIN = 5 * SECOND_MS
ZSTD_SINCE = 7

_answer = maker(ProduceResponse)
_partition_answer = maker(PartitionProduceResponse)
_topic_answer = maker(TopicProduceResponse)


class PendingProduce:
    """A produce whose batches have their offsets; after the broker's commit, `settle` answers it."""

    def __init__(
        self,
        now: Moment,
        acks: int,
        timeout_ms: int,
        response: ProduceResponse,
        appended: list[Appended],
    ) -> None:
        self._now = now
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._response = response
        self.appended = appended

    def settle(self) -> ProduceResponse | Parked[ProduceResponse] | None:
        """Answers the request, or parks it until its batches are acknowledged; None with acks=0.

        Raises ConnectionAbortedError if there is an error and no answer to carry it.
        """
        response, waiting = self._response, Acknowledgement(self._acks)
        for appended in self.appended:
            refused = appended.append.refused
            if refused is not None:
                appended.fail(refused)
            elif appended.append.needs_sync or self._acks == ACKS_ALL:
                waiting.add(appended)
        if self._acks == ACKS_NONE:
            check_unanswered(response)
            return None
        return waiting.parked(response, self._now, self._timeout_ms) if waiting.pending else response


def check_unanswered(response: ProduceResponse) -> None:
    """Raises ConnectionAbortedError if there is an error, which acks=0 leaves no way to tell.

    Like Kafka, we close the connection then, so that the client looks for the leader again.
    """
    if any(part.error_code for topic in response.responses for part in topic.partition_responses):
        raise ConnectionAbortedError("a produce with acks=0 failed")


class Appended(NamedTuple):
    """One partition of a produce: its append, and its part of the answer."""

    name: TopicPartition
    append: Append
    answer: PartitionProduceResponse
    join: Written | None = None  # The write that makes its partition part of the transaction; it has to be safe, too.

    def fail(self, refused: Refused) -> None:
        self.answer.error_code = refused.code
        self.answer.error_message = refused.detail or None
        self.answer.base_offset = NO_OFFSET
        self.answer.log_append_time_ms = NO_TIMESTAMP


def handle(call: Call, body: ProduceRequest) -> PendingProduce | ProduceResponse | Slices | None:
    if _takes_long(call, body):
        return _in_slices(call, body)
    transactional = _transactional(body)
    wrong = _wrong_as_a_whole(call, body, transactional)
    if wrong is not None:
        return refuse(call, body, wrong)
    if transactional and txn_verification.asks_first(call, body, transactional):
        return _after_asking(call, body, transactional)
    _join(call, body, transactional)
    return _staged(call, body)


def _staged(call: Call, body: ProduceRequest, verified: Verification | None = None) -> PendingProduce:
    appended: list[Appended] = []
    response = _answer(responses=[_stage_topic(call, body, topic, appended, verified) for topic in body.topic_data])
    return PendingProduce(call.now, body.acks, body.timeout_ms, response, appended)


def _after_asking(call: Call, body: ProduceRequest, transactional: list[BatchHeader]) -> Slices:
    """As `handle`, once the transaction's coordinator has answered."""
    verified = yield from txn_verification.asked(call, body, transactional)
    if not _takes_long(call, body):  # A topic's configuration may have changed meanwhile.
        return _staged(call, body, verified)
    return (yield from _staged_in_slices(call, body, verified))


def _takes_long(call: Call, body: ProduceRequest) -> bool:
    """True if the request has very many partitions, a batch that a thread has to look into, or some others like that.

    Also if it has some partitions that nobody has written to in this leader epoch: that takes a file or two for each.
    """
    count = sum(len(topic.partition_data) for topic in body.topic_data)
    if count > SLICE_ELEMENTS or (count > SLICE_ELEMENTS // FIRST_WRITE_PARTS and _are_some_new(call, body)):
        return True
    return _looked_into(call, body)


def _are_some_new(call: Call, body: ProduceRequest) -> bool:
    for topic in body.topic_data:
        with suppress(Refused):
            name = topic_name(call, topic)
            found = (call.broker.partitions.get(TopicPartition(name, part.index)) for part in topic.partition_data)
            if any(map(_is_new, found)):
                return True
    return False


def _is_new(partition: Partition | None) -> bool:
    return partition is not None and partition.leading is not None and partition.leading.is_new


def _in_slices(call: Call, body: ProduceRequest) -> Slices:
    """As `handle`, in slices; later requests of the connection wait until it is answered, as in Kafka."""
    transactional: list[BatchHeader] = []
    for topic in body.topic_data:
        for part in topic.partition_data:
            transactional += _transactional_of(part)
            yield PAUSE
    wrong = _wrong_as_a_whole(call, body, transactional)
    if wrong is not None:
        if body.acks == ACKS_NONE:
            return None
        raise Refused(wrong)
    verified = yield from txn_verification.asked(call, body, transactional)
    if verified is None:
        _join(call, body, transactional)
    return (yield from _staged_in_slices(call, body, verified))


def _staged_in_slices(call: Call, body: ProduceRequest, verified: Verification | None) -> Slices:
    waiting = Acknowledgement(body.acks)
    topics = []
    for topic in body.topic_data:
        topics.append((yield from _stage_topic_in_slices(call, body, topic, waiting, verified)))  # noqa: PERF401
    return (yield from _settled_in_slices(call, body, _answer(responses=topics), waiting))


def _settled_in_slices(call: Call, body: ProduceRequest, response: ProduceResponse, waiting: Acknowledgement) -> Slices:
    """Answers as PendingProduce.settle does, in slices.  Raises ConnectionAbortedError."""
    if body.acks == ACKS_NONE:
        check_unanswered(response)
        return None
    if waiting.pending:
        yield waiting.parked(None, call.now, body.timeout_ms)
        yield from waiting.settle()
    return response


def _stage_topic_in_slices(
    call: Call,
    body: ProduceRequest,
    topic: TopicProduceData,
    waiting: Acknowledgement,
    verified: Verification | None,
) -> Generator[Wait, object, TopicProduceResponse]:
    """Stages and commits a topic's batches one by one.

    A batch that is done leaves only its answer: of a hundred thousand batches the rest is most of their memory.
    """
    parts, named_max = [], _named_max(body, topic)
    for part in topic.partition_data:
        try:
            name = topic_name(call, topic)  # Checked again: time passes between two batches.
            looked_into = yield from _looked_into_beside(call, name, part)
        except Refused as refused:
            parts.append(_refused(part.index, refused, named_max))
        else:
            partition = call.broker.partitions.get(TopicPartition(name, part.index))
            is_new = _is_new(partition)
            appended: list[Appended] = []
            parts.append(_stage_partition(call, body, name, part, appended, named_max, looked_into, verified))
            call.broker.commit(call.now)  # Nothing is staged while others have their turn.
            for one in appended:
                if one.append.refused is not None:
                    one.fail(one.append.refused)
                elif one.append.needs_sync or body.acks == ACKS_ALL:
                    waiting.add(one)
            if is_new:
                yield from pauses(FIRST_WRITE_PARTS)
            if partition is not None and ingress.is_particular(partition.configs):
                yield from pauses(LOOKED_INTO_PARTS)
        part.records = None
        yield PAUSE
    return _topic_answer(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)


def _looked_into_beside(
    call: Call, topic: TopicName, part: PartitionProduceData
) -> Generator[Wait, object, Batch | None]:
    """Returns the batch as the topic wants it if a thread has to look into it, else None.

    It is looked into again if the topic's configuration has changed meanwhile.  Raises Refused.
    """
    done: Batch | None = None
    configs = None
    while True:
        partition = call.broker.leader(topic, part.index).partition
        if partition.configs is configs:
            return done
        configs = partition.configs
        if not part.records or not ingress.needs_thread(partition, part.records):
            return None
        batch = ingress.checked(partition, part.records, call.now)
        looked = yield Work(partial(ingress.look, partition.topic_partition, configs, batch, call.now))
        assert isinstance(looked, Batch)
        done = looked


def _looked_into(call: Call, body: ProduceRequest) -> bool:
    """True if a thread has to look into one of the batches, or if many of them have to be looked into."""
    left = SLICE_ELEMENTS // LOOKED_INTO_PARTS
    by_id, view, partitions = call.version >= TOPIC_IDS_SINCE, call.broker.view, call.broker.partitions
    for topic in body.topic_data:
        name = view.names.get(Uuid(topic.topic_id)) if by_id else TopicName(topic.name)
        for part in topic.partition_data:
            partition = partitions.get(TopicPartition(name, part.index)) if name is not None else None
            if partition is not None and part.records and ingress.is_particular(partition.configs):
                left -= 1
                if left < 0 or ingress.needs_thread(partition, part.records):
                    return True
    return False


def _transactional(body: ProduceRequest) -> list[BatchHeader]:
    """Returns the headers of the batches that are transactional."""
    return [one for topic in body.topic_data for part in topic.partition_data for one in _transactional_of(part)]


def _transactional_of(part: PartitionProduceData) -> list[BatchHeader]:
    return [BatchHeader(part.records)] if part.records is not None and is_transactional(part) else []


def _join(call: Call, body: ProduceRequest, transactional: list[BatchHeader]) -> None:
    if len(transactional) > 1 and call.version >= PRODUCE_ADDS_SINCE:
        producer = ProducerIdAndEpoch(transactional[0].producer_id, transactional[0].producer_epoch)
        join_together(call, body, producer)


def _wrong_as_a_whole(call: Call, body: ProduceRequest, transactional: list[BatchHeader]) -> ErrorCode | None:
    if transactional:
        if body.transactional_id is None or not may_write(call.rights, body.transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if len({(batch.producer_id, batch.producer_epoch) for batch in transactional if batch.has_producer_id}) > 1:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None if body.acks in _ACKS else ErrorCode.INVALID_REQUIRED_ACKS


def may_write(rights: Rights, transactional_id: str) -> bool:
    """True if the principal may write with the transactional id."""
    return rights.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def refuse(call: Call, body: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    if body.acks == ACKS_NONE:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_refused(part.index, Refused(code)) for part in topic.partition_data],
            )
            for topic in body.topic_data
        ]
    )


def _stage_topic(
    call: Call,
    body: ProduceRequest,
    topic: TopicProduceData,
    appended: list[Appended],
    verified: Verification | None,
) -> TopicProduceResponse:
    try:
        name = topic_name(call, topic)
    except Refused as refused:
        parts = [_refused(part.index, refused) for part in topic.partition_data]
    else:
        named_max = _named_max(body, topic)
        parts = [
            _stage_partition(call, body, name, part, appended, named_max, None, verified)
            for part in topic.partition_data
        ]
    return _topic_answer(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)


def _stage_partition(  # noqa: PLR0917
    call: Call,
    body: ProduceRequest,
    topic: TopicName,
    part: PartitionProduceData,
    appended: list[Appended],
    named_max: int,
    looked_into: Batch | None,
    verified: Verification | None,
) -> PartitionProduceResponse:
    broker = call.broker
    try:
        leading = broker.leader(topic, part.index)
        partition = leading.partition
        if looked_into is None:
            batch = ingress.admitted(partition, part.records, call.now)
        else:
            batch = ingress.fitting(partition, looked_into)
        join = None
        if batch.attributes:  # Most batches have none set.
            join = admit(broker, leading, batch, call.version, body.transactional_id, call.now, verified)
        append = broker.stage(leading, batch, call.now, all_replicas=body.acks == ACKS_ALL)
    except Refused as refused:
        return _refused(part.index, refused, named_max)
    answer = _partition_answer(
        index=part.index,
        error_code=ErrorCode.NONE,
        base_offset=append.base_offset,
        log_append_time_ms=append.log_append_time,
        log_start_offset=partition.log.start_offset,
    )
    appended.append(Appended(partition.topic_partition, append, answer, join))
    return answer


def check_allowed(version: int, transactional_id: str | None, batch: Batch) -> None:
    """Raises Refused if the request's version does not allow the batch, which is good in itself."""
    if batch.codec is Codec.ZSTD and version < ZSTD_SINCE:
        text = f"Produce requests with version {version} are not allowed to use ZStandard compression"
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    if batch.is_transactional and transactional_id is None:
        text = "a batch of a transaction, in a request that names none"
        raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)


def admit(  # noqa: PLR0917
    broker: Broker,
    leading: Leading,
    batch: Batch,
    version: int,
    transactional_id: str | None,
    now: Moment,
    verified: Verification | None = None,
) -> Written | None:
    """Raises Refused if the version (check_allowed) or the transaction does not allow the batch.

    `verified` is the answer of the coordinator, if it had to be asked first.  Returns the write that makes
    the partition part of the transaction, if it is not safe yet.
    """
    check_allowed(version, transactional_id, batch)
    if not batch.is_transactional or not batch.has_producer_id:
        return None
    assert transactional_id is not None, "it is checked"
    transactions = broker.transactions
    if not leading.has_open_transaction(batch.producer_id, batch.producer_epoch):
        leading.check_producer_epoch(batch)  # A late batch must not become part of another transaction.
        adds = version >= PRODUCE_ADDS_SINCE
        if verified is None and transactions.verifies(adds=adds):
            leading.await_first(batch, now.wall, from_zero=adds)
    elif verified is None and not transactions.may_hang and not transactions.joins.lost:
        return transactions.unsafe_join(transactional_id)
    if verified is not None:
        admit_verified(verified, leading, version)
        return None
    return admit_batch(transactions, leading, batch, transactional_id, version, now)


def _named_max(body: ProduceRequest, topic: TopicProduceData) -> int:
    """Returns how many records the answer may name of each partition, so that in all they are RECORD_ERRORS_MAX."""
    return max(RECORD_ERRORS_MAX // (len(body.topic_data) * max(len(topic.partition_data), 1)), 1)


def _refused(index: int, refused: Refused, named_max: int = 0) -> PartitionProduceResponse:
    named = refused.errors(named_max) if isinstance(refused, RecordsRefused) else []
    return PartitionProduceResponse(
        index=index,
        error_code=refused.code,
        base_offset=NO_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=one.place, batch_index_error_message=one.detail) for one in named
        ],
        error_message=refused.detail or None,
    )


class Acknowledgement:
    """The condition of a produce: every appended batch is in sync, or on the disk."""

    def __init__(self, acks: int) -> None:
        self._acks = acks
        self.pending: list[Appended] = []
        self._left: list[Appended] = []  # Those of `pending` that were not settled when last looked at.

    def add(self, appended: Appended) -> None:
        if self._try_settle(appended):
            _forget_place(appended)
        else:
            self.pending.append(appended)
            self._left.append(appended)

    def parked(self, response: Response, now: Moment, timeout_ms: int) -> Parked[Response]:
        # The client's timeout is for replicas.  Without a floor a timeout of 0 would end before any sync can.
        if any(one.append.needs_sync or one.join is not None for one in self.pending):
            timeout_ms = max(timeout_ms, SYNC_MS_MIN)
        return Parked(self, now.steady + timeout_ms, lambda: self._settle(response))

    @property
    def keys(self) -> Iterable[TopicPartition]:
        joins = {appended.join.name for appended in self.pending if appended.join is not None}
        return [*joins, *(appended.name for appended in self.pending)]

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        left = self._left
        while left and self._try_settle(left[-1]):  # Looked at until it is settled, and not after.
            left.pop()
        return not left

    def _try_settle(self, appended: Appended) -> bool:
        append, join = appended.append, appended.join
        if join is not None and not join.is_settled:
            return False
        if join is not None and not join.is_safe:
            appended.answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS
        elif append.failure is not None:
            appended.answer.error_code = append.failure
        elif not append.is_safe:
            return False
        elif self._acks == ACKS_ALL and not append.leading.has_min_isr:
            appended.answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return True

    def _settle(self, response: Response) -> Response:
        """Returns the response, when the last partition is settled or the time is over."""
        if response is not None:
            whole(self.settle())
        return response

    def settle(self) -> Parts[None]:
        """Puts the outcomes, or that the time is over, into the answer.

        What was settled before stays so, as in Apache Kafka: the ISR may be another one by now.
        """
        left = len(self._left)
        for number, appended in enumerate(self.pending):
            if number < left and not self._try_settle(appended):
                appended.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            _forget_place(appended)
            yield


def _forget_place(appended: Appended) -> None:
    """Leaves out of an answer with an error where the batch lies."""
    if appended.answer.error_code:
        appended.answer.base_offset = NO_OFFSET
        appended.answer.log_append_time_ms = NO_TIMESTAMP
