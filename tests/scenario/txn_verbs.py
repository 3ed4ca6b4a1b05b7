"""Verbs for transactional producers, and for readers of their committed records. Each producer remembers its identity.

A producer is its transactional id: p and p:2 are two processes of the transactional id p.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.base.units import ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.transactions.transaction_states import TransactionState
from odradek.record.builder import encode_batch
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from scenario.world import World, error, milliseconds, options
from support.transactional import committed, written

NO_PRODUCER = ProducerIdAndEpoch(ProducerId(-1), ProducerEpoch(-1))
OLD, NEW = "1", "2"  # Versions of transactions: one epoch for all, or one for each.


@dataclass
class Process:
    """One process that writes in transactions."""

    name: str
    version: str = NEW
    producer: ProducerIdAndEpoch = NO_PRODUCER
    sequences: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.name.partition(":")[0]

    @property
    def is_new(self) -> bool:
        return self.version == NEW

    def becomes(self, producer_id: int, epoch: int) -> None:
        """Use this producer id and epoch; sequences start at 0 in each epoch."""
        if self.producer != (producer_id, epoch):
            self.sequences.clear()
        self.producer = ProducerIdAndEpoch(ProducerId(producer_id), ProducerEpoch(epoch))


def process(world: World, name: str) -> Process:
    found = world.memory.setdefault(("producer", name), Process(name))
    assert isinstance(found, Process)
    return found


def format_producer(producer: ProducerIdAndEpoch) -> str:
    return f"{producer.id}/{producer.epoch}"


def producer_of(text: str) -> ProducerIdAndEpoch:
    producer_id, _, epoch = text.partition("/")
    return ProducerIdAndEpoch(ProducerId(int(producer_id)), ProducerEpoch(int(epoch)))


def place(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(TopicName(topic), int(partition))


# A producer begins.


def init(world: World, arguments: list[str]) -> None:
    """init p [version=2] [timeout=60s] [as=0/0] [two-phases=yes] [keep=yes]: it gets its id and epoch."""
    (name,), named = options(arguments)
    one = process(world, name)
    one.version = named.get("version", one.version)
    requested = producer_of(named["as"]) if "as" in named else NO_PRODUCER
    has_two_phases, keeps = "two-phases" in named, "keep" in named

    def outcome_of(answer: InitProducerIdResponse) -> str:
        if answer.error_code:
            return error(answer.error_code)
        one.becomes(answer.producer_id, answer.producer_epoch)
        kept = ProducerIdAndEpoch(
            ProducerId(answer.ongoing_txn_producer_id), ProducerEpoch(answer.ongoing_txn_producer_epoch)
        )
        return format_producer(one.producer) + (f", kept {format_producer(kept)}" if kept != NO_PRODUCER else "")

    request = InitProducerIdRequest(
        transactional_id=one.id,
        transaction_timeout_ms=milliseconds(named.get("timeout", "60s")),
        producer_id=requested.id,
        producer_epoch=requested.epoch,
        enable2_pc=has_two_phases,
        keep_prepared_txn=keeps,
    )
    world.send(name, request, 6 if has_two_phases or keeps else 4, InitProducerIdResponse, outcome_of)


# It writes.


def add(world: World, arguments: list[str]) -> None:
    """add p t-0 ...: what the older producers do before they write to a partition."""
    name, *places = arguments
    one = process(world, name)
    topics = [AddPartitionsToTxnTopic(name=at.topic, partitions=[at.partition]) for at in map(place, places)]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=one.id,
        v3_and_below_producer_id=one.producer.id,
        v3_and_below_producer_epoch=one.producer.epoch,
        v3_and_below_topics=topics,
    )

    def outcome_of(answer: AddPartitionsToTxnResponse) -> str:
        results = [each for topic in answer.results_by_topic_v3_and_below for each in topic.results_by_partition]
        return ", ".join(dict.fromkeys(error(each.partition_error_code) for each in results))

    world.send(name, request, 3, AddPartitionsToTxnResponse, outcome_of)


def write(world: World, arguments: list[str]) -> None:
    """write p t-0 a b [as=0/0] [sequence=0]: one batch; as it was before, or with a sequence that is not its next."""
    (name, at, *values), named = options(arguments)
    one, where = process(world, name), place(at)
    producer = producer_of(named["as"]) if "as" in named else one.producer
    sequence = int(named.get("sequence", one.sequences.get(where, 0)))
    records = encode_batch(
        [(None, value.encode(), (), world.harness.now.wall) for value in values],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    data = [PartitionProduceData(index=where.partition, records=records)]
    topic = TopicProduceData(name=where.topic, partition_data=data)
    if one.is_new:
        topic = TopicProduceData(topic_id=world.harness.broker.view.topics[where.topic].id, partition_data=data)
    request = ProduceRequest(transactional_id=one.id, acks=-1, timeout_ms=1000, topic_data=[topic])

    def outcome_of(answer: ProduceResponse) -> str:
        code = answer.responses[0].partition_responses[0].error_code
        if not code and "as" not in named:
            one.sequences[where] = sequence + len(values)
        return error(code)

    world.send(name, request, 13 if one.is_new else 10, ProduceResponse, outcome_of)


def offsets(world: World, arguments: list[str]) -> None:
    """offsets p g t-0=5 ...: a group's offsets, that count with the transaction; older producers announce them."""
    name, group, *places = arguments
    one = process(world, name)
    if not one.is_new:
        request = AddOffsetsToTxnRequest(
            transactional_id=one.id,
            producer_id=one.producer.id,
            producer_epoch=one.producer.epoch,
            group_id=group,
        )
        answer = world.harness.request(request, 3, AddOffsetsToTxnResponse)
        if answer.error_code:
            world.report(name, error(answer.error_code))
            return
    _commit_offsets(world, one, group, dict(each.split("=", 1) for each in places))


