"""Histories by hand, for tests: every call is one operation, over before the next begins unless its times are given."""

from __future__ import annotations

from checker.history import Key, Kind, Offset, Operation, Outcome, Poll, Reset, Send, Step, Value

Record = tuple[Key, Offset, Value]


class Handmade(list[Operation]):
    def send(self, process: int, *sends: Send, outcome: Outcome = Outcome.OK) -> Handmade:
        return self.operation(process, Kind.SEND, *sends, outcome=outcome)

    def poll(self, process: int, *records: Record) -> Handmade:
        return self.operation(process, Kind.POLL, self.polled(*records))

    def assign(self, process: int, **positions: Offset | None) -> Handmade:
        return self.operation(process, Kind.ASSIGN, Reset(positions))

    def final(self, key: Key, *records: Record) -> Handmade:
        return self.operation(99, Kind.FINAL, Reset({key: 0}), self.polled(*records))

    def polled(self, *records: Record, time_ns: int | None = None) -> Poll:
        """A step of the next operation."""
        return Poll(records, 100 * len(self) + 20 if time_ns is None else time_ns)

    def operation(
        self,
        process: int,
        kind: Kind,
        *steps: Step,
        outcome: Outcome = Outcome.OK,
        times: tuple[int, int | None, int] | None = None,
        group: str | None = None,
    ) -> Handmade:
        """`times` are those of the invocation, of the request to commit (None: there was none), of the completion."""
        start = 100 * len(self)
        invoked_ns, commit_ns, completed_ns = times or (start, start + 50 if kind is Kind.TXN else None, start + 90)
        self.append(Operation(len(self), process, kind, outcome, invoked_ns, completed_ns, steps, commit_ns, group))
        return self

    def txn(
        self,
        process: int,
        *steps: Step,
        outcome: Outcome = Outcome.OK,
        times: tuple[int, int | None, int] | None = None,
        group: str | None = None,
    ) -> Handmade:
        return self.operation(process, Kind.TXN, *steps, outcome=outcome, times=times, group=group)
