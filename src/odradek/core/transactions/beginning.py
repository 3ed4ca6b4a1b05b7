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

    def __init__(self, manager: TransactionStateManager, asked: InitProducerId) -> None:
        self.promise: Promise[InitProducerIdResult] = Promise()
        self._manager = manager
        self._asked = asked

    def advance(self, now: Moment) -> None:
        """Advance InitProducerId until it is answered or must wait; called again when that wait is over."""
        try:
            was = self._transaction()
            if was is None or was.is_exhausted:
                self._manager.ids.allocate_id(lambda new_id: self._go_with(new_id, now))
            else:
                self._go_from(was, NO_ID, now)
        except Refused as refused:
            self._keep(InitProducerIdResult(refused.code))

    def _go_with(self, new_id: ProducerId | None, now: Moment) -> None:
        if new_id is None:
            self._keep(NO_IDS)
            return
        try:
            self._go_from(self._transaction() or Transaction(self._asked.transactional_id, new_id), new_id, now)
        except Refused as refused:
            self._keep(InitProducerIdResult(refused.code))

    def _transaction(self) -> Transaction | None:
        transactional_id = self._asked.transactional_id
        return self._manager.shards.find_shard(transactional_id).transactions.get(transactional_id)

    def _go_from(self, was: Transaction, new_id: ProducerId, now: Moment) -> None:
        asked = self._asked
        assert new_id != NO_ID or not was.is_exhausted
        if was.is_decided:
            self._manager.shards.find_shard(was.id).after_completion(was.id, Completion(self.advance, self._lost))
        elif was.state is not TransactionState.ONGOING:
            timeout_ms = NEVER_MS if asked.has_two_phases else asked.timeout_ms
            self._begin(rules.begins(was, asked.expected, timeout_ms, new_id, now.wall), NON_TRANSACTIONAL, now)
        elif asked.keeps_prepared:
            self._begin(rules.keeps(was, asked.expected, new_id, now.wall), was.producer, now)
        else:
            rules.check_expected(was, asked.expected)
            self._manager.abort(was.id, now, then=Completion(self.advance, self._lost))

    def _begin(self, begun: Transaction, ongoing: ProducerIdAndEpoch, now: Moment) -> None:
        assert begun.id == self._asked.transactional_id and not begun.is_decided
        began = InitProducerIdResult(ErrorCode.NONE, begun.client, ongoing)
        written = self._manager.shards.find_shard(begun.id).put(begun, now)
        steps = self._manager.runtime.steps
        steps.when_safe(written, lambda _: self._keep(began), now, lambda _: self._lost())

    def _lost(self) -> None:
        self._keep(MOVED)

    def _keep(self, began: InitProducerIdResult) -> None:
        self.promise.keep(self._manager.runtime.purgatory, began)
