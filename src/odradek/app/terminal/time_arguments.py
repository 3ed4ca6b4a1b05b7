"""Times and durations on the command line."""

from __future__ import annotations

import re
from datetime import datetime

from odradek.base.units import DAY_MS, HOUR_MS, INT64_MAX, MINUTE_MS, SECOND_MS

_UNITS = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_SHORT = re.compile(r"(\d+)(ms|s|m|h|d)", re.ASCII)
_ISO = re.compile(r"P(?=\d|T\d)(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{1,9}))?S)?)?", re.ASCII)


def moment_ms(text: str) -> int:
    """Parse ISO 8601, 2026-11-21 or 2026-11-21T14:00: local without a zone, UTC with Z. Raise ValueError."""
    try:
        return max(0, int(datetime.fromisoformat(text.strip()).timestamp() * 1000))
    except (OverflowError, OSError) as error:
        raise ValueError(str(error)) from None


def duration_ms(text: str) -> int:
    """Parse 90s, 10m, 2h, 1d, 500ms, or P1DT2H30M as in Kafka's tools.

    Raise ValueError, also for durations beyond int64.
    """
    short = _SHORT.fullmatch(text.strip())
    duration = int(short[1]) * _UNITS[short[2]] if short is not None else _iso_ms(text)
    if duration > INT64_MAX:
        raise ValueError(f"{text!r} is too long")
    return duration


def _iso_ms(text: str) -> int:
    iso = _ISO.fullmatch(text.strip().upper())
    if iso is None:
        raise ValueError(f"{text!r} is not a duration")
    days, hours, minutes, seconds = (int(part or 0) for part in iso.groups()[:4])
    millis = int((iso[5] or "0").ljust(3, "0")[:3])
    return days * DAY_MS + hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS + millis
