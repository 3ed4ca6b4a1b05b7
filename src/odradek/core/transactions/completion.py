"""Completion of a transaction after the decision to commit or abort: its markers, then its end.

    decision written ──safe──> a marker to each partition ──all safe──> complete written
                                 led here: written at once
                                 led by another broker: requested (marker_channel.py)
                                 no leader or failed: retried after RETRY_MS

Each arrow waits for the previous one, so a stop at any point loses nothing. The broker that loads the shard finds the
decision and writes the markers again, which is harmless.
"""

from __future__ import annotations

import logging

from odradek.base.errors import Refused
from odradek.base.units import NO_BROKER, SECOND_MS, BrokerId, TopicPartition
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.runtime import Runtime
from odradek.core.kernel.moment import Moment
from odradek.core.transactions import transaction_rules as rules
from odradek.core.transactions.marker_channel import FENCED, TransactionMarkerChannelManager
from odradek.core.transactions.pending_completion import PendingCompletion
from odradek.core.transactions.transaction_markers import WriteMarker
from odradek.core.transactions.transaction_shard import Completion, TransactionShard
from odradek.core.transactions.transaction_states import Transaction

_LOG = logging.getLogger(__name__)

RETRY_MS = SECOND_MS  # The delay before a failed write is retried.
MARKED_AT_ONCE = 16  # Partitions; 0.5 ms each, if it is the first write of the segment.
ROUTED_AT_ONCE = 1024  # Partitions whose leader is looked up, 1 µs each.


class Completions:
    """The decided transactions of one coordinator whose markers are still being written."""

    def __init__(self, runtime: Runtime, write_marker: WriteMarker) -> None:
        self._runtime = runtime
        self._write_marker = write_marker
        self.markers = TransactionMarkerChannelManager(runtime, self._settle)

    def decide(
        self, shard: TransactionShard, decided: Transaction, now: Moment, then: Completion | None = None
    ) -> None:
        """Write a decision and complete it; call `then` afterwards, or when the shard ends first.

        Raises Refused and changes nothing.
        """
        assert decided.is_decided
        assert not shard.transactions[decided.id].is_decided, "a decision is final"
        written = shard.put(decided, now)
        if then is not None:
            shard.after_completion(decided.id, then)
        self._runtime.steps.when_safe(written, lambda later: self.resume(shard, decided, later), now)

    def resume(self, shard: TransactionShard, decided: Transaction, now: Moment) -> None:
        """Write the markers of a safe decision, which was made just now or before a stop."""
        if not shard.is_over:
            current = shard.transactions[decided.id]
            assert current.state is decided.state and current.producer == decided.producer, "a decision is kept"
            self._mark(PendingCompletion(shard, decided), sorted(decided.partitions, reverse=True), now)

    def _mark(self, pending: PendingCompletion, names: list[TopicPartition], now: Moment) -> None:
        """Write or request each partition's marker, from the last on, in slices.

        The next slice runs after other work has had its turn.
        """
        if pending.shard.is_over:
            return
        assert len(names) <= pending.left
        marked: list[PendingWrite] = []
        budget = ROUTED_AT_ONCE
        while names and budget > 0:
            name = names.pop()
            leader = self._leader_of(name)
            if leader == self._runtime.broker_id:
                budget -= ROUTED_AT_ONCE // MARKED_AT_ONCE
                self._write_local_marker(pending, name, marked, now)
                continue
            budget -= 1
            if leader is None:
                pending.add_marked()
            elif leader == NO_BROKER:
                pending.add_failed(name)
            else:
                self.markers.add(leader, pending, name, now)
        if names:
            self._runtime.timers.at(now.steady + 1, lambda later: self._mark(pending, names, later))
        self._wait(pending, marked, now)

    def _leader_of(self, name: TopicPartition) -> BrokerId | None:
        """Return a partition's leader; NO_BROKER if unknown or not alive, None if the partition is deleted.

        The coordinator's view contained each partition that joined the transaction. This broker applied the
        controller's earlier updates before it became coordinator. So a partition missing from the view was deleted.
        """
        view = self._runtime.view()
        topic = view.topics.get(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            return None
        leader = topic.partitions[name.partition].leader
        return leader if leader == self._runtime.broker_id or leader in view.brokers else NO_BROKER

    def _write_local_marker(
        self, pending: PendingCompletion, name: TopicPartition, marked: list[PendingWrite], now: Moment
    ) -> None:
        try:
            written = self._write_marker(name, pending.marker, now)
        except Refused as refused:
            if refused.code in FENCED:
                _LOG.warning("%s: transaction marker for %s is obsolete: %s", pending.decided.id, name, refused)
                pending.add_marked()
                return
            _LOG.warning(
                "%s: failed to write the transaction marker to %s (will retry): %s", pending.decided.id, name, refused
            )
            pending.add_failed(name)
        else:
            if written is None:  # The topic was deleted.
                pending.add_marked()
            else:
                marked.append(written)

    def _wait(self, pending: PendingCompletion, marked: list[PendingWrite], now: Moment) -> None:
        """Wait until markers that were written here are safe, then continue."""
        while marked and marked[-1].is_settled:
            written = marked.pop()
            if written.is_safe:
                pending.add_marked()
            else:
                pending.add_failed(written.name)
        if marked:

            def on_settled(later: Moment) -> None:
                self._wait(pending, marked, later)

            self._runtime.steps.when_safe(marked[-1], on_settled, now, on_lost=on_settled)
        self._settle(pending, now)

    def _settle(self, pending: PendingCompletion, now: Moment) -> None:
        """Complete the transaction once no partition is left, or start the pause of failed ones."""
        if not pending.left:
            self._complete(pending, now)
        elif pending.failed and not pending.is_paused:
            pending.pause()
            self._runtime.timers.at(now.steady + RETRY_MS, lambda later: self._retry_markers(pending, later))

    def _retry_markers(self, pending: PendingCompletion, now: Moment) -> None:
        self._mark(pending, pending.take_failed(), now)

    def _complete(self, pending: PendingCompletion, now: Moment) -> None:
        assert not pending.left and not pending.is_paused
        if pending.shard.is_over:
            return
        try:
            pending.shard.completed(rules.completed(pending.decided, now.wall), now)
        except Refused as refused:
            _LOG.warning("%s: failed to complete the transaction (will retry): %s", pending.decided.id, refused)
            retry_at = now.steady + RETRY_MS
            self._runtime.timers.at(retry_at, lambda later: self._complete(pending, later))
