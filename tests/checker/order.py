"""Anomalies of order: polls that go back or leave something out, sends that change places."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from checker.anomaly import Anomaly, Found
from checker.history import NEVER_NS, Key, Offset, Operation, Poll, Reset, Value
from checker.observed import Observed, Write


@dataclass(frozen=True, slots=True)
class _Position:
    """The last offset that a process has read of a key; or, with no operation, the one before where it begins."""

    offset: Offset
    operation: Operation | None = None

    def __str__(self) -> str:
        return "its assignment" if self.operation is None else str(self.operation)


@dataclass(frozen=True, slots=True)
class _Committed:
    """What must be seen of a key, rising.  Long histories poll a million times: a search is one of plain numbers."""

    offsets: list[Offset]
    values: list[Value]
    may_go_ns: list[int]

    @classmethod
    def of(cls, places: list[tuple[Offset, Value]], may_go_ns: Mapping[Value, int]) -> _Committed:
        values = [value for _, value in places]
        return cls([offset for offset, _ in places], values, [may_go_ns.get(value, NEVER_NS) for value in values])

    def between(self, low: Offset, high: Offset, time_ns: int) -> list[str]:
        """Both excluded, and what may be gone by then."""
        first, end = bisect_right(self.offsets, low), bisect_left(self.offsets, high)
        there = (place for place in range(first, end) if self.may_go_ns[place] > time_ns)
        return [f"{self.values[place]}@{self.offsets[place]}" for place in there]


NOTHING = _Committed([], [], [])


def polls(observed: Observed) -> Iterator[Found]:
    committed = {key: _Committed.of(places, observed.may_go_ns) for key, places in observed.committed_places()}
    for operations in _by_process(observed.operations):
        positions: dict[Key, _Position] = {}
        for operation in operations:
            for step in operation.steps:
                if isinstance(step, Reset):
                    _reset(positions, step)
                elif isinstance(step, Poll):
                    yield from _poll(positions, operation, step, committed)


def _by_process(operations: Iterable[Operation]) -> Iterable[list[Operation]]:
    found: dict[int, list[Operation]] = defaultdict(list)
    for operation in operations:
        found[operation.process].append(operation)
    return found.values()


def _reset(positions: dict[Key, _Position], step: Reset) -> None:
    for key, offset in step.positions.items():
        if offset is None:
            positions.pop(key, None)
        else:
            positions[key] = _Position(offset - 1)


def _poll(
    positions: dict[Key, _Position],
    operation: Operation,
    poll: Poll,
    committed: dict[Key, _Committed],
) -> Iterator[Found]:
    for key, offset, _ in poll.records:
        last = positions.get(key)
        if last is not None:
            left_out = committed.get(key, NOTHING).between(last.offset, offset, poll.time_ns)
            yield from _move(key, last, _Position(offset, operation), left_out)
        positions[key] = _Position(offset, operation)


def _move(key: Key, last: _Position, to: _Position, left_out: list[str]) -> Iterator[Found]:
    if to.offset <= last.offset:
        kinds = Anomaly.NONMONOTONIC_POLL, Anomaly.INT_NONMONOTONIC_POLL
        yield _found(kinds, last, to, f"{to.operation} read {key}@{to.offset} after {last} had read @{last.offset}")
    elif left_out:
        what = f"{', '.join(left_out[:5])} ({len(left_out)} in all)"
        text = f"{to.operation} read {key}@{to.offset} next after @{last.offset} of {last}, and left out {what}"
        yield _found((Anomaly.POLL_SKIP, Anomaly.INT_POLL_SKIP), last, to, text)


def _found(kinds: tuple[Anomaly, Anomaly], last: _Position, to: _Position, text: str) -> Found:
    """Of the first kind from one operation to another, of the second within one."""
    is_internal = last.operation is to.operation
    involved = (to.operation,) if is_internal else (last.operation, to.operation)
    return Found(kinds[is_internal], text, tuple(one for one in involved if one is not None))


def sends(observed: Observed) -> Iterator[Found]:
    """Only of what was answered with an offset: where the rest went, its sender can't know."""
    for operations in _by_process(observed.operations):
        last: dict[Key, Write] = {}
        for operation in operations:
            for send in operation.sends:
                if send.offset is None:
                    continue
                before, write = last.get(send.key), Write(operation, send)
                if before is not None and before.send.offset is not None and before.send.offset >= send.offset:
                    is_internal = before.operation is operation
                    kind = Anomaly.INT_NONMONOTONIC_SEND if is_internal else Anomaly.NONMONOTONIC_SEND
                    yield Found(kind, f"{before}, and after that {write}", (before.operation, operation))
                last[send.key] = write


def late_sends(observed: Observed) -> Iterator[Found]:
    """A log grows at its end: what was answered before another send was begun lies below it."""
    by_key: dict[Key, list[tuple[Offset, Write]]] = defaultdict(list)
    for write in observed.writes.values():
        if write.send.offset is not None:
            by_key[write.send.key].append((write.send.offset, write))
    for places in by_key.values():
        earliest: Write | None = None  # To be answered, of all those above.
        for offset, write in sorted(places, key=lambda place: place[0], reverse=True):
            is_below = earliest is not None and earliest.send.offset != offset
            if earliest and is_below and earliest.operation.completed_ns < write.operation.invoked_ns:
                text = f"{earliest}, which was over before {write.operation} began; and yet {write}"
                yield Found(Anomaly.LATE_SEND, text, (earliest.operation, write.operation))
            if earliest is None or write.operation.completed_ns < earliest.operation.completed_ns:
                earliest = write
