"""Recently active connections; a connection that is alone delays nobody and need not yield.

A connection also counts as alone if the others send only now and then. Such others are followers and consumers waiting
for records, whose long polls end a few times a second.
"""

from __future__ import annotations

from collections import deque

ALONE_MS = 300
CHANGES_MAX = 8  # From one connection to another, within ALONE_MS.


class ActiveConnections:
    """Record of which connection sent last; all times are on the steady clock, in milliseconds."""

    def __init__(self) -> None:
        self.last: object | None = None  # The connection that sent last,
        self.changed_at = deque([0] * CHANGES_MAX, CHANGES_MAX)  # and when it changed.

    def on_received(self, connection: object, steady: int) -> None:
        if connection is not self.last:
            self.last = connection
            self.changed_at.append(steady)

    def forget(self, connection: object) -> None:
        """Drop the reference to a connection that was closed."""
        if connection is self.last:
            self.last = None

    def is_one(self, steady: int) -> bool:
        """Return whether almost all recent requests came from one connection."""
        return steady - self.changed_at[0] >= ALONE_MS
