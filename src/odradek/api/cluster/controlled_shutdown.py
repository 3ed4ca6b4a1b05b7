"""ControlledShutdown, versions 0 to 3.

Moves leadership away from a broker that is about to stop. Brokers send this request to the controller; Odradek
implements both sides. A broker that is not the controller returns NOT_CONTROLLER. Apache Kafka returns
STALE_CONTROLLER_EPOCH in this case; its brokers look up the controller again after any error.

- v2: the broker sends its broker epoch.
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.api.request.inter_broker import authorized_queries, await_promise, by_length
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP
from odradek.base.errors import ErrorCode, Refused, error_code
from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.core.controller.events import ShutDown
from odradek.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from odradek.wire.schema.schema import maker

_remaining = maker(RemainingPartition)


def handle(call: Call, body: ControlledShutdownRequest) -> Slices:
    queries = authorized_queries(call)
    event = from_message(body)
    yield from await_promise(queries.broker_requests.submit(event), call)
    if event.error:
        raise Refused(event.error)
    remaining = []
    for number, partition in enumerate(event.answer or (), 1):
        remaining.append(_remaining(topic_name=partition.topic, partition_index=partition.partition))
        if not number % CHEAP:
            yield PAUSE
    answer = ControlledShutdownResponse(error_code=ErrorCode.NONE, remaining_partitions=remaining)
    return by_length(answer, len(remaining))


def refuse(call: Call, body: ControlledShutdownRequest, code: ErrorCode) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(error_code=code, remaining_partitions=[])


def from_message(request: ControlledShutdownRequest) -> ShutDown:
    """Return the broker's request to the controller."""
    return ShutDown(BrokerId(request.broker_id), request.broker_epoch)


def to_message(event: ShutDown) -> ControlledShutdownRequest:
    """Return the message, in any version; older versions omit the epoch."""
    return ControlledShutdownRequest(broker_id=event.broker, broker_epoch=event.broker_epoch)


def from_response(response: ControlledShutdownResponse) -> list[TopicPartition]:
    """Return the partitions that the broker still leads. Raise Refused with the response's error."""
    if response.error_code:
        raise Refused(error_code(response.error_code))
    return [
        TopicPartition(TopicName(partition.topic_name), partition.partition_index)
        for partition in response.remaining_partitions
    ]
