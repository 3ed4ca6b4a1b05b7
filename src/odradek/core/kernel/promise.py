"""An answer that one request waits for and another event brings: a member waits for its group, and the like.

promise = Promise[Joined]()
Parked(promise, deadline, lambda: answer_to(promise.value))     the request that waits
promise.keep(lot, joined)                                       whoever knows
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from odradek.core.kernel.parked import Parked, ParkingLot

T = TypeVar("T")
Answer = TypeVar("Answer")


class Promise(Generic[T]):
    """An answer to come, and the condition that it is there.

    `value` stays None if the deadline comes first, or the broker stops.
    """

    def __init__(self) -> None:
        self.value: T | None = None

    @property
    def keys(self) -> Iterable[Hashable]:
        return (self,)

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return True

    def keep(self, lot: ParkingLot, value: T) -> None:
        """Gives the value, once, and answers the request that waits, if one does: its connection may be gone."""
        assert self.value is None, "a promise is kept once"
        self.value = value
        lot.happened(self)

    def then(self, answer: Callable[[T | None], Answer], deadline: int) -> Answer | Parked[Answer]:
        """Calls `answer` with the value, now if it is there; with None if the deadline comes first."""
        if self.value is not None:
            return answer(self.value)
        return Parked(self, deadline, lambda: answer(self.value))
