"""Which connections were heard lately.  One that is alone keeps nobody waiting, and need not make way."""

from __future__ import annotations

ALONE_MS = 300


class Heard:
    """Told of each connection that sends something; all times are on the steady clock, in milliseconds."""

    def __init__(self) -> None:
        self.last: object | None = None  # The connection that sent last,
        self.another_at = 0  # and when that was another one than before.

    def hear(self, connection: object, steady: int) -> None:
        if connection is not self.last:
            self.last, self.another_at = connection, steady

    def forget(self, connection: object) -> None:
        """The connection is gone, and is not to be kept by us."""
        if connection is self.last:
            self.last = None

    def is_one(self, steady: int) -> bool:
        """True if all that was heard lately came from one connection."""
        return steady - self.another_at >= ALONE_MS
