"""InitProducerId with a transactional id.

It may need a new producer id, and may first have to end an open transaction. Both take a while, and the request waits
for them.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import ProducerId
from odradek.core.coordinators.state_log import NON_TRANSACTIONAL, ProducerIdAndEpoch
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.promise import Promise
from odradek.core.transactions import transaction_rules as rules
from odradek.core.transactions.transaction_shard import Completion
from odradek.core.transactions.transaction_state_manager import TransactionStateManager
from odradek.core.transactions.transaction_states import NEVER_MS, NO_ID, Transaction, TransactionState


class InitProducerId(NamedTuple):
    """An InitProducerId request; `expected` is the identity that the producer claims (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    has_two_phases: bool = False
    keeps_prepared: bool = False


class InitProducerIdResult(NamedTuple):
    """The answer; `ongoing` is the prepared transaction that was kept, if any (KIP-939)."""

    error: ErrorCode
    producer: ProducerIdAndEpoch = NON_TRANSACTIONAL
    ongoing: ProducerIdAndEpoch = NON_TRANSACTIONAL


NO_IDS = InitProducerIdResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
MOVED = InitProducerIdResult(ErrorCode.NOT_COORDINATOR)


class PendingInitProducerId:
    """One InitProducerId in progress."""

    def __init__(self, manager: TransactionStateManager, request: InitProducerId) -> None:
        self.promise: Promise[InitProducerIdResult] = Promise()
        self._manager = manager
        self._request = request

    def advance(self, now: Moment) -> None:
        """Advance InitProducerId until it is answered or must wait; called again when that wait is over."""
        try:
            current = self._transaction()
            if current is None or current.is_exhausted:
                self._manager.ids.allocate_id(lambda new_id: self._on_id_allocated(new_id, now))
            else:
                self._advance_from(current, NO_ID, now)
        except Refused as refused:
            self._complete(InitProducerIdResult(refused.code))

    def _on_id_allocated(self, new_id: ProducerId | None, now: Moment) -> None:
        if new_id is None:
            self._complete(NO_IDS)
            return
        try:
            self._advance_from(self._transaction() or Transaction(self._request.transactional_id, new_id), new_id, now)
        except Refused as refused:
            self._complete(InitProducerIdResult(refused.code))

    def _transaction(self) -> Transaction | None:
        transactional_id = self._request.transactional_id
        return self._manager.shards.find_shard(transactional_id).transactions.get(transactional_id)

    def _advance_from(self, current: Transaction, new_id: ProducerId, now: Moment) -> None:
        request = self._request
        assert new_id != NO_ID or not current.is_exhausted
        if current.is_decided:
            self._manager.shards.find_shard(current.id).after_completion(
                current.id, Completion(self.advance, self._on_lost)
            )
        elif current.state is not TransactionState.ONGOING:
            timeout_ms = NEVER_MS if request.has_two_phases else request.timeout_ms
            self._begin(
                rules.init_producer_id(current, request.expected, timeout_ms, new_id, now.wall), NON_TRANSACTIONAL, now
            )
        elif request.keeps_prepared:
            self._begin(rules.keep_prepared(current, request.expected, new_id, now.wall), current.producer, now)
        else:
            rules.check_expected(current, request.expected)
            self._manager.abort(current.id, now, then=Completion(self.advance, self._on_lost))

    def _begin(self, transaction: Transaction, ongoing: ProducerIdAndEpoch, now: Moment) -> None:
        assert transaction.id == self._request.transactional_id and not transaction.is_decided
        result = InitProducerIdResult(ErrorCode.NONE, transaction.client, ongoing)
        written = self._manager.shards.find_shard(transaction.id).put(transaction, now)
        steps = self._manager.runtime.steps
        steps.when_safe(written, lambda _: self._complete(result), now, lambda _: self._on_lost())

    def _on_lost(self) -> None:
        self._complete(MOVED)

    def _complete(self, result: InitProducerIdResult) -> None:
        self.promise.keep(self._manager.runtime.purgatory, result)
