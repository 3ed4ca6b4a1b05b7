"""How far one partition's log has come: written, durable, visible.

    log start ≤ high watermark ≤ end,  durable end ≤ end

`end` is one past the last record written.  `durable_end` is what a sync has covered.  The high watermark bounds what
consumers see.  On a partition without followers, records written with acks=all become visible once they are durable:
a consumer that had read a record before a power failure took it away would keep an offset that later names another
record.  Records written with acks 0 or 1 are visible at once, as in Apache Kafka, and with them whatever lies before.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.base.units import Offset

READ_UNCOMMITTED, READ_COMMITTED = 0, 1  # Up to which of them a request reads: its isolation level (KIP-98).
ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)


@dataclass
class Positions:
    """The moving bounds of one log; the log itself owns its start and its end."""

    high_watermark: Offset
    durable_end: Offset

    def are_within(self, start: Offset, end: Offset) -> bool:
        """True if the relations above hold for a log that begins at `start` and ends at `end`."""
        return start <= self.high_watermark <= end and self.durable_end <= end

    def made_visible(self, end: Offset) -> bool:
        """Raise the high watermark to `end`; False if it was there already."""
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def made_durable(self, end: Offset) -> bool:
        """A sync covered everything below `end`; False if that was known already."""
        if end <= self.durable_end:
            return False
        self.durable_end = end
        return True
