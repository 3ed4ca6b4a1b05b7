"""Markers for remote partitions: Kafka's TransactionMarkerChannelManager without connections.

    add ──> a queue for each broker ──take──> WriteMarkers, one in flight for each ──answered──> done, or again

A request contains the markers of all transactions queued while the previous one was in flight. Failed markers return
to their transaction, which looks up the leader again after a pause. For a shard that has ended, no markers are sent
and answers are ignored: its next coordinator writes all markers again, with a higher epoch.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import SECOND_MS, BrokerId, TopicPartition
from odradek.core.coordinators.runtime import Runtime
from odradek.core.kernel.moment import Moment
from odradek.core.transactions.one_in_flight import FailureLogLevels, OneInFlight
from odradek.core.transactions.pending_completion import PendingCompletion
from odradek.core.transactions.transaction_markers import MarkersOutcome, WriteMarkers

_LOG = logging.getLogger(__name__)

MARKERS_PER_REQUEST_MAX = 1000  # Partitions of all its markers together.
PROCESSED_AT_ONCE = 16  # Transactions of one answer; each completion is a write.
CHECK_MS = SECOND_MS  # The interval of the search for dead brokers.

# Errors of a partition that has seen a later epoch, so that there is nothing left to end.
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
# Any other error is retried, including UNKNOWN_TOPIC_OR_PARTITION: the broker may not have learned of the partition
# yet.
_DONE = FENCED | {ErrorCode.NONE}

Queue = dict[PendingCompletion, list[TopicPartition]]


class TransactionMarkerChannelManager:
    """One coordinator's marker requests to other brokers."""

    def __init__(self, runtime: Runtime, settle: Callable[[PendingCompletion, Moment], None]) -> None:
        """Create the manager; `settle` is called after each change to the markers of a transaction."""
        self._runtime = runtime
        self._settle = settle
        self._queues: dict[BrokerId, Queue] = {}
        self._requests = OneInFlight[WriteMarkers, list[PendingCompletion]]()  # With the transaction of each marker.
        self._is_watching = False
        self._log_levels = FailureLogLevels()

    def add(self, broker: BrokerId, pending: PendingCompletion, name: TopicPartition, now: Moment) -> None:
        """Queue the marker of a partition that another broker leads."""
        assert broker != self._runtime.broker_id, "markers of local partitions are written at once"
        self._queues.setdefault(broker, {}).setdefault(pending, []).append(name)
        self._requests.mark_ready(broker)
        self._watch(now)

    def take_markers(self) -> list[WriteMarkers]:
        """Return the requests to send now, at most one for each broker without a request in flight."""
        return self._requests.take_requests(self._runtime.view().brokers, self._request)

    def _request(self, broker: BrokerId) -> tuple[WriteMarkers, list[PendingCompletion]] | None:
        queue = self._queues.get(broker, {})
        markers: list[tuple[PendingCompletion, list[TopicPartition]]] = []
        room = MARKERS_PER_REQUEST_MAX
        while queue and room:
            pending = next(iter(queue))
            names = queue.pop(pending)
            if pending.shard.is_over:
                continue
            assert names, "a queued transaction has markers that were not sent"
            taken = names[-room:]
            del names[-room:]
            if names:
                queue[pending] = names  # At the end of the queue, so that a huge transaction delays no other.
            markers.append((pending, taken))
            room -= len(taken)
        assert 0 <= room <= MARKERS_PER_REQUEST_MAX
        if not markers:
            return None
        effect = WriteMarkers(broker, [(pending.marker, names) for pending, names in markers])
        return effect, [pending for pending, _ in markers]

    # Outcomes.

    def on_answered(self, effect: WriteMarkers, outcome: MarkersOutcome, now: Moment) -> None:
        """Process the outcome of a request; a second outcome of the same request is ignored."""
        transactions = self._requests.on_answered(effect)
        if transactions is not None:
            assert len(transactions) == len(effect.markers), "each marker belongs to a transaction"
            self._log_failures(effect, outcome)
            self._process(effect, transactions, outcome, now)

    def _process(
        self, effect: WriteMarkers, transactions: list[PendingCompletion], outcome: MarkersOutcome, now: Moment
    ) -> None:
        """Process the answer for the last few transactions, and schedule the rest for later turns."""
        assert transactions and len(transactions) <= len(effect.markers)
        for _ in range(min(len(transactions), PROCESSED_AT_ONCE)):
            pending = transactions.pop()
            _, names = effect.markers[len(transactions)]
            if pending.shard.is_over:
                continue
            for name in names:
                if _code_of(pending, name, outcome) in _DONE:
                    pending.add_marked()
                else:
                    pending.add_failed(name)
            self._settle(pending, now)
        if transactions:
            next_turn = now.steady + 1
            self._runtime.timers.at(next_turn, lambda later: self._process(effect, transactions, outcome, later))

    def _log_failures(self, effect: WriteMarkers, outcome: MarkersOutcome) -> None:
        """Log all failures on one line."""
        codes = Counter([outcome.code] if isinstance(outcome, Refused) else outcome.values())
        failed = {code: count for code, count in codes.items() if code is not ErrorCode.NONE}
        level = self._log_levels.level(effect.broker, failed)
        if level is None:
            return
        why = outcome if isinstance(outcome, Refused) else ", ".join(f"{code.name} × {n}" for code, n in failed.items())
        _LOG.log(level, "WriteTxnMarkers request to broker %d failed (will retry): %s", effect.broker, why)

    # Dead brokers.

    def _watch(self, now: Moment) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._runtime.timers.at(now.steady + CHECK_MS, self._check_queues)

    def _check_queues(self, now: Moment) -> None:
        """Return markers queued for dead brokers to their transactions, and drop markers of ended shards."""
        assert self._is_watching
        self._is_watching = False
        alive = self._runtime.view().brokers
        for broker, queue in list(self._queues.items()):
            waiting = {pending: names for pending, names in queue.items() if not pending.shard.is_over}
            if waiting and broker in alive:
                self._queues[broker] = waiting
                self._requests.mark_ready(broker)
                continue
            del self._queues[broker]
            for pending, names in waiting.items():
                for name in names:
                    pending.add_failed(name)
                self._settle(pending, now)
        if self._queues:
            self._watch(now)


def _code_of(pending: PendingCompletion, name: TopicPartition, outcome: MarkersOutcome) -> ErrorCode:
    """Return a partition's error code, or UNKNOWN_SERVER_ERROR if the answer has none for it."""
    if isinstance(outcome, Refused):
        return outcome.code
    return outcome.get((pending.marker.producer.id, name), ErrorCode.UNKNOWN_SERVER_ERROR)
