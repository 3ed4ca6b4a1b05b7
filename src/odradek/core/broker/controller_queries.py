"""Queues of requests between brokers and the controller, from API handlers to the shell.

    a handler ──> submit ──> take_queries ──> the shell handles it ──> complete ──> the request is answered

`ControlRequestQueue` queues the controller's requests to this broker, `ControllerQueryQueue` the brokers' requests to
this broker as the controller.  A handler waits for the promise; each query taken must be completed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from odradek.base.errors import Refused
from odradek.base.units import BrokerId
from odradek.core.broker.replicas import Errors
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import ControlRequest
from odradek.core.kernel.promise import Promise
from odradek.core.kernel.purgatory import Purgatory
from odradek.core.transactions.producer_ids import ProducerIdBlock

Q = TypeVar("Q")
A = TypeVar("A")

# Takes a block of producer ids for a broker with that id and broker epoch; called in a thread.  Raises Refused with
# NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH.
TakeProducerIds = Callable[[BrokerId, int], ProducerIdBlock]


class PendingQuery(Generic[Q, A]):
    """One query taken from its queue."""

    def __init__(self, query: Q, purgatory: Purgatory) -> None:
        self.query = query
        self.promise = Promise[A]()
        self._purgatory = purgatory

    def complete(self, answer: A) -> None:
        """Answer the waiting request; called once, on the loop."""
        self.promise.keep(self._purgatory, answer)


class QueryQueue(Generic[Q, A]):
    """Queue of queries whose requests are parked in the broker's purgatory."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory
        self._pending: list[PendingQuery[Q, A]] = []

    def submit(self, query: Q) -> Promise[A]:
        """Append a query to the queue and return the promise of its answer."""
        pending = PendingQuery[Q, A](query, self._purgatory)
        self._pending.append(pending)
        return pending.promise

    def take_queries(self) -> list[PendingQuery[Q, A]]:
        """Return the queued queries, each once, in their order."""
        taken, self._pending = self._pending, []
        return taken


class ControlRequestQueue(QueryQueue[ControlRequest, Errors | Refused]):
    """Controller requests to this broker, applied one after the other.

    The answer is the failures by partition, or the Refused of `Broker.apply_controller_request`.
    """


class ControllerQueryQueue(QueryQueue[events.ControllerQuery[Any], events.ControllerQuery[Any]]):
    """Broker requests to the controller, answered with the event itself, including its answer or error."""


class ControllerQueries:
    """All requests between this broker and the controller, in both roles."""

    def __init__(self, purgatory: Purgatory, take_producer_ids: TakeProducerIds) -> None:
        self.control_requests = ControlRequestQueue(purgatory)
        self.broker_requests = ControllerQueryQueue(purgatory)
        self.take_producer_ids = take_producer_ids
