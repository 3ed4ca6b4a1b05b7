"""A perfect broker, and clients that do as they are told with it: the histories they leave have no anomaly.

Time is the count of what happened, and everything happens at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from checker.history import Event, Key, Kind, Offset, Operation, Poll, Reset, Send, Step, Value, operations

POLL_MAX = 3
GROUP = "g"


class Action(Enum):
    SEND = auto()
    SEND_UNANSWERED = auto()  # It arrives.
    SEND_LOST = auto()  # It does not.
    POLL = auto()
    SEEK = auto()
    BEGIN = auto()
    COMMIT = auto()
    COMMIT_UNANSWERED = auto()
    COMMIT_LOST = auto()  # The coordinator aborts it later, and nobody is told.
    ABORT = auto()


@dataclass(slots=True)
class _Transaction:
    process: int
    keys: set[Key] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    is_committed: bool | None = None


@dataclass(slots=True)
class _Log:
    """A value and its transaction, by offset; no value stands for a marker."""

    entries: list[tuple[Value | None, _Transaction | None]] = field(default_factory=list)

    def append(self, value: Value | None, transaction: _Transaction | None) -> Offset:
        self.entries.append((value, transaction))
        return len(self.entries) - 1

    def stable(self) -> Offset:
        for offset, (_, transaction) in enumerate(self.entries):
            if transaction is not None and transaction.is_committed is None:
                return offset
        return len(self.entries)

    def read(self, offset: Offset, count: int) -> list[tuple[Offset, Value]]:
        found: list[tuple[Offset, Value]] = []
        for place in range(offset, self.stable()):
            value, transaction = self.entries[place]
            if value is not None and (transaction is None or transaction.is_committed) and len(found) < count:
                found.append((place, value))
        return found


class Simulated:
    def __init__(self, keys: Iterable[Key]) -> None:
        self._logs = {key: _Log() for key in keys}
        self._events: list[Event] = []
        self._open: dict[int, _Transaction] = {}
        self._positions: dict[tuple[int, Key], Offset] = defaultdict(int)
        self._sent = 0

    def act(self, process: int, action: Action, key: Key, number: int = 0) -> None:
        match action:
            case Action.SEND | Action.SEND_UNANSWERED | Action.SEND_LOST:
                self._send(process, key, action)
            case Action.POLL:
                self._do(process, Kind.POLL, self._polled(process, key, POLL_MAX))
            case Action.SEEK:
                offset = number % (len(self._logs[key].entries) + 1)
                self._positions[process, key] = offset
                self._do(process, Kind.ASSIGN, Reset({key: offset}))
            case Action.BEGIN:
                if process not in self._open:
                    self._open[process] = _Transaction(process)
                    self._note("invoke", process, Kind.TXN)
            case _:
                if (transaction := self._open.pop(process, None)) is not None:
                    self._end(transaction, action)

    def finished(self) -> list[Operation]:
        """What is open is left alone, and aborted by the coordinator; then everything is read from the beginning."""
        for transaction in self._open.values():
            self._mark(transaction, is_committed=False)
        for key, log in self._logs.items():
            self._note("invoke", -1, Kind.FINAL)
            records = tuple((key, offset, value) for offset, value in log.read(0, len(log.entries)))
            self._note("ok", -1, steps=(Reset({key: 0}), Poll(records, self._now)))
        return operations(self._events)

    @property
    def _now(self) -> int:
        return len(self._events)

    def _note(self, kind_of_event: str, process: int, kind: str = "", steps: tuple[Step, ...] = ()) -> None:
        self._events.append(Event(kind_of_event, process, self._now, kind, steps=steps))  # type: ignore[arg-type]

    def _do(self, process: int, kind: Kind, step: Step, *, is_answered: bool = True) -> None:
        """As a step of the open transaction, or by itself."""
        if process in self._open:
            self._open[process].steps.append(step)
            return
        self._note("invoke", process, kind)
        self._note("ok" if is_answered else "info", process, steps=(step,))

    def _polled(self, process: int, key: Key, count: int) -> Poll:
        records = self._logs[key].read(self._positions[process, key], count)
        if records:
            self._positions[process, key] = records[-1][0] + 1
        return Poll(tuple((key, offset, value) for offset, value in records), self._now)

    def _send(self, process: int, key: Key, action: Action) -> None:
        """In a transaction every send is answered: one that is not could only be aborted."""
        self._sent += 1
        value, transaction = self._sent, self._open.get(process)
        if transaction is not None:
            action = Action.SEND
            transaction.keys.add(key)
        offset = None if action is Action.SEND_LOST else self._logs[key].append(value, transaction)
        is_answered = action is Action.SEND
        self._do(process, Kind.SEND, Send(key, value, offset if is_answered else None), is_answered=is_answered)

    def _end(self, transaction: _Transaction, action: Action) -> None:
        if action is not Action.ABORT:
            self._note("commit", transaction.process)
        self._mark(transaction, is_committed=action in (Action.COMMIT, Action.COMMIT_UNANSWERED))
        outcomes = {Action.COMMIT: "ok", Action.ABORT: "fail"}
        self._note(outcomes.get(action, "info"), transaction.process, steps=tuple(transaction.steps))

    def _mark(self, transaction: _Transaction, *, is_committed: bool) -> None:
        transaction.is_committed = is_committed
        for key in sorted(transaction.keys):
            self._logs[key].append(None, transaction)
