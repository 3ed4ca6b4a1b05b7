"""What a coordinator asks other brokers: at most one request in flight for each, and one line about one that fails.

wants ──> the broker may have something to be sent ──take──> in flight ──answered──> it may again
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container
from typing import Generic, Protocol, TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId

# These do not pass by themselves: somebody has to see to them.
_MISCONFIGURED = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION})


class ToBroker(Protocol):
    """An effect: one request to one broker."""

    @property
    def broker(self) -> BrokerId: ...


E = TypeVar("E", bound=ToBroker)
K = TypeVar("K")


class OneInFlight(Generic[E, K]):
    """The requests that have no outcome yet, each with what its sender keeps of it until then."""

    def __init__(self) -> None:
        self._in_flight: dict[BrokerId, tuple[E, K]] = {}
        self._ready: dict[BrokerId, None] = {}  # Brokers for which `take` may find something to send.

    def wants(self, broker: BrokerId) -> None:
        """Notes that something may wait to be sent to the broker."""
        self._ready[broker] = None

    def take(self, alive: Container[BrokerId], request: Callable[[BrokerId], tuple[E, K] | None]) -> list[E]:
        """Returns what brokers are to be asked now; `request` makes the next one of a broker, if there is any."""
        if not self._ready:
            return []
        ready, self._ready = self._ready, {}
        taken = []
        for broker in ready:
            if broker in self._in_flight or broker not in alive:
                continue
            made = request(broker)
            if made is not None:
                self._in_flight[broker] = made
                taken.append(made[0])
        return taken

    def answered(self, effect: E) -> K | None:
        """Ends a request and returns what was kept of it; None for a second end of the same one."""
        effect_in_flight, kept = self._in_flight.get(effect.broker, (None, None))
        if effect_in_flight is not effect:
            return None
        del self._in_flight[effect.broker]
        self._ready[effect.broker] = None
        return kept


class Complaints:
    """At which level a failure of a broker is logged: as an error once, if somebody has to see to it."""

    def __init__(self) -> None:
        self._misconfigured: set[BrokerId] = set()  # Those of which an error line told.

    def level(self, broker: BrokerId, failed: Collection[ErrorCode]) -> int | None:
        """Returns the level for a broker that failed with these codes, or with none; None if no line is needed."""
        if _MISCONFIGURED.isdisjoint(failed):
            self._misconfigured.discard(broker)
            return logging.WARNING if failed else None
        if broker in self._misconfigured:
            return None
        self._misconfigured.add(broker)
        return logging.ERROR
