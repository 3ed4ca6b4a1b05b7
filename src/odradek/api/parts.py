"""Answers to requests of many elements are made in parts: a generator yields between elements and returns the whole.

Where it yields nothing is half done: others may have a turn there (api/outcome: Slices).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from odradek.api.outcome import Wait
from odradek.base.limits import SLICE_ELEMENTS
from odradek.core.parked import Condition, Parked

Result = TypeVar("Result")
Parts: TypeAlias = Generator[None, Any, Result]


def whole(parts: Parts[Result]) -> Result:
    """All parts at once."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: Result = end.value
            return result


def parked(
    condition: Condition, deadline: int, count: int, make: Callable[[], Parts[Result]]
) -> Generator[Wait, Any, Parked[Result] | Result]:
    """Waits for an event, then makes the answer about `count` elements.

    One that is long is made in slices, and what follows on the connection waits for it; a short one is made at once.
    """
    if count <= SLICE_ELEMENTS:
        return Parked(condition, deadline, lambda: whole(make()))
    yield Parked(condition, deadline, nothing)
    return (yield from make())


def nothing() -> None:
    """The event alone is waited for."""
