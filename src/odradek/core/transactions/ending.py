"""EndTxn: write the decision and wait for its completion, with a new id if epochs are exhausted."""

from __future__ import annotations

from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import ProducerId
from odradek.core.coordinators.state_log import NON_TRANSACTIONAL, ProducerIdAndEpoch
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.promise import Promise
from odradek.core.transactions import transaction_rules as rules
from odradek.core.transactions.transaction_shard import Completion, TransactionShard
from odradek.core.transactions.transaction_state_manager import TransactionStateManager
from odradek.core.transactions.transaction_states import NO_ID, Transaction


class EndTxn(NamedTuple):
    """An EndTxn request; `version` is 2 if the transaction has its own epoch (KIP-890)."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    version: int
    is_commit: bool


class EndTxnResult(NamedTuple):
    """The answer, with the producer's next id and epoch."""

    error: ErrorCode
    producer: ProducerIdAndEpoch = NON_TRANSACTIONAL


class PendingEndTxn:
    """One EndTxn in progress."""

    def __init__(self, manager: TransactionStateManager, end: EndTxn) -> None:
        self.promise: Promise[EndTxnResult] = Promise()
        self._manager = manager
        self._end = end

    def advance(self, now: Moment) -> None:
        """Decide, with a new producer id if needed, or raise Refused for an unknown transactional id."""
        _, current = self._manager.find_transaction(self._end.transactional_id)
        if current.is_exhausted and (current.is_kept or self._end.version >= rules.EPOCH_PER_TRANSACTION):
            self._manager.ids.allocate_id(lambda new_id: self._on_id_allocated(new_id, now))
        else:
            self._on_id_allocated(NO_ID, now)

    def _on_id_allocated(self, new_id: ProducerId | None, now: Moment) -> None:
        if new_id is None:
            self._complete(EndTxnResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        try:
            self._decide(new_id, now)
        except Refused as refused:
            self._complete(EndTxnResult(refused.code))

    def _decide(self, new_id: ProducerId, now: Moment) -> None:
        end = self._end
        shard, current = self._manager.find_transaction(end.transactional_id)
        try:
            decided = rules.end_transaction(current, end.producer, end.version, new_id, now.wall, commit=end.is_commit)
        except rules.RepeatedEndTxn:
            if current.is_past_last_epoch:
                self._renew(shard, rules.renewed(current, new_id, now.wall), now)
            else:
                self._complete(EndTxnResult(ErrorCode.NONE, current.client))
            return
        ended = EndTxnResult(ErrorCode.NONE, rules.completed(decided, now.wall).client)
        moved = EndTxnResult(ErrorCode.NOT_COORDINATOR)
        then = Completion(lambda _: self._complete(ended), lambda: self._complete(moved))
        self._manager.completions.decide(shard, decided, now, then=then)

    def _renew(self, shard: TransactionShard, renewed: Transaction, now: Moment) -> None:
        """Answer with a new producer id once it is safe; a second retry finds it as its own."""
        ended, moved = EndTxnResult(ErrorCode.NONE, renewed.client), EndTxnResult(ErrorCode.NOT_COORDINATOR)
        steps = self._manager.runtime.steps
        written = shard.put(renewed, now)
        steps.when_safe(written, lambda _: self._complete(ended), now, lambda _: self._complete(moved))

    def _complete(self, ended: EndTxnResult) -> None:
        self.promise.keep(self._manager.runtime.purgatory, ended)
