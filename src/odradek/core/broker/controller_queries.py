"""What brokers and the controller ask of each other, between the handlers of the requests and who takes them in.

    a handler ──> ask ──> take ──> who takes it in ──> ended ──> the request is answered

`ToldByController` has what the controller tells this broker, `AskedOfController` what brokers ask of it as the
controller.  A handler waits for the promise; who takes a question owes it an end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from odradek.base.errors import Refused
from odradek.base.units import BrokerId
from odradek.core.broker.replicas import Errors
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import ToBroker
from odradek.core.kernel.parked import ParkingLot
from odradek.core.kernel.promise import Promise
from odradek.core.transactions.producer_ids import ProducerIdBlock

Q = TypeVar("Q")
A = TypeVar("A")

# Takes a block of producer ids for a broker of that id and broker epoch; called in a thread.  Raises Refused with
# NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH.
TakeProducerIds = Callable[[BrokerId, int], ProducerIdBlock]


class Asked(Generic[Q, A]):
    """One question that was taken from its queue."""

    def __init__(self, question: Q, lot: ParkingLot) -> None:
        self.question = question
        self.promise = Promise[A]()
        self._lot = lot

    def ended(self, answer: A) -> None:
        """Answers the request that waits; called once, on the loop."""
        self.promise.keep(self._lot, answer)


class Questions(Generic[Q, A]):
    """A queue of questions, whose requests wait in the broker's lot."""

    def __init__(self, lot: ParkingLot) -> None:
        self._lot = lot
        self._asked: list[Asked[Q, A]] = []

    def ask(self, question: Q) -> Promise[A]:
        """Puts a question behind all others and returns the promise of its answer."""
        asked = Asked[Q, A](question, self._lot)
        self._asked.append(asked)
        return asked.promise

    def take(self) -> list[Asked[Q, A]]:
        """Returns the questions that wait, each once, in their order."""
        taken, self._asked = self._asked, []
        return taken


class ToldByController(Questions[ToBroker, Errors | Refused]):
    """What the controller tells this broker; answered by the failures by partition, or by what `Broker.told` raised.

    One is taken in after the other.
    """


class AskedOfController(Questions[events.Ask[Any], events.Ask[Any]]):
    """What brokers ask of the controller; answered by the event itself, which has its answer or error by then."""


class ControllerAsks:
    """All that passes through one broker, which may be told, and asked as the controller."""

    def __init__(self, lot: ParkingLot, take_producer_ids: TakeProducerIds) -> None:
        self.told = ToldByController(lot)
        self.asked = AskedOfController(lot)
        self.take_producer_ids = take_producer_ids
