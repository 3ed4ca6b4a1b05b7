"""Requests to transaction coordinators: Kafka's AddPartitionsToTxnManager without connections.

    ask ──> a queue for each broker ──take──> AddPartitions, one in flight for each ──answered──> the promise is kept
     └──> the coordinator is local: it answers at once, or when the partitions' join is safe ───────────┘

A request contains everything queued while the previous one was in flight. After CONCURRENT_TRANSACTIONS the
coordinator is asked again after a pause, as long as the client can wait, because the previous transaction is about to
end.

Differs from Kafka: a repeated request does not displace one that is already waiting. A producer with an older epoch
is fenced by the coordinator, not here as soon as its successor sends a request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Protocol

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, SECOND_MS, BrokerId, TopicPartition
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.runtime import Runtime
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.promise import Promise
from odradek.core.transactions.addition_queue import AdditionQueue, Codes, Parts, QueuedAddition
from odradek.core.transactions.additions import AdditionsOutcome, AddPartitions, TransactionQuery
from odradek.core.transactions.one_in_flight import FailureLogLevels, OneInFlight

_LOG = logging.getLogger(__name__)

CHECK_MS = SECOND_MS  # The interval of the search for dead brokers and expired requests.


class Answers(Protocol):
    """The local coordinator's answer about partitions; it is valid once the returned write is safe."""

    def __call__(
        self, query: TransactionQuery, names: Collection[TopicPartition], now: Moment
    ) -> tuple[Codes, PendingWrite | None]: ...


