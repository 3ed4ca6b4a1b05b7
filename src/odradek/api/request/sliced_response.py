"""Answers about many elements, made in parts by generators.

A generator yields between elements and returns the whole. At each yield, no element is half done. Other
requests may run there (Slices in api/request/outcome.py), so objects found before a yield may be deleted after it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

from odradek.api.request.outcome import PAUSE, Wait
from odradek.base.limits import SLICE_ELEMENTS
from odradek.core.coordinators.durable import WRITE_TIMEOUT_MS
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import Condition, ParkedRequest

Result = TypeVar("Result")
Parts: TypeAlias = Generator[None, Any, Result]

SORTED_AT_ONCE = 2_000  # Number of texts that are sorted at once; takes a millisecond.
ANSWERED_AT_ONCE = SLICE_ELEMENTS * 5 // 4  # A slice of partitions, and their topics.
CHEAP = 8  # Elements per part if the work for each is negligible.
WRITE_PARTS = 4  # Cost of writing one batch to the log, in parts.


class WriteCondition(Condition, Protocol):
    """Writes that have to become safe: PendingWrite, PendingWrites, CommittedRead."""

    @property
    def is_settled(self) -> bool:
        """Return whether no write has to be waited for any more."""


def whole(parts: Parts[Result]) -> Result:
    """Make all parts at once and return the whole."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: Result = end.value
            return result


def first_wait(parts: Generator[Wait, Any, object]) -> Wait:
    """Make parts until one has to wait; return that wait.

    Raise StopIteration with the whole if no part has to wait.
    """
    while True:
        wait = next(parts)
        if wait is not PAUSE:
            return wait


def pauses(count: int) -> Parts[None]:
    """Yield as many times as the work just done is worth in parts."""
    for _ in range(count):
        yield


def in_order(texts: Iterable[str]) -> Parts[list[str]]:
    """Return the texts sorted, without duplicates."""
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
) -> Generator[Wait, Any, ParkedRequest[Result] | Result]:
    """Wait for an event, then make the answer about `count` elements.

    A long answer is made in slices, and later requests of the connection wait for it; a short answer is made at once.
    """
    if count <= ANSWERED_AT_ONCE:
        return ParkedRequest(condition, deadline, lambda: whole(make()))
    yield ParkedRequest(condition, deadline, nothing)
    return (yield from make())


def settled(
    writes: WriteCondition,
    now: Moment,
    count: int,
    make: Callable[[], Parts[Result]],
    timeout_ms: int = WRITE_TIMEOUT_MS,
) -> Generator[Wait, Any, ParkedRequest[Result] | Result]:
    """Wait until the writes are safe or have failed, then make the answer as `parked` does."""
    if writes.is_settled:
        return (yield from make())
    return (yield from parked(writes, now.steady + timeout_ms, count, make))


def nothing() -> None:
    """Do nothing: a request parked with this function only waits for its event."""
