"""WriteTxnMarkers as a coordinator sends it to another broker, and the result from the response."""

from __future__ import annotations

from odradek.api.request.topic_states import by_topic
from odradek.base.errors import ErrorCode, error_code
from odradek.base.units import ProducerId, TopicName, TopicPartition
from odradek.core.transactions.transaction_markers import MarkersOutcome, WriteMarkers
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def to_message(effect: WriteMarkers) -> WriteTxnMarkersRequest:
    """Return the message, which is the same in each version."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer.id,
                producer_epoch=marker.producer.epoch,
                transaction_result=marker.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in by_topic({name: name.partition for name in names}).items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.version,
            )
            for marker, names in effect.markers
        ]
    )


def outcome(response: WriteTxnMarkersResponse) -> MarkersOutcome:
    """Return the error code of each partition."""
    codes: dict[tuple[ProducerId, TopicPartition], ErrorCode] = {}
    for marker in response.markers:
        for topic in marker.topics:
            for partition_result in topic.partitions:
                name = TopicPartition(TopicName(topic.name), partition_result.partition_index)
                codes[ProducerId(marker.producer_id), name] = error_code(partition_result.error_code)
    return codes
