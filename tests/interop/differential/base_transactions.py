"""Requests of idempotent producers and of transactions, with a plain one for every API."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from differential.base_groups import Commit
from differential.batches import THEN_MS, headed
from differential.steps import NO_SUCH_PRODUCER, id_of
from odradek.base.units import TimestampMs
from odradek.base.uuids import ZERO_UUID
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.record_batch import TRANSACTIONAL
from odradek.wire.messages import describe_producers, txn_offset_commit
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.describe_producers import DescribeProducersRequest
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from odradek.wire.schema.api_keys import ApiKey

ALL = -1
MINUTE_MS = 60_000
BROKERS_SINCE = 4  # Of AddPartitionsToTxn.
Parts = Sequence[tuple[str, list[int]]]


def init(
    transactional_id: str | None,
    producer_id: int = -1,
    epoch: int = -1,
    *,
    timeout_ms: int = MINUTE_MS,
    two_phase: bool = False,
    keep: bool = False,
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        enable2_pc=two_phase,
        keep_prepared_txn=keep,
    )


def numbered(
    producer_id: int, epoch: int, sequence: int, count: int = 1, *, transactional: bool = False, **fields: int
) -> bytes:
    """Return a batch of an idempotent producer."""
    records: list[RecordIn] = [(b"k", b"v%d" % number, (), TimestampMs(THEN_MS)) for number in range(count)]
    attributes = TRANSACTIONAL if transactional else 0
    known = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence, "attributes": attributes}
    return headed(bytes(encode_batch(records)), **(known | fields))


def send(
    version: int, topic: str, partition: int, records: bytes, transactional_id: str | None = None, *, acks: int = ALL
) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=records)]
    topic_id = id_of(topic) if version >= 13 else ZERO_UUID
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=9000,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)],
    )


def transaction(
    transactional_id: str, producer_id: int, epoch: int, *topics: tuple[str, list[int]], verify: bool = False
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        verify_only=verify,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=parts) for name, parts in topics],
    )


def add(version: int, *transactions: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnRequest:
    """Return an AddPartitionsToTxn request; before version 4, only for the first transaction."""
    if version >= BROKERS_SINCE:
        return AddPartitionsToTxnRequest(transactions=list(transactions))
    (only,) = transactions
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=only.transactional_id,
        v3_and_below_producer_id=only.producer_id,
        v3_and_below_producer_epoch=only.producer_epoch,
        v3_and_below_topics=only.topics,
    )


def add_offsets(transactional_id: str, producer_id: int, epoch: int, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group
    )


def commit_offsets(
    transactional_id: str,
    producer_id: int,
    epoch: int,
    group: str,
    *commits: Commit,
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
) -> TxnOffsetCommitRequest:
    topics: dict[str, list[txn_offset_commit.TxnOffsetCommitRequestPartition]] = {}
    for topic, partition, offset, metadata in commits:
        topics.setdefault(topic, []).append(
            txn_offset_commit.TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(name=name, topic_id=id_of(name), partitions=parts)
            for name, parts in topics.items()
        ],
    )


def end(transactional_id: str, producer_id: int, epoch: int, commit: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
    )


def marker(
    producer_id: int,
    epoch: int,
    *topics: tuple[str, list[int]],
    commit: bool = True,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=parts) for name, parts in topics],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def mark(*markers: WritableTxnMarker) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(markers=list(markers))


def describe_transactions(*transactional_ids: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=list(transactional_ids))


def list_transactions(
    states: Sequence[str] = (), producer_ids: Sequence[int] = (), duration_ms: int = -1, pattern: str | None = None
) -> ListTransactionsRequest:
    return ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )


def producers_of(*topics: tuple[str, list[int]]) -> DescribeProducersRequest:
    requested = [describe_producers.TopicRequest(name=name, partition_indexes=parts) for name, parts in topics]
    return DescribeProducersRequest(topics=requested)


_UNKNOWN_PRODUCER = ("nobody", NO_SUCH_PRODUCER, 3)

PLAIN_OF_TRANSACTIONS: dict[int, Callable[[int], object]] = {
    ApiKey.INIT_PRODUCER_ID: lambda version: init(None),
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda version: add(version, transaction(*_UNKNOWN_PRODUCER, ("base", [0]))),
    ApiKey.ADD_OFFSETS_TO_TXN: lambda version: add_offsets(*_UNKNOWN_PRODUCER, "base"),
    ApiKey.END_TXN: lambda version: end(*_UNKNOWN_PRODUCER),
    ApiKey.WRITE_TXN_MARKERS: lambda version: mark(marker(NO_SUCH_PRODUCER, 3, ("never", [0]))),
    ApiKey.TXN_OFFSET_COMMIT: lambda version: commit_offsets(*_UNKNOWN_PRODUCER, "base-txn", ("base", 0, 5, "m")),
    ApiKey.DESCRIBE_PRODUCERS: lambda version: producers_of(("base", [0])),
    ApiKey.DESCRIBE_TRANSACTIONS: lambda version: describe_transactions("never"),
    ApiKey.LIST_TRANSACTIONS: lambda version: list_transactions(["Dead"]),
}
