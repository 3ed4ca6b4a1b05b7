"""The positions of one partition's log: what is written, durable, and below the high watermark.

    log start ≤ high watermark ≤ end,  durable end ≤ end

`end` is one past the last record written.  `durable_end` is what a sync has covered.  The high watermark bounds what
consumers see.  Where no other replica is in sync, records written with acks=all become visible once they are durable:
a consumer that had read a record before a power failure took it away would keep an offset that later names another
record.  Records written with acks 0 or 1 are visible at once, as in Apache Kafka, and with them whatever lies before.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.base.units import Offset

READ_UNCOMMITTED, READ_COMMITTED = 0, 1  # The isolation levels of a request (KIP-98).
ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)


@dataclass
class Positions:
    """The moving bounds of one log; the log itself owns its start and its end."""

    high_watermark: Offset
    durable_end: Offset

    def are_within(self, start: Offset, end: Offset) -> bool:
        """True if the relations above hold for a log that begins at `start` and ends at `end`."""
        return start <= self.high_watermark <= end and self.durable_end <= end

    def advance_high_watermark(self, end: Offset) -> bool:
        """Raises the high watermark to `end`; returns False if it was there already."""
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def truncated(self, end: Offset, durable_end: Offset) -> bool:
        """Lowers both with a follower's log that was cut off at `end`; returns True if the high watermark fell."""
        self.durable_end = min(self.durable_end, durable_end)
        if self.high_watermark <= end:
            return False
        self.high_watermark = end
        return True

    def started_at(self, offset: Offset) -> None:
        """Moves both to where a follower's log begins anew, empty."""
        self.high_watermark = self.durable_end = offset

    def advance_durable_end(self, end: Offset) -> bool:
        """Raises the durable end to `end`, as a sync covered all below; returns False if it was there already."""
        if end <= self.durable_end:
            return False
        self.durable_end = end
        return True
