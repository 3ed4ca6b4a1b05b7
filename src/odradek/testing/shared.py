"""The session's broker between tests: changes by one test must not affect the next.

A fault lasts as long as the test or fixture that requested it. A broker that was stopped by a test or failed is
restarted, and that test gets an error.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from contextlib import suppress

from odradek.testing.embedded_broker import Broker
from odradek.testing.faults import Fault
from odradek.testing.host import BrokerFailed

RULE = "restart it before the test ends, or use a separate Broker"


class Shared:
    """The broker shared by all tests of a session; `test` is the name of the current or last test."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.test = "a test"
        self._kept: dict[Hashable, list[Fault]] = {}  # The faults of fixtures that are still in use.

    def keep(self, fixture: Hashable, before: Collection[Fault]) -> None:
        """Keep the faults added since `before` until the fixture ends."""
        self._kept[fixture] = [fault for fault in self.broker.faults.left if fault not in before]

    def clear_faults_of(self, fixture: Hashable) -> None:
        """Clear the faults of a fixture."""
        for fault in self._kept.pop(fixture, ()):
            fault.clear()

    def clear(self) -> None:
        """Clear all faults except those of fixtures."""
        kept = {fault for faults in self._kept.values() for fault in faults}
        for fault in self.broker.faults.left:
            if fault not in kept:
                fault.clear()

    def failure_message(self) -> str | None:
        """Return the error message for the test if the broker has stopped, or None if it is running."""
        try:
            self.broker.check()
        except BrokerFailed as failed:
            with suppress(BrokerFailed):
                self.broker.stop()  # Raises the same error again.
            return f"the shared broker failed in {self.test}: {failed.__cause__!r}"
        if self.broker.is_running:
            return None
        return f"{self.test} stopped the shared broker: {RULE}"

    def start(self) -> None:
        """Start the broker with its data, or without it if the data prevents a start."""
        try:
            self.broker.start()
        except Exception:  # The broker is closed then and its data removed; the responsible test gets an error.
            self.broker.start()
