"""A simulated history as input for the checker of Jepsen's Kafka workload, and the checker's findings.

Partitions written to with acks=1 are excluded once a power failure may have changed them, and so are records that
read-uncommitted consumers saw in partitions with transactions; checks.py covers these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from checker.history import NEVER_NS, Kind, Operation, Outcome, Poll, Reset, Send, Step
from checker.verdict import check
from odradek.base.units import TopicPartition
from sim.history import History, Moved, Seen, Sent, Transaction, Value
from sim.superseding import NEVER_US, Superseding

US_NS = 1_000
OUTCOMES = {True: Outcome.OK, False: Outcome.FAIL, None: Outcome.INFO}


def anomalies(history: History) -> Iterator[str]:
    """Return the broken guarantees that the checker finds."""
    translation = Translation(history)
    for found in check(translation.operations(), may_go_ns=translation.may_go_ns()).broken:
        yield f"checker: {found}"


class Draft(NamedTuple):
    """An operation without its number."""

    client: str
    kind: Kind
    invoked_us: int
    completed_us: int | None
    steps: tuple[Step, ...]
    outcome: Outcome = Outcome.OK
    commit_us: int | None = None
    group: str | None = None


class Translation:
    """The translation of values and clients to numbers."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._values = {value: number for number, value in enumerate(history.sent)}
        self._clients: dict[str, int] = {}
        sent = history.sent.values()
        self._transactional = {one.partition for one in sent if one.transaction is not None}
        self._left_out = {one.partition for one in sent if not one.is_durable} if history.era else set()

    def operations(self) -> list[Operation]:
        drafts = [*self._sends(), *self._transactions(), *self._polls(), *self._finals()]
        drafts.sort(key=lambda draft: draft.invoked_us)
        return [self._operation(number, draft) for number, draft in enumerate(drafts)]

    def may_go_ns(self) -> Mapping[int, int]:
        """Return the times from which compaction may have removed values."""
        since_us = Superseding(self._history).since_us()
        return {self._number(value): us * US_NS for value, us in since_us.items() if us < NEVER_US}

    def _operation(self, number: int, draft: Draft) -> Operation:
        return Operation(
            number=number,
            process=self._clients.setdefault(draft.client, len(self._clients)),
            kind=draft.kind,
            outcome=draft.outcome,
            invoked_ns=draft.invoked_us * US_NS,
            completed_ns=NEVER_NS if draft.completed_us is None else draft.completed_us * US_NS,
            steps=draft.steps,
            commit_ns=None if draft.commit_us is None else draft.commit_us * US_NS,
            group=draft.group,
        )

    def _sends(self) -> Iterator[Draft]:
        """Yield a send operation for each value."""
        for sent in self._history.sent.values():
            if sent.transaction is None and sent.partition not in self._left_out:
                outcome = Outcome.INFO if sent.acknowledged_us is None else Outcome.OK
                step = self._send(sent)
                yield Draft(sent.producer, Kind.SEND, sent.invoked_us, sent.acknowledged_us, (step,), outcome)

    def _send(self, sent: Sent) -> Send:
        return Send(str(sent.partition), self._values[sent.value], sent.offset)

    def _transactions(self) -> Iterator[Draft]:
        for one in self._history.transactions:
            yield Draft(
                one.client,
                Kind.TXN,
                one.invoked_us,
                one.ended_us,
                (*self._read_in(one), *map(self._send, one.sent)),
                OUTCOMES[one.is_committed],
                one.commit_requested_us,
                one.group,
            )

    def _read_in(self, transaction: Transaction) -> Iterator[Step]:
        if transaction.positions:
            yield _reset(transaction.positions)
        if transaction.read:
            yield self._poll(transaction.read)

    def _polls(self) -> Iterator[Draft]:
        """Yield a poll for the records of each fetch response, and an assignment for each change of positions."""
        seen, begin = self._history.seen, 0
        for moved in self._history.moved:
            yield from self._polls_of(seen[begin : moved.seen])
            begin = moved.seen
            yield _move(moved)
        yield from self._polls_of(seen[begin:])

    def _polls_of(self, seen: Iterable[Seen]) -> Iterator[Draft]:
        shown = (one for one in seen if self._is_shown(one))
        for (reader, time_us), some in groupby(shown, lambda one: (one.reader, one.time_us)):
            yield Draft(reader, Kind.POLL, time_us, time_us, (self._poll(some),))

    def _is_shown(self, seen: Seen) -> bool:
        is_read_committed = seen.reader in self._history.read_committed_readers
        return seen.partition not in self._left_out and (is_read_committed or seen.partition not in self._transactional)

    def _poll(self, seen: Iterable[Seen]) -> Poll:
        found = list(seen)
        return Poll(
            tuple((str(one.partition), one.offset, self._number(one.value)) for one in found), found[0].time_us * US_NS
        )

    def _number(self, value: Value) -> int:
        """Return the number of a value, even of one that no client sent."""
        return self._values.setdefault(value, len(self._values))

    def _finals(self) -> Iterator[Draft]:
        end_us = self._history.now_us()
        for partition, records in self._history.committed.items():
            if partition not in self._left_out:
                polls = [self._poll(some) for _, some in groupby(records, attrgetter("time_us"))]
                yield Draft("final", Kind.FINAL, end_us, end_us, (_reset({partition: 0}), *polls))


def _reset(positions: dict[TopicPartition, int]) -> Reset:
    return Reset({str(partition): offset for partition, offset in positions.items()})


def _move(moved: Moved) -> Draft:
    return Draft(moved.reader, Kind.ASSIGN, moved.time_us, moved.time_us, (_reset(moved.positions),))
