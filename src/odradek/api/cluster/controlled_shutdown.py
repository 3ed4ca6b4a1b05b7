"""ControlledShutdown, versions 0 to 3: a broker that is about to stop has the controller let others lead.

Asked of the controller and by a broker: both directions.  Before version 2 the broker does not say its epoch.  Who is
not the controller answers NOT_CONTROLLER; Apache Kafka says STALE_CONTROLLER_EPOCH there, and its brokers look for the
controller again after any error.
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.api.request.inter_broker import by_length, checked_asks, kept
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_answer import CHEAP
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
    asks = checked_asks(call)
    ask = from_message(body)
    yield from kept(asks.asked.ask(ask), call)
    if ask.error:
        raise Refused(ask.error)
    remaining = []
    for number, one in enumerate(ask.answer or (), 1):
        remaining.append(_remaining(topic_name=one.topic, partition_index=one.partition))
        if not number % CHEAP:
            yield PAUSE
    answer = ControlledShutdownResponse(error_code=ErrorCode.NONE, remaining_partitions=remaining)
    return by_length(answer, len(remaining))


def refuse(call: Call, body: ControlledShutdownRequest, code: ErrorCode) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(error_code=code, remaining_partitions=[])


def from_message(request: ControlledShutdownRequest) -> ShutDown:
    """Returns what the broker asks of the controller."""
    return ShutDown(BrokerId(request.broker_id), request.broker_epoch)


def to_message(ask: ShutDown) -> ControlledShutdownRequest:
    """Returns the message of any version; the older ones leave the epoch out."""
    return ControlledShutdownRequest(broker_id=ask.broker, broker_epoch=ask.broker_epoch)


def from_response(response: ControlledShutdownResponse) -> list[TopicPartition]:
    """Returns the partitions that the broker still leads.  Raises Refused with the answer's error."""
    if response.error_code:
        raise Refused(error_code(response.error_code))
    return [TopicPartition(TopicName(one.topic_name), one.partition_index) for one in response.remaining_partitions]
