"""WriteTxnMarkers, versions 1 and 2.

Writes commit or abort markers to the partitions that this broker leads. The coordinator on another broker sends it; so
does a tool, for a transaction that its coordinator has forgotten (KIP-664). Each partition gets its marker
independently. Brokers of a cluster also accept version 0, which Kafka before 2.8 sends.
"""

from __future__ import annotations

from typing import TypeAlias

from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP, WRITE_PARTS, Parts, pauses, settled
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.core.coordinators.durable import PendingWrite, PendingWrites
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.partition.leadership_state import Leadership
from odradek.core.transactions.transaction_markers import Marker
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.wire.schema.schema import maker

_result = maker(WritableTxnMarkerPartitionResult)

End: TypeAlias = PendingWrite | ErrorCode
Ends: TypeAlias = list[tuple[WritableTxnMarkerPartitionResult, PendingWrite]]


def handle(call: Call, body: WriteTxnMarkersRequest) -> Slices:
    if not call.may(Operation.ALTER, ResourceType.CLUSTER):
        call.check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    results: list[WritableTxnMarkerResult] = []
    ends: Ends = []
    last: dict[Leadership, PendingWrite] = {}  # The last marker of each partition.
    count = 0
    for marker_request in body.markers:
        count += 1 + sum(1 + len(topic.partition_indexes) for topic in marker_request.topics)
        if marker_request.topics:
            results.append((yield from _write(call, marker_request, ends, last)))
        yield PAUSE

    def answer() -> Parts[WriteTxnMarkersResponse]:
        while ends:  # Freed one by one, because freeing all of them takes long.
            result, written = ends.pop()
            result.error_code = _code_for_version(call, _code_of(written))
            if not len(ends) % CHEAP:
                yield
        return WriteTxnMarkersResponse(markers=results)

    writes = PendingWrites(last.values())
    return (yield from settled(writes, call.now, count, answer))


def refuse(call: Call, body: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[_refused(marker_request, code) for marker_request in body.markers])


def _write(
    call: Call, marker_request: WritableTxnMarker, ends: Ends, last: dict[Leadership, PendingWrite]
) -> Parts[WritableTxnMarkerResult]:
    """Write one marker to each of its partitions; also add the results of written ones to `ends`."""
    producer = ProducerIdAndEpoch(ProducerId(marker_request.producer_id), ProducerEpoch(marker_request.producer_epoch))
    marker = Marker(
        producer,
        marker_request.transaction_result,
        marker_request.coordinator_epoch,
        marker_request.transaction_version,
    )
    results_by_partition: dict[TopicPartition, WritableTxnMarkerPartitionResult] = {}
    call.free_later(results_by_partition)
    topics = []
    for topic in marker_request.topics:
        results = []
        for index in topic.partition_indexes:
            name = TopicPartition(TopicName(topic.name), index)
            result = results_by_partition.get(name)
            if result is None:
                result = results_by_partition[name] = _result(partition_index=index, error_code=ErrorCode.NONE)
                end = _end(call, name, marker)
                if isinstance(end, PendingWrite):
                    ends.append((result, end))
                    last[end.leading] = end
                    yield from pauses(WRITE_PARTS)
                else:
                    result.error_code = _code_for_version(call, end)
            results.append(result)
            yield
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
        yield
    return WritableTxnMarkerResult(producer_id=marker_request.producer_id, topics=topics)


def _end(call: Call, name: TopicPartition, marker: Marker) -> End:
    try:
        written = call.broker.end_transaction(name, marker, call.now)
    except Refused as refused:
        return refused.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if written is None else written


def _refused(marker_request: WritableTxnMarker, code: ErrorCode) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker_request.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[_result(partition_index=index, error_code=code) for index in topic.partition_indexes],
            )
            for topic in marker_request.topics
        ],
    )


def _code_of(written: PendingWrite) -> ErrorCode:
    if written.is_safe:
        return ErrorCode.NONE
    return written.lost or ErrorCode.REQUEST_TIMED_OUT


def _code_for_version(call: Call, code: ErrorCode) -> ErrorCode:
    """Return the code for the request's version.

    Kafka 0.11 stops its marker sender on a code that it does not know.
    """
    is_unknown = call.version == 0 and code == ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_unknown else code
