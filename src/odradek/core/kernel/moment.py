"""Time as an argument.  The core never reads a clock: whoever calls it says what time it is."""

from __future__ import annotations

from typing import NamedTuple

from odradek.base.units import TimestampMs


class Moment(NamedTuple):
    """One instant on two clocks, both in milliseconds.

    `wall` goes into records and may jump when the clock is set; `steady` only rises and is what deadlines are made of.
    """

    wall: TimestampMs
    steady: int