class AddPartitionsToTxnManager:
    """One broker's requests to transaction coordinators, both remote and local."""

    def __init__(self, runtime: Runtime, coordinator: Callable[[str], BrokerId | None], local_answer: Answers) -> None:
        """Create the manager; `coordinator` finds the broker of a transactional id.

        It returns None if the coordinator is this broker, whose answer is `local_answer`.
        """
        self._runtime = runtime
        self._coordinator = coordinator
        self._local_answer = local_answer
        self._queues: dict[BrokerId, AdditionQueue] = {}
        self._requests = OneInFlight[AddPartitions, Parts]()  # Each with its waiting clients and their partitions.
        self._is_watching = False
        self._log_levels = FailureLogLevels()
        configs = runtime.configs
        self.timeout_ms = configs.int("request.timeout.ms")
        self._retry_ms = configs.int("add.partitions.to.txn.retry.backoff.ms")
        self._retry_ms_max = min(configs.int("add.partitions.to.txn.retry.backoff.max.ms"), self.timeout_ms)

    def add_or_verify(
        self, query: TransactionQuery, names: Collection[TopicPartition], now: Moment, *, retries: bool
    ) -> Promise[Codes]:
        """Request an error code for each partition; the promise may be kept at once.

        Partitions must not repeat. With `retries` the request is repeated for a while if the previous transaction has
        not ended yet.
        """
        assert names, "a request names at least one partition"
        retry_until = now.steady + self._retry_ms_max if retries else now.steady
        waiting = QueuedAddition(query, names, retry_until, now.steady + self.timeout_ms)
        self._send(waiting, now)
        return waiting.promise

    def _send(self, waiting: QueuedAddition, now: Moment) -> None:
        broker = self._coordinator(waiting.query.transactional_id)
        if broker is None:
            self._answer_locally(waiting, now)
        elif self._runtime.protocol.add_partitions_to_txn is None:
            self._refuse(waiting, _code_without_request(waiting.query))
        elif broker == NO_BROKER or broker not in self._runtime.view().brokers:
            self._refuse(waiting, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            queue = self._queues.setdefault(broker, AdditionQueue())
            if not queue.has_room(len(waiting.names)):
                self._refuse(waiting, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                return
            queue.add(waiting)
            self._requests.mark_ready(broker)
            self._watch(now)

    def _answer_locally(self, waiting: QueuedAddition, now: Moment) -> None:
        codes, written = self._local_answer(waiting.query, waiting.names, now)
        if written is None:
            self._end_with(waiting, codes, now)
            return
        lost = dict.fromkeys(waiting.names, ErrorCode.NOT_COORDINATOR)
        self._runtime.steps.when_safe(
            written,
            lambda later: self._end_with(waiting, codes, later),
            now,
            lambda later: self._end_with(waiting, lost, later),
        )

    def _end_with(self, waiting: QueuedAddition, codes: Codes, now: Moment) -> None:
        waiting.codes = codes
        self._end(waiting, now)

    # Requests.

    def take_additions(self) -> list[AddPartitions]:
        """Return the requests to send now, at most one for each broker without a request in flight."""
        return self._requests.take_requests(self._runtime.view().brokers, self._request)

    def _request(self, broker: BrokerId) -> tuple[AddPartitions, Parts] | None:
        queue = self._queues.get(broker)
        if not queue:
            return None
        transactions, parts = queue.take_next_request()
        return AddPartitions(broker, transactions), parts

    def on_answered(self, effect: AddPartitions, outcome: AdditionsOutcome, now: Moment) -> None:
        """Process the outcome of a request; a second outcome of the same request is ignored."""
        parts = self._requests.on_answered(effect)
        if parts is None:
            return
        self._log_failure(effect.broker, outcome)
        for waiting, names in parts:
            if waiting.is_over:
                continue
            for name in names:
                assert name not in waiting.codes, "a partition is asked about once at a time"
                waiting.codes[name] = _code_of(waiting.query, name, outcome)
            if waiting.has_all_codes:
                self._end(waiting, now)

    def _end(self, waiting: QueuedAddition, now: Moment) -> None:
        """Answer the waiting client, or send all its partitions again to the current coordinator."""
        assert waiting.has_all_codes
        is_concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in waiting.codes.values()
        if is_concurrent and now.steady < waiting.retry_until:
            waiting.reset_codes()
            self._runtime.timers.at(now.steady + self._retry_ms, lambda later: self._send(waiting, later))
        else:
            self._complete(waiting)

    def _refuse(self, waiting: QueuedAddition, code: ErrorCode) -> None:
        for name in waiting.names:
            waiting.codes.setdefault(name, code)
        self._complete(waiting)

    def _complete(self, waiting: QueuedAddition) -> None:
        assert waiting.codes.keys() == set(waiting.names), "each partition has an error code"
        waiting.promise.keep(self._runtime.purgatory, waiting.codes)

    def _log_failure(self, broker: BrokerId, outcome: AdditionsOutcome) -> None:
        """Log the reason for a missing answer."""
        level = self._log_levels.level(broker, [outcome.code] if isinstance(outcome, Refused) else ())
        if level is not None:
            text = "AddPartitionsToTxn request to broker %d failed: %s"
            _LOG.log(level, text, broker, outcome)

    # Dead brokers.

    def _watch(self, now: Moment) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._runtime.timers.at(now.steady + CHECK_MS, self._check_queues)

    def _check_queues(self, now: Moment) -> None:
        """Refuse requests queued for dead brokers, and drop expired requests."""
        assert self._is_watching
        self._is_watching = False
        alive = self._runtime.view().brokers
        for broker, queue in list(self._queues.items()):
            for waiting in queue:
                is_dead = broker not in alive
                if is_dead or waiting.deadline <= now.steady:
                    queue.forget(waiting)
                    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_dead else ErrorCode.NETWORK_EXCEPTION
                    self._refuse(waiting, code)
            if not queue:
                del self._queues[broker]
            else:
                self._requests.mark_ready(broker)
        assert all(self._queues.values()), "no queue is empty"
        if self._queues:
            self._watch(now)


def _code_of(query: TransactionQuery, name: TopicPartition, outcome: AdditionsOutcome) -> ErrorCode:
    """Return a partition's error code, or NETWORK_EXCEPTION if the answer has none for it."""
    if not isinstance(outcome, Refused):
        return outcome.get((query.transactional_id, name), ErrorCode.NETWORK_EXCEPTION)
    match outcome.code:
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return ErrorCode.INVALID_TXN_STATE  # This broker lacks the authorization, not the producer.
        case ErrorCode.UNSUPPORTED_VERSION:
            return _code_without_request(query)
        case ErrorCode.NONE | ErrorCode.REQUEST_TIMED_OUT:
            return ErrorCode.NETWORK_EXCEPTION
        case code:
            return code


def _code_without_request(query: TransactionQuery) -> ErrorCode:
    """Return the code for a coordinator without AddPartitionsToTxn, which is not asked.

    As in Apache Kafka, this lasts while a cluster is being upgraded.
    """
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if query.adds else ErrorCode.NONE
