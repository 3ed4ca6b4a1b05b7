"""Tables of Markdown, and what stands in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from show import rate
from work import Numbers


def both(ours: Numbers, theirs: Numbers, name: str) -> str:
    return f"{time(ours[name])} : {time(theirs[name])}" if name in ours and name in theirs else ""


def one(numbers: Numbers) -> str:
    return " / ".join(time(numbers[name]) for name in ("p50", "p99", "p99.9") if name in numbers)


def per_second(value: float) -> str:
    return f"{rate(value)}/s"


def time(microseconds: float) -> str:
    return f"{microseconds / 1000:.3g} ms" if microseconds >= 1000 else f"{microseconds:.0f} µs"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
