"""Which connections were heard lately.  One that is alone keeps nobody waiting, and need not make way.

Alone is also who shares the broker with connections that speak now and then: followers and consumers that wait for
records, whose long polls end a few times in a second.
"""

from __future__ import annotations

from collections import deque

ALONE_MS = 300
CHANGES_MAX = 8  # From one connection to another, in ALONE_MS.


class Heard:
    """Told of each connection that sends something; all times are on the steady clock, in milliseconds."""

    def __init__(self) -> None:
        self.last: object | None = None  # The connection that sent last,
        self.changed_at = deque([0] * CHANGES_MAX, CHANGES_MAX)  # and when that was another one than before.

    def hear(self, connection: object, steady: int) -> None:
        if connection is not self.last:
            self.last = connection
            self.changed_at.append(steady)

    def forget(self, connection: object) -> None:
        """The connection is gone, and is not to be kept by us."""
        if connection is self.last:
            self.last = None

    def is_one(self, steady: int) -> bool:
        """True if almost all that was heard lately came from one connection."""
        return steady - self.changed_at[0] >= ALONE_MS
