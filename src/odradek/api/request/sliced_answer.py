"""Answers to requests of many elements are made in parts: a generator yields between elements and returns the whole.

Where it yields nothing is half done: other requests may have a turn there (api/request/outcome: Slices), and what was
found before may be gone afterwards.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

from odradek.api.request.outcome import PAUSE, Wait
from odradek.base.limits import SLICE_ELEMENTS
from odradek.core.coordinators.durable import WRITE_TIMEOUT_MS
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.parked import Condition, Parked

Result = TypeVar("Result")
Parts: TypeAlias = Generator[None, Any, Result]

SORTED_AT_ONCE = 2_000  # Texts that are sorted at once: a millisecond.
ANSWERED_AT_ONCE = SLICE_ELEMENTS * 5 // 4  # A slice of partitions, and their topics.
CHEAP = 8  # Elements in one part, where next to nothing is done with each.
WRITE_PARTS = 4  # Parts that writing one batch to the log is worth.


class Settles(Condition, Protocol):
    """Writes that have to become safe: Written, AllWritten, Settled."""

    @property
    def is_settled(self) -> bool:
        """True if no write has to be waited for any more."""


def whole(parts: Parts[Result]) -> Result:
    """Makes all parts at once and returns the whole."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: Result = end.value
            return result


def first_wait(parts: Generator[Wait, Any, object]) -> Wait:
    """Makes parts until something has to be waited for.  Raises StopIteration with the whole if nothing has."""
    while True:
        wait = next(parts)
        if wait is not PAUSE:
            return wait


def pauses(count: int) -> Parts[None]:
    """Yields as often as the work that was just done is worth in parts."""
    for _ in range(count):
        yield


def in_order(texts: Iterable[str]) -> Parts[list[str]]:
    """Returns the texts sorted, each once."""
    seen: set[str] = set()
    for number, text in enumerate(texts, 1):
        seen.add(text)
        if not number % CHEAP:
            yield
    every = list(seen)
    runs = []
    for start in range(0, len(every), SORTED_AT_ONCE):
        runs.append(sorted(every[start : start + SORTED_AT_ONCE]))
        yield from pauses(SLICE_ELEMENTS // 2)
    if len(runs) < 2:
        return runs[0] if runs else []
    ordered = []
    for text in heapq.merge(*runs):
        ordered.append(text)
        if not len(ordered) % CHEAP:
            yield
    return ordered


def parked(
    condition: Condition, deadline: int, count: int, make: Callable[[], Parts[Result]]
) -> Generator[Wait, Any, Parked[Result] | Result]:
    """Waits for an event, then makes the answer about `count` elements.

    A long answer is made in slices, and later requests of the connection wait for it; a short one is made at once.
    """
    if count <= ANSWERED_AT_ONCE:
        return Parked(condition, deadline, lambda: whole(make()))
    yield Parked(condition, deadline, nothing)
    return (yield from make())


def settled(
    writes: Settles, now: Moment, count: int, make: Callable[[], Parts[Result]], timeout_ms: int = WRITE_TIMEOUT_MS
) -> Generator[Wait, Any, Parked[Result] | Result]:
    """Waits until the writes are safe or have failed, then makes the answer as `parked` does."""
    if writes.is_settled:
        return (yield from make())
    return (yield from parked(writes, now.steady + timeout_ms, count, make))


def nothing() -> None:
    """Does nothing: a request that is parked with it only waits for its event."""
