"""The shard of one partition of __transaction_state: its transactional ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from odradek.base.errors import ErrorCode, Refused
from odradek.core.coordinators.durable import PendingWrite, Step
from odradek.core.coordinators.runtime import Runtime
from odradek.core.coordinators.state_log import ProducerIdAndEpoch, StateLog, StateRecord
from odradek.core.kernel.moment import Moment
from odradek.core.partition.leading import Leading
from odradek.core.transactions.transaction_states import COMPLETE_AFTER, Transaction, from_record, key_of, to_record
from odradek.record.internal.internal_codec import decode_transaction_key, decode_value
from odradek.record.internal.transaction_log import TransactionLogKey, TransactionLogValue


class ResumeCallback(Protocol):
    """Callback that continues a decision interrupted by a stop."""

    def __call__(self, shard: TransactionShard, transaction: Transaction, now: Moment) -> None: ...


class Completion(NamedTuple):
    """A callback for the end of a decided transaction; `on_lost` is called if its coordinator ends first."""

    step: Step
    on_lost: Callable[[], None]


class TransactionShard:
    """One shard; `transactions` matches the log, and `put` changes both."""

    def __init__(self, leading: Leading, runtime: Runtime, resume: ResumeCallback) -> None:
        self._version = runtime.protocol.transaction_value
        self.log = StateLog(leading, {TransactionLogValue: self._version}, runtime)
        self.transactions: dict[str, Transaction] = {}
        self.is_over = False
        self._resume = resume
        self._waiting: dict[str, list[Completion]] = {}  # By transactional id.

    @property
    def coordinator_epoch(self) -> int:
        return self.log.leading.epoch

    def put(self, transaction: Transaction, now: Moment) -> PendingWrite:
        """Write the transaction's new state, or raise Refused and change nothing."""
        written = self.log.append([to_record(transaction, self._version)], now)
        self.transactions[transaction.id] = transaction
        return written

    def remove(self, transactional_id: str, now: Moment) -> None:
        """Remove a transactional id, or raise Refused."""
        assert transactional_id not in self._waiting, "no request waits for the end of a removed transaction"
        self.log.append([StateRecord(key_of(transactional_id), None)], now)
        del self.transactions[transactional_id]

    def after_completion(self, transactional_id: str, then: Completion) -> None:
        """Call `then` when the decided transaction is complete, or if the shard ends first."""
        if self.is_over:  # The write of the decision has found that it ended.
            then.on_lost()
            return
        assert self.transactions[transactional_id].is_decided, "only a decided transaction is waited for"
        self._waiting.setdefault(transactional_id, []).append(then)

    def completed(self, transaction: Transaction, now: Moment) -> None:
        """Write that a transaction is complete and notify its waiters, or raise Refused."""
        current = self.transactions[transaction.id]
        assert COMPLETE_AFTER.get(current.state) is transaction.state, (
            "a transaction is completed once, as it was decided"
        )
        assert not transaction.partitions, "a complete transaction has no partition left to mark"
        self.put(transaction, now)
        for completion in self._waiting.pop(transaction.id, ()):
            completion.step(now)

    # The methods of a Shard.

    def replay(self, key: bytes, value: bytes | None, producer: ProducerIdAndEpoch) -> None:
        decoded = decode_transaction_key(key)
        if decoded is not None:
            self._apply(decoded, None if value is None else decode_value(decoded, value))

    def _apply(self, key: TransactionLogKey, value: object | None) -> None:
        if value is None:
            self.transactions.pop(key.transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        try:
            self.transactions[key.transactional_id] = from_record(key, value)
        except ValueError as error:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"{key.transactional_id}: {error}") from error

    def is_replaceable(self, key: bytes) -> bool:
        return True

    def replay_end(self, producer: ProducerIdAndEpoch, *, is_commit: bool) -> None:
        """Do nothing, because no record here is written in a transaction."""

    def on_loaded(self, now: Moment) -> None:
        assert not self.is_over and not self._waiting
        for transaction in list(self.transactions.values()):
            if self.log.leading.ended is not None:
                return  # A marker of another transaction has found the disk failed.
            self._resume(self, transaction, now)

    def on_unloaded(self) -> None:
        assert not self.is_over
        self.is_over = True
        waiting, self._waiting = self._waiting, {}
        for completion in [completion for completions in waiting.values() for completion in completions]:
            completion.on_lost()
        assert not self._waiting, "nothing waits for the transactions of an ended shard"
