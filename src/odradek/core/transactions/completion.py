"""Completes a transaction from the decision to commit or abort: writes its markers, then its end.

    decision written ──safe──> a marker to each partition ──all safe──> complete written

Each arrow waits for the one before, so a stop anywhere loses nothing: whoever loads the shard finds the decision and
writes the markers again, which does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import SECOND_MS, TopicPartition
from odradek.core.coordinators.durable import Step, Written
from odradek.core.coordinators.runtime import Runtime
from odradek.core.moment import Moment
from odradek.core.transactions import rules
from odradek.core.transactions.markers import Marker, WriteMarker
from odradek.core.transactions.shard import TransactionShard
from odradek.core.transactions.states import Transaction, TransactionState

_LOG = logging.getLogger(__name__)

AGAIN_MS = SECOND_MS  # After this a write that failed is tried again.
MARKED_AT_ONCE = 16  # Partitions; 0.5 ms each, if it is the first write of the segment.
# The errors of a partition that knows a later epoch: there is nothing left to end.
_OVERTAKEN = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


@dataclass(slots=True)
class _Round:
    """One round of markers: those that were written, and the partitions where they could not be."""

    shard: TransactionShard
    decided: Transaction
    marked: list[Written]
    failed: list[TopicPartition]


class Completions:
    """The decided transactions of one coordinator whose markers are still being written."""

    def __init__(self, runtime: Runtime, write_marker: WriteMarker) -> None:
        self._runtime = runtime
        self._write_marker = write_marker
        self._then: dict[str, list[Step]] = {}

    def decide(self, shard: TransactionShard, decided: Transaction, now: Moment, then: Step | None = None) -> None:
        """Writes a decision, and carries it out; `then` is called when it is complete.

        Raises Refused with nothing changed.
        """
        written = shard.put(decided, now)
        if then is not None:
            self.after(decided.id, then)
        self._runtime.steps.when_safe(written, lambda later: self.resume(shard, decided, later), now)

    def after(self, transactional_id: str, step: Step) -> None:
        """Has `step` called when the decided transaction is complete."""
        self._then.setdefault(transactional_id, []).append(step)

    def resume(self, shard: TransactionShard, decided: Transaction, now: Moment) -> None:
        """Writes the markers of a decision that is safe, made just now or before a stop."""
        self._mark(shard, decided, decided.partitions, now)

    def _mark(
        self, shard: TransactionShard, decided: Transaction, left: Collection[TopicPartition], now: Moment
    ) -> None:
        if shard.is_over:
            return
        is_commit = decided.state is TransactionState.PREPARE_COMMIT
        marker = Marker(decided.producer, is_commit, shard.coordinator_epoch, decided.version)
        self._mark_next(_Round(shard, decided, [], []), marker, sorted(left, reverse=True), now)

    def _mark_next(self, one: _Round, marker: Marker, left: list[TopicPartition], now: Moment) -> None:
        """Writes some of the markers that are left, from the last on; the rest when others had their turn."""
        if one.shard.is_over:
            return
        for _ in range(min(len(left), MARKED_AT_ONCE)):
            self._mark_one(one, left.pop(), marker, now)
        if left:
            self._runtime.timers.at(now.steady + 1, lambda later: self._mark_next(one, marker, left, later))
        else:
            self._wait(one, now)

    def _mark_one(self, one: _Round, name: TopicPartition, marker: Marker, now: Moment) -> None:
        try:
            written = self._write_marker(name, marker, now)
        except Refused as refused:
            if refused.code in _OVERTAKEN:
                _LOG.warning("%s: %s needs no marker any more: %s", one.decided.id, name, refused)
                return
            _LOG.warning("%s: no marker for %s yet: %s", one.decided.id, name, refused)
            one.failed.append(name)
        else:
            if written is not None:  # None: the topic was deleted.
                one.marked.append(written)

    def _wait(self, one: _Round, now: Moment) -> None:
        while one.marked and one.marked[-1].is_settled:
            written = one.marked.pop()
            if not written.is_safe:
                one.failed.append(written.name)
        if one.marked:

            def go_on(later: Moment) -> None:
                self._wait(one, later)

            self._runtime.steps.when_safe(one.marked[-1], go_on, now, lost=go_on)
        elif one.failed:
            again = now.steady + AGAIN_MS
            self._runtime.timers.at(again, lambda later: self._mark(one.shard, one.decided, one.failed, later))
        else:
            self._complete(one.shard, one.decided, now)

    def _complete(self, shard: TransactionShard, decided: Transaction, now: Moment) -> None:
        if shard.is_over:
            return
        try:
            shard.put(rules.completed(decided, now.wall), now)
        except Refused as refused:
            _LOG.warning("%s: its end can't be written yet: %s", decided.id, refused)
            again = now.steady + AGAIN_MS
            self._runtime.timers.at(again, lambda later: self._complete(shard, decided, later))
            return
        for step in self._then.pop(decided.id, ()):
            step(now)
