"""A coordinator's requests to other brokers: at most one in flight for each, one log line per failure.

mark_ready ──> the broker may have something to be sent ──take_requests──> in flight ──answered──> it may again
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container
from typing import Generic, Protocol, TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId

# These errors persist until an administrator fixes the configuration.
_MISCONFIGURED = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION})


class BrokerRequest(Protocol):
    """An effect: one request to one broker."""

    @property
    def broker(self) -> BrokerId: ...


E = TypeVar("E", bound=BrokerRequest)
K = TypeVar("K")


class OneInFlight(Generic[E, K]):
    """The requests without an outcome yet, each with the state that its sender keeps for it."""

    def __init__(self) -> None:
        self._in_flight: dict[BrokerId, tuple[E, K]] = {}
        self._ready: dict[BrokerId, None] = {}  # Brokers for which `take_requests` may find a request to send.

    def mark_ready(self, broker: BrokerId) -> None:
        """Record that a request may be waiting for the broker."""
        self._ready[broker] = None

    def take_requests(self, alive: Container[BrokerId], request: Callable[[BrokerId], tuple[E, K] | None]) -> list[E]:
        """Return the requests to send now; `request` creates a broker's next one, if any."""
        if not self._ready:
            return []
        ready, self._ready = self._ready, {}
        taken = []
        for broker in ready:
            if broker in self._in_flight or broker not in alive:
                continue
            created = request(broker)
            if created is not None:
                assert created[0].broker == broker and broker not in self._in_flight
                self._in_flight[broker] = created
                taken.append(created[0])
        return taken

    def on_answered(self, effect: E) -> K | None:
        """End a request and return its kept state, or None for a second end of the same request."""
        effect_in_flight, kept = self._in_flight.get(effect.broker, (None, None))
        if effect_in_flight is not effect:
            return None
        del self._in_flight[effect.broker]
        self._ready[effect.broker] = None
        return kept


class FailureLogLevels:
    """Log levels for failures of brokers: an error once if an administrator has to act."""

    def __init__(self) -> None:
        self._misconfigured: set[BrokerId] = set()  # Brokers with a logged error.

    def level(self, broker: BrokerId, failed: Collection[ErrorCode]) -> int | None:
        """Return the level for a broker that failed with these codes, if any; None if no line is needed."""
        if _MISCONFIGURED.isdisjoint(failed):
            self._misconfigured.discard(broker)
            return logging.WARNING if failed else None
        if broker in self._misconfigured:
            return None
        self._misconfigured.add(broker)
        return logging.ERROR
