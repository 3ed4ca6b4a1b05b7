"""Answer that one request waits for and another event provides, as for a member and its group.

promise = Promise[Joined]()
ParkedRequest(promise, deadline, lambda: response_of(promise.value))  the request that waits
promise.keep(purgatory, joined)                                       the event
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from odradek.core.kernel.purgatory import ParkedRequest, Purgatory

T = TypeVar("T")
Answer = TypeVar("Answer")


class Promise(Generic[T]):
    """Answer to come, and the condition that it has come.

    `value` stays None if the deadline comes first, or the broker stops.
    """

    def __init__(self) -> None:
        self.value: T | None = None

    @property
    def keys(self) -> Iterable[Hashable]:
        return (self,)

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return True

    def keep(self, purgatory: Purgatory, value: T) -> None:
        """Set the value, once, and complete the waiting request, if its connection still exists."""
        assert self.value is None, "a promise is fulfilled at most once"
        self.value = value
        purgatory.happened(self)

    def then(self, answer: Callable[[T | None], Answer], deadline: int) -> Answer | ParkedRequest[Answer]:
        """Call `answer` with the value, now if it is set; with None if the deadline comes first."""
        if self.value is not None:
            return answer(self.value)
        return ParkedRequest(self, deadline, lambda: answer(self.value))
