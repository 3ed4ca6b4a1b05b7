"""The transactions of the shards that this broker leads: Kafka's TransactionStateManager."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress

from odradek.base.errors import ErrorCode, Refused
from odradek.core.coordinators.runtime import Runtime
from odradek.core.coordinators.shards import Shards
from odradek.core.kernel.moment import Moment
from odradek.core.transactions import transaction_rules as rules
from odradek.core.transactions.completion import Completions
from odradek.core.transactions.producer_ids import ProducerIds
from odradek.core.transactions.transaction_shard import Completion, TransactionShard
from odradek.core.transactions.transaction_states import Transaction, TransactionState

_LOG = logging.getLogger(__name__)

IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


class TransactionStateManager:
    """Loaded transactions, new producer ids, and the completion of decided transactions."""

    def __init__(
        self, runtime: Runtime, shards: Shards[TransactionShard], ids: ProducerIds, completions: Completions
    ) -> None:
        self.runtime = runtime
        self.shards = shards
        self.ids = ids
        self.completions = completions
        configs = runtime.configs
        self._abort_ms = configs.int("transaction.abort.timed.out.transaction.cleanup.interval.ms")
        self._expire_ms = configs.int("transaction.remove.expired.transaction.cleanup.interval.ms")
        self._expires_after_ms = configs.int("transactional.id.expiration.ms")
        self._last_abort = self._last_expiry = 0

    def find_transaction(self, transactional_id: str) -> tuple[TransactionShard, Transaction]:
        """Return the transactional id's shard and transaction.

        Raises Refused: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_PRODUCER_ID_MAPPING (unknown).
        """
        if not transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST, "the transactional id must not be empty")
        shard = self.shards.find_shard(transactional_id)
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {transactional_id} is unknown")
        return shard, transaction

    def greatest_id(self) -> int:
        """Return the greatest known producer id, or -1 if there is none."""
        known = (transaction for shard in self.shards for transaction in shard.transactions.values())
        return max((max(transaction.producer_id, transaction.next_id) for transaction in known), default=-1)

    def abort(self, transactional_id: str, now: Moment, then: Completion | None = None) -> None:
        """Abort an open transaction and fence its producer, or raise Refused."""
        shard, current = self.find_transaction(transactional_id)
        self.completions.decide(shard, rules.fenced(current, now.wall), now, then)

    def run_housekeeping(self, now: Moment) -> Iterator[None]:
        """Abort overdue transactions and remove expired transactional ids, in slices, when either is due."""
        if now.steady - self._last_abort >= self._abort_ms:
            self._last_abort = now.steady
            yield from self._for_each_transaction(
                lambda shard, transaction: self._abort_overdue(shard, transaction, now)
            )
        if now.steady - self._last_expiry >= self._expire_ms:
            self._last_expiry = now.steady
            yield from self._for_each_transaction(lambda shard, transaction: self._expire(shard, transaction, now))

    def _for_each_transaction(self, work: Callable[[TransactionShard, Transaction], None]) -> Iterator[None]:
        for shard in list(self.shards):
            for transactional_id in list(shard.transactions):
                transaction = shard.transactions.get(transactional_id)
                if transaction is not None and not shard.is_over:  # Both still exist.
                    with suppress(Refused):  # The next round retries.
                        work(shard, transaction)
                yield

    def _abort_overdue(self, shard: TransactionShard, transaction: Transaction, now: Moment) -> None:
        if transaction.is_ahead(now.wall):  # Otherwise its timeout would be extended by the clock difference.
            shard.transactions[transaction.id] = transaction._replace(started=now.wall)
        elif transaction.is_overdue(now.wall):
            _LOG.info(
                "aborting the transaction of %s: transaction timeout of %d ms exceeded",
                transaction.id,
                transaction.timeout_ms,
            )
            self.abort(transaction.id, now)

    def _expire(self, shard: TransactionShard, transaction: Transaction, now: Moment) -> None:
        if transaction.state in IDLE and transaction.updated + self._expires_after_ms < now.wall:
            shard.remove(transaction.id, now)
