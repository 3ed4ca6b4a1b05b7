"""What the handlers of requests between brokers have in common: who may ask, and how an answer is waited for."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, TypeVar

from odradek.api.request.call import Call
from odradek.api.request.outcome import Short, Wait
from odradek.api.request.sliced_answer import ANSWERED_AT_ONCE, nothing
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId
from odradek.core.broker.controller_queries import ControllerAsks
from odradek.core.controller.broker_request_batch import BecomeLeaderOrFollower, StopReplicas, ToBroker, UpdateMetadata
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.parked import Parked
from odradek.core.kernel.promise import Promise

T = TypeVar("T")

# Apache Kafka gives a broker up after controller.socket.timeout.ms, 30 s, and sends its request again.
ANSWER_MS_MAX = 60_000


def checked_asks(call: Call) -> ControllerAsks:
    """Returns the broker's queues.  Raises Refused with CLUSTER_AUTHORIZATION_FAILED for who is no broker."""
    call.check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    asks = call.broker.controller_asks
    assert asks is not None, "who has nobody to take them has none of these APIs"
    return asks


class FromController(Protocol):
    """What every request of a controller has."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int


def to_broker(
    call: Call, body: FromController, request: BecomeLeaderOrFollower | UpdateMetadata | StopReplicas
) -> ToBroker:
    """Return the request with its epochs.  Raise Refused with INVALID_REQUEST for a controller id that none can be."""
    if body.controller_id < 0:
        raise Refused(ErrorCode.INVALID_REQUEST, f"controller id {body.controller_id}")
    return ToBroker(call.broker.id, body.broker_epoch, BrokerId(body.controller_id), body.controller_epoch, request)


def kept(promise: Promise[T], call: Call) -> Generator[Wait, object, T]:
    """Waits for a promise and returns its value.

    Raises ConnectionAbortedError if it is not kept in time, or the broker stops: who asked has to ask again.
    """
    if promise.value is None:  # It may have been kept while another one was waited for.
        yield Parked(promise, call.now.steady + ANSWER_MS_MAX, nothing)
    if promise.value is None:
        raise ConnectionAbortedError("the request was not carried out in time")
    return promise.value


def carried_out(promise: Promise[T | Refused], call: Call) -> Generator[Wait, object, T]:
    """Waits as `kept` does.  Raises the Refused if that is the value."""
    value = yield from kept(promise, call)
    if isinstance(value, Refused):
        raise value
    return value


def by_length(answer: object, count: int) -> object:
    """Returns what a handler that has waited returns: an answer about few partitions is encoded at once."""
    return Short(answer) if count <= ANSWERED_AT_ONCE else answer
