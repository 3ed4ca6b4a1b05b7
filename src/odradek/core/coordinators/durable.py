"""Pending writes: answers and next steps that wait until a write is as safe as with acks=all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.leadership_state import Leadership
from odradek.core.partition.staging import Append

T = TypeVar("T")
Step = Callable[[Moment], None]

WRITE_TIMEOUT_MS = 5000  # After this the client receives a retriable error; the written data stays.


class PendingWrite:
    """A pending write to one partition and the condition that it is safe.

    It contains no records if it stands for a whole log that retention has emptied. `failure` is the reason if it can
    never become safe.
    """

    __slots__ = ("_append",)

    def __init__(self, append: Append) -> None:
        assert append.refused is None, "a rejected append is never awaited"
        assert append.base_offset <= append.end
        self._append = append

    @property
    def leading(self) -> Leadership:
        return self._append.leading

    @property
    def name(self) -> TopicPartition:
        return self._append.leading.name

    @property
    def failure(self) -> ErrorCode | None:
        return None if self._append.failure is None else ErrorCode.NOT_COORDINATOR

    @property
    def lost(self) -> ErrorCode | None:
        """Return the partition's own error, for callers that are not clients of a coordinator."""
        return self._append.failure

    @property
    def is_safe(self) -> bool:
        return self._append.is_safe

    @property
    def is_settled(self) -> bool:
        return self.is_safe or self.failure is not None

    @property
    def keys(self) -> Iterable[Hashable]:
        return (self.name,)

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return self.is_settled

    def then(
        self, answer: Callable[[ErrorCode], T], now: Moment, timeout_ms: int = WRITE_TIMEOUT_MS
    ) -> T | ParkedRequest[T]:
        """Call `answer` with NONE once the write is safe, or with its error; at once if already known."""
        if self.is_settled:
            return answer(self.code)
        assert timeout_ms > 0
        return ParkedRequest(self, now.steady + timeout_ms, lambda: answer(self.code))

    @property
    def code(self) -> ErrorCode:
        """Return NONE once the write is safe; before that, or if it was lost, the error for its client."""
        if self.is_safe:
            return ErrorCode.NONE
        return self.failure or ErrorCode.COORDINATOR_NOT_AVAILABLE


class PendingWrites:
    """Several writes, and the condition that all of them are settled."""

    def __init__(self, writes: Iterable[PendingWrite]) -> None:
        # Of several writes by one leader, the last one becomes safe last.
        self._all = list({write.leading: write for write in writes}.values())
        self._unsettled = self._all.copy()  # Writes that were unsettled at the last check.

    @property
    def is_settled(self) -> bool:
        unsettled = self._unsettled
        while unsettled and unsettled[-1].is_settled:  # No write is checked again once it is settled.
            unsettled.pop()
        return not unsettled

    @property
    def code(self) -> ErrorCode:
        """Return the code of the first write that is not safe, or NONE if all are."""
        return next((write.code for write in self._all if write.code), ErrorCode.NONE)

    @property
    def keys(self) -> Iterable[Hashable]:
        return {write.name for write in self._all}

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return self.is_settled

    def then(self, answer: Callable[[], T], now: Moment, timeout_ms: int = WRITE_TIMEOUT_MS) -> T | ParkedRequest[T]:
        """Call `answer` once all writes are settled or time is up; it reads the code of each write."""
        if self.is_settled:
            return answer()
        assert self._all and timeout_ms > 0
        return ParkedRequest(self, now.steady + timeout_ms, answer)


class NextSteps:
    """Steps that run when a write is safe, such as a transaction's markers after its decision."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, list[tuple[PendingWrite, Step, Step | None]]] = {}

    def when_safe(self, written: PendingWrite, step: Step, now: Moment, on_lost: Step | None = None) -> None:
        """Call `step` once the write is safe, which may be now, or `on_lost` if its log is lost first."""
        if written.is_safe:
            step(now)
        elif written.failure is None:
            self._waiting.setdefault(written.name, []).append((written, step, on_lost))
        elif on_lost is not None:
            on_lost(now)

    def moved(self, name: TopicPartition, now: Moment) -> None:
        """Run the due steps after more of the partition became safe or its leadership was lost."""
        for written, step, on_lost in self._waiting.pop(name, ()):
            self.when_safe(written, step, now, on_lost)

    def run_safe_steps(self, now: Moment) -> None:
        """Run steps that no other event triggers; called once a second.

        Calls `on_lost` for logs that ended before their sync began, which no completed sync includes. Also runs steps
        of writes that became safe without progress of the partition, as when followers join the ISR.
        """
        waiting = self._waiting.items()
        for name in [name for name, entries in waiting if any(entry[0].is_settled for entry in entries)]:
            self.moved(name, now)