def _commit_offsets(world: World, one: Process, group: str, places: dict[str, str]) -> None:
    topics = [
        TxnOffsetCommitRequestTopic(
            name=place(at).topic,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=place(at).partition, committed_offset=int(offset), committed_metadata=""
                )
            ],
        )
        for at, offset in places.items()
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=one.id,
        group_id=group,
        producer_id=one.producer.id,
        producer_epoch=one.producer.epoch,
        topics=topics,
    )

    def outcome_of(answer: TxnOffsetCommitResponse) -> str:
        codes = [part.error_code for topic in answer.topics for part in topic.partitions]
        return ", ".join(dict.fromkeys(map(error, codes)))

    world.send(one.name, request, 5 if one.is_new else 3, TxnOffsetCommitResponse, outcome_of)


# It ends.


def end(world: World, arguments: list[str]) -> None:
    """end p commit|abort [as=0/0]: as it was before, if it says so."""
    (name, what), named = options(arguments)
    one = process(world, name)
    producer = producer_of(named["as"]) if "as" in named else one.producer

    def outcome_of(answer: EndTxnResponse) -> str:
        if answer.error_code or not one.is_new:
            return error(answer.error_code)
        if "as" not in named:
            one.becomes(answer.producer_id, answer.producer_epoch)
        return f"ok, goes on as {answer.producer_id}/{answer.producer_epoch}"

    request = EndTxnRequest(
        transactional_id=one.id, producer_id=producer.id, producer_epoch=producer.epoch, committed=what == "commit"
    )
    world.send(name, request, 5 if one.is_new else 4, EndTxnResponse, outcome_of)


# What others see.


def read(world: World, arguments: list[str]) -> None:
    """read t-0 ...: committed records; with `all` in front everything."""
    is_all = arguments[0] == "all"
    for at in arguments[1:] if is_all else arguments:
        values = (written if is_all else committed)(world.harness, place(at).topic, place(at).partition)
        world.report(at, b" ".join(values).decode() or "nothing")


def state(world: World, arguments: list[str]) -> None:
    """state p ...: what its coordinator knows of a transactional id."""
    for name in arguments:
        transaction = world.harness.broker.transactions.states.find_transaction(name)[1]
        touched = " ".join(map(str, sorted(transaction.partitions)))
        what = transaction.state.title + (f", {touched}" if touched else "")
        world.report(name, f"{format_producer(transaction.producer)} {what}")


def forgotten(world: World, arguments: list[str]) -> None:
    """forgotten p: its coordinator loses it, as with a power failure that takes the end of its log."""
    (name,) = arguments
    shard, _ = world.harness.broker.transactions.states.find_transaction(name)
    shard.remove(name, world.harness.now)


def unjoined(world: World, arguments: list[str]) -> None:
    """unjoined p t-1 ...: its coordinator loses that these joined, and so what came after."""
    name, *places = arguments
    shard, transaction = world.harness.broker.transactions.states.find_transaction(name)
    left = transaction.partitions - set(map(place, places))
    lost = transaction._replace(partitions=left, state=transaction.state if left else TransactionState.EMPTY)
    shard.put(lost, world.harness.now)


def exhausted(world: World, arguments: list[str]) -> None:
    """exhausted p: as after thirty thousand transactions."""
    (name,) = arguments
    shard, transaction = world.harness.broker.transactions.states.find_transaction(name)
    assert transaction.state is not TransactionState.ONGOING, "between transactions"
    last = transaction._replace(epoch=ProducerEpoch(32766))
    shard.put(last, world.harness.now)
    process(world, name).becomes(*last.producer)


VERBS = {
    "init": init,
    "add": add,
    "write": write,
    "offsets": offsets,
    "end": end,
    "read": read,
    "state": state,
    "forgotten": forgotten,
    "unjoined": unjoined,
    "exhausted": exhausted,
}
