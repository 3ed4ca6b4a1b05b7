"""What clients did: operations of processes, made of steps, each with what came of it.

An operation is invoked and completes `ok`, `fail` (it certainly did not happen) or `info` (nobody knows); one that
never completes is `info`.  A process does one at a time.  Times are those of one clock, in nanoseconds.  On paper
(`Event`, a line of JSON) an operation is its invocation, with the sends it plans, maybe the moment it asked to commit,
and its completion, with the steps it took.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Key = str  # A partition: "topic-3".
Value = int  # Sent once in all the history.
Offset = int

NEVER_NS = 1 << 63


class Malformed(Exception):
    """The history is not one: a fault of the recorder, not of what it recorded."""


class Outcome(StrEnum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Kind(StrEnum):
    SEND = "send"  # Each value by itself: if not all are acknowledged, those are whose offset is known.
    POLL = "poll"
    TXN = "txn"  # All of it or nothing.
    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    COMMITTED = "committed"  # What a group is told to have committed.
    FINAL = "final"  # A poll of one key from its beginning to its end, when everything else is over.


@dataclass(frozen=True, slots=True)
class Send:
    key: Key
    value: Value
    offset: Offset | None = None  # As acknowledged.


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll returned, in its order, and when it had returned."""

    records: tuple[tuple[Key, Offset, Value], ...]
    time_ns: int


@dataclass(frozen=True, slots=True)
class Reset:
    """The process reads on from elsewhere: an assignment, a rebalance, a seek.  At None, nobody knows from where."""

    positions: Mapping[Key, Offset | None]


@dataclass(frozen=True, slots=True)
class Committed:
    """What the group of the operation has committed, as it was told; 0 is nothing."""

    positions: Mapping[Key, Offset]


Step = Send | Poll | Reset | Committed


@dataclass(frozen=True, slots=True)
class Operation:
    number: int
    process: int
    kind: Kind
    outcome: Outcome
    invoked_ns: int
    completed_ns: int
    steps: tuple[Step, ...]
    commit_ns: int | None = None  # When its commit was asked for, if it ever was.
    group: str | None = None  # Whose offsets it commits, for all that it polled.
    error: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.number} (process {self.process}, {self.outcome})"

    @property
    def sends(self) -> Iterator[Send]:
        return (step for step in self.steps if isinstance(step, Send))

    @property
    def polls(self) -> Iterator[Poll]:
        return (step for step in self.steps if isinstance(step, Poll))


@dataclass(frozen=True, slots=True)
class Event:
    """A line of a history.  `steps` of an invocation are the sends it plans; those of a completion are all it took."""

    type: Literal["invoke", "commit", "ok", "fail", "info"]
    process: int
    time_ns: int
    kind: str = ""
    group: str | None = None
    steps: tuple[Step, ...] = ()
    error: str = ""

    def to_json(self) -> str:
        fields = {"type": self.type, "process": self.process, "time": self.time_ns}
        optional = {"kind": self.kind, "group": self.group, "error": self.error}
        steps = {"steps": [_step_to_json(step) for step in self.steps]} if self.steps else {}
        return json.dumps(fields | {name: value for name, value in optional.items() if value} | steps)

    @classmethod
    def from_json(cls, line: str) -> Event:
        fields: dict[str, Any] = json.loads(line)
        steps = tuple(_step_from_json(step) for step in fields.get("steps", ()))
        optional = {name: fields[name] for name in ("kind", "group", "error") if name in fields}
        return cls(fields["type"], fields["process"], fields["time"], steps=steps, **optional)


def operations(events: Iterable[Event]) -> list[Operation]:
    """The operations of a history, in the order of their invocation."""
    pairing = _Pairing()
    for event in sorted(events, key=lambda event: event.time_ns):
        pairing.add(event)
    return pairing.done()


@dataclass(slots=True)
class _Begun:
    number: int
    event: Event
    commit_ns: int | None = None


@dataclass(slots=True)
class _Pairing:
    count: int = 0
    begun: dict[int, _Begun] = field(default_factory=dict)  # By process.
    complete: list[Operation] = field(default_factory=list)

    def add(self, event: Event) -> None:
        begun = self.begun.get(event.process)
        if event.type == "invoke":
            if begun is not None:
                raise Malformed(f"process {event.process} does two things at once: {event}")
            self.begun[event.process] = _Begun(self.count, event)
            self.count += 1
        elif begun is None:
            raise Malformed(f"process {event.process} ends what it did not begin: {event}")
        elif event.type == "commit":
            begun.commit_ns = event.time_ns
        else:
            del self.begun[event.process]
            self._complete(begun, Outcome(event.type), event.time_ns, event.steps, event.error)

    def done(self) -> list[Operation]:
        for begun in self.begun.values():
            self._complete(begun, Outcome.INFO, NEVER_NS, (), "never completed")
        return sorted(self.complete, key=lambda operation: operation.number)

    def _complete(self, begun: _Begun, outcome: Outcome, time_ns: int, steps: tuple[Step, ...], error: str) -> None:
        sent = {step.value for step in steps if isinstance(step, Send)}
        planned = (step for step in begun.event.steps if isinstance(step, Send) and step.value not in sent)
        self.complete.append(
            Operation(
                number=begun.number,
                process=begun.event.process,
                kind=Kind(begun.event.kind),
                outcome=outcome,
                invoked_ns=begun.event.time_ns,
                completed_ns=time_ns,
                steps=(*steps, *planned),
                commit_ns=begun.commit_ns,
                group=begun.event.group,
                error=error,
            )
        )


def _step_to_json(step: Step) -> list[Any]:
    match step:
        case Send(key, value, offset):
            return ["send", key, value, offset]
        case Poll(records, time_ns):
            return ["poll", records, time_ns]
        case Reset(positions):
            return ["reset", positions]
        case Committed(positions):
            return ["committed", positions]


def _step_from_json(step: list[Any]) -> Step:
    match step:
        case ["send", key, value, offset]:
            return Send(key, value, offset)
        case ["poll", records, time_ns]:
            return Poll(tuple((key, offset, value) for key, offset, value in records), time_ns)
        case ["reset", positions]:
            return Reset(positions)
        case ["committed", positions]:
            return Committed(positions)
    raise Malformed(f"no step: {step}")
