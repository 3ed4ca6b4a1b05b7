"""Positions of one partition's log: written end, durable end and high watermark.

    log start ≤ high watermark ≤ end,  durable end ≤ end

`end` is one past the last record written.  `durable_end` is one past the last record that a sync has covered.  The high
watermark bounds what consumers see.  While no other replica is in sync, records written with acks=all become visible
once they are durable.  Otherwise a consumer could read a record that a power failure then removes, and its offset would
later name another record.  Records written with acks 0 or 1 are visible at once, as in Apache Kafka, and so are all
records before them.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.base.units import Offset

READ_UNCOMMITTED, READ_COMMITTED = 0, 1  # The isolation levels of a request (KIP-98).
ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)


@dataclass
class Positions:
    """Moving bounds of one log; the log itself owns its start and its end."""

    high_watermark: Offset
    durable_end: Offset

    def are_within(self, start: Offset, end: Offset) -> bool:
        """Return whether the relations above hold for a log from `start` to `end`."""
        return start <= self.high_watermark <= end and self.durable_end <= end

    def advance_high_watermark(self, end: Offset) -> bool:
        """Advance the high watermark to `end`; return False if it was there already."""
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def truncated(self, end: Offset, durable_end: Offset) -> bool:
        """Lower both bounds after a follower's log was truncated; return whether the high watermark fell."""
        assert durable_end <= end, "nothing is durable beyond the end of the log"
        self.durable_end = min(self.durable_end, durable_end)
        if self.high_watermark <= end:
            return False
        self.high_watermark = end
        return True

    def started_at(self, offset: Offset) -> None:
        """Move both bounds to the start of a follower's log that restarts empty."""
        self.high_watermark = self.durable_end = offset

    def advance_durable_end(self, end: Offset) -> bool:
        """Advance the durable end to `end` after a sync; return False if it was there already."""
        if end <= self.durable_end:
            return False
        self.durable_end = end
        return True
