"""The session's broker between two tests: what one test did to it must not reach the next.

A fault lasts as long as what asked for it: the test, or the fixture of a wider scope.  A broker that a test has
stopped, or that failed, is started again, and that test is told.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from contextlib import suppress

from odradek.testing.embedded_broker import Broker
from odradek.testing.faults import Fault
from odradek.testing.host import BrokerFailed

RULE = "start it again before the test ends, or use a Broker of your own"


class Shared:
    """The broker that all tests of a session share.  `test` is the name of the one that runs, or has just run."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.test = "a test"
        self._kept: dict[Hashable, list[Fault]] = {}  # The faults of fixtures that are still in use.

    def keep(self, fixture: Hashable, before: Collection[Fault]) -> None:
        """Keeps the faults that were asked for since `before` until the fixture ends."""
        self._kept[fixture] = [fault for fault in self.broker.faults.left if fault not in before]

    def ended(self, fixture: Hashable) -> None:
        """Clears the faults of a fixture."""
        for fault in self._kept.pop(fixture, ()):
            fault.clear()

    def clear(self) -> None:
        """Clears all faults but those of fixtures."""
        kept = {fault for faults in self._kept.values() for fault in faults}
        for fault in self.broker.faults.left:
            if fault not in kept:
                fault.clear()

    def complaint(self) -> str | None:
        """Returns what the test has to be told if the broker has stopped; None if it is running."""
        try:
            self.broker.check()
        except BrokerFailed as failed:
            with suppress(BrokerFailed):
                self.broker.stop()  # Says the same again.
            return f"the broker that all tests share failed in {self.test}: {failed.__cause__!r}"
        if self.broker.is_running:
            return None
        return f"{self.test} stopped the broker that all tests share: {RULE}"

    def start(self) -> None:
        """Starts the broker again: with its data, or with nothing if that keeps it from starting."""
        try:
            self.broker.start()
        except Exception:  # It is closed then, and its data removed; whoever did that is told.
            self.broker.start()
