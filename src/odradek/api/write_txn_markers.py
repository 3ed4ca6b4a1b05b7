"""WriteTxnMarkers, versions 1 and 2: how transactions ended, for the partitions that are led here.

From the coordinator on another broker, or from a tool that ends what its coordinator has forgotten (KIP-664).
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.api.call import Call
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.core.access import Operation, ResourceType
from odradek.core.coordinators.durable import AllWritten, Written
from odradek.core.coordinators.state_log import Producer
from odradek.core.parked import Parked
from odradek.core.transactions.markers import Marker
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Ends = list[tuple[WritableTxnMarker, dict[TopicPartition, Written | ErrorCode]]]


def handle(call: Call, body: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse | Parked[WriteTxnMarkersResponse]:
    if not call.may(Operation.ALTER, ResourceType.CLUSTER):
        call.check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    ends: Ends = [(one, _write(call, one)) for one in body.markers if one.topics]
    writes = [end for _, written in ends for end in written.values() if isinstance(end, Written)]
    return AllWritten(writes).then(lambda: _answer(ends), call.now)


def refuse(call: Call, body: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    return _answer([(one, dict.fromkeys(_names(one), code)) for one in body.markers])


def _names(one: WritableTxnMarker) -> Sequence[TopicPartition]:
    return [TopicPartition(TopicName(topic.name), index) for topic in one.topics for index in topic.partition_indexes]


def _write(call: Call, one: WritableTxnMarker) -> dict[TopicPartition, Written | ErrorCode]:
    producer = Producer(ProducerId(one.producer_id), ProducerEpoch(one.producer_epoch))
    marker = Marker(producer, one.transaction_result, one.coordinator_epoch, one.transaction_version)
    ends: dict[TopicPartition, Written | ErrorCode] = {}
    for name in dict.fromkeys(_names(one)):
        try:
            written = call.broker.end_transaction(name, marker, call.now)
            ends[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if written is None else written
        except Refused as refused:
            ends[name] = refused.code
    return ends


def _answer(ends: Ends) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[_result(one, written) for one, written in ends])


def _result(one: WritableTxnMarker, ends: dict[TopicPartition, Written | ErrorCode]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=one.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=_code(ends[TopicPartition(TopicName(topic.name), index)])
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in one.topics
        ],
    )


def _code(end: Written | ErrorCode) -> ErrorCode:
    if not isinstance(end, Written):
        return end
    if end.is_safe:
        return ErrorCode.NONE
    return ErrorCode.KAFKA_STORAGE_ERROR if end.failure is not None else ErrorCode.REQUEST_TIMED_OUT
