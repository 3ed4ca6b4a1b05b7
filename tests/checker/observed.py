"""What the operations of a history together say of the logs: who sent a value, who read it, what is where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from checker.history import NEVER_NS, Key, Kind, Malformed, Offset, Operation, Outcome, Reset, Send, Value

NOTHING_REMOVED: Mapping[Value, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Read:
    operation: Operation
    key: Key
    offset: Offset
    value: Value
    time_ns: int

    def __str__(self) -> str:
        return f"{self.operation} read {self.value} at {self.key}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Write:
    operation: Operation
    send: Send

    def __str__(self) -> str:
        where = "" if self.send.offset is None else f"@{self.send.offset}"
        return f"{self.operation} sent {self.send.value} to {self.send.key}{where}"

    @property
    def is_acknowledged(self) -> bool:
        """In a transaction, an answered send is worth nothing before the commit."""
        is_alone = self.operation.kind is not Kind.TXN and self.send.offset is not None
        return is_alone or self.operation.outcome is Outcome.OK

    @property
    def never_happened(self) -> bool:
        """Its transaction was aborted, or nobody ever asked for it to be committed."""
        if self.operation.outcome is Outcome.FAIL:
            return True
        return self.operation.kind is Kind.TXN and not self.is_acknowledged and self.operation.commit_ns is None


class Observed:
    def __init__(self, operations: Iterable[Operation], may_go_ns: Mapping[Value, int] = NOTHING_REMOVED) -> None:
        """`may_go_ns` is the time from which compaction may have removed a value; never for other values."""
        self.operations = list(operations)
        self.may_go_ns = may_go_ns
        self.writes: dict[Value, Write] = {}
        self.reads: dict[Value, list[Read]] = defaultdict(list)
        self.places: dict[Key, dict[Offset, set[Value]]] = defaultdict(lambda: defaultdict(set))
        self.highest_read: dict[Key, Read] = {}
        self.read_to_the_end: set[Key] = set()
        for number, operation in enumerate(self.operations):
            assert operation.number == number, "operations are numbered as they were invoked"
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        for send in operation.sends:
            if send.value in self.writes:
                raise Malformed(f"{send.value} is sent by {self.writes[send.value].operation} and by {operation}")
            self.writes[send.value] = Write(operation, send)
            if send.offset is not None:
                self.places[send.key][send.offset].add(send.value)
        for read in _reads(operation):
            self.reads[read.value].append(read)
            self.places[read.key][read.offset].add(read.value)
            highest = self.highest_read.get(read.key)
            if highest is None or read.offset > highest.offset:
                self.highest_read[read.key] = read
        if operation.kind is Kind.FINAL and operation.outcome is Outcome.OK:
            resets = (step for step in operation.steps if isinstance(step, Reset))
            self.read_to_the_end.update(key for reset in resets for key in reset.positions)

    def is_committed(self, value: Value) -> bool:
        """Acknowledged, or read although its sender can't know: of a transaction, one value that was read will do."""
        write = self.writes.get(value)
        if write is None or write.never_happened:
            return False
        if write.is_acknowledged or value in self.reads:
            return True
        siblings = write.operation.sends if write.operation.kind is Kind.TXN else ()
        return any(send.value in self.reads for send in siblings)

    def may_be_removed(self, value: Value, time_ns: int = NEVER_NS - 1) -> bool:
        """Return True if a read at this time may miss the value; without a time, if any read may."""
        return self.may_go_ns.get(value, NEVER_NS) <= time_ns

    def committed_places(self) -> Iterator[tuple[Key, list[tuple[Offset, Value]]]]:
        """Of every key, what must be seen by whoever reads it, in the order of its offsets."""
        for key, places in self.places.items():
            found = ((offset, value) for offset, values in places.items() for value in values)
            yield key, sorted(place for place in found if self.is_committed(place[1]))


def _reads(operation: Operation) -> Iterator[Read]:
    for poll in operation.polls:
        for key, offset, value in poll.records:
            yield Read(operation, key, offset, value, poll.time_ns)
