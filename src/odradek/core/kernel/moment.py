"""Time as an argument: the core never reads a clock, its callers pass the time."""

from __future__ import annotations

from typing import NamedTuple

from odradek.base.units import TimestampMs


class Moment(NamedTuple):
    """One instant on two clocks, both in milliseconds.

    `wall` goes into records and may jump when the clock is set; `steady` only rises and is used for deadlines.
    """

    wall: TimestampMs
    steady: int
