"""Common code of the handlers of requests between brokers: authorization, and waiting for the answer."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, TypeVar

from odradek.api.request.call import Call
from odradek.api.request.outcome import ShortAnswer, Wait
from odradek.api.request.sliced_response import ANSWERED_AT_ONCE, nothing
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId
from odradek.core.broker.controller_queries import ControllerQueries
from odradek.core.controller.broker_request_batch import (
    BecomeLeaderOrFollower,
    ControlRequest,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.promise import Promise
from odradek.core.kernel.purgatory import ParkedRequest

T = TypeVar("T")

# Apache Kafka times out after controller.socket.timeout.ms, 30 s, and sends its request again.
ANSWER_MS_MAX = 60_000


def authorized_queries(call: Call) -> ControllerQueries:
    """Return the broker's queues. Raise Refused(CLUSTER_AUTHORIZATION_FAILED) if the client is no broker."""
    call.check(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    queries = call.broker.controller_queries
    assert queries is not None, "a broker without a controller does not serve these APIs"
    return queries


class AbstractControlRequest(Protocol):
    """The fields that every controller request has."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int


def to_broker(
    call: Call, body: AbstractControlRequest, request: BecomeLeaderOrFollower | UpdateMetadata | StopReplicas
) -> ControlRequest:
    """Return the request with its epochs.

    Raise Refused(INVALID_REQUEST) if the controller id is not valid.
    """
    if body.controller_id < 0:
        raise Refused(ErrorCode.INVALID_REQUEST, f"invalid controller id {body.controller_id}")
    return ControlRequest(
        call.broker.id, body.broker_epoch, BrokerId(body.controller_id), body.controller_epoch, request
    )


def await_promise(promise: Promise[T], call: Call) -> Generator[Wait, object, T]:
    """Wait for a promise and return its value.

    Raise ConnectionAbortedError if it is not kept in time, or the broker stops: the client then has to retry.
    """
    if promise.value is None:  # It may have been kept during the wait for another one.
        yield ParkedRequest(promise, call.now.steady + ANSWER_MS_MAX, nothing)
    if promise.value is None:
        raise ConnectionAbortedError("the request timed out")
    return promise.value


def await_result(promise: Promise[T | Refused], call: Call) -> Generator[Wait, object, T]:
    """Wait as `await_promise` does. Raise the Refused if that is the value."""
    value = yield from await_promise(promise, call)
    if isinstance(value, Refused):
        raise value
    return value


def by_length(answer: object, count: int) -> object:
    """Return a waiting handler's answer; one about few partitions is encoded at once."""
    return ShortAnswer(answer) if count <= ANSWERED_AT_ONCE else answer
