"""A coordinator's answers to its own broker about a transaction's partitions.

Other brokers send AddPartitionsToTxn.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicPartition
from odradek.core.coordinators.durable import Written
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.moment import Moment
from odradek.core.transactions.addition_queue import Codes
from odradek.core.transactions.additions import Question
from odradek.core.transactions.transaction_rules import EPOCH_PER_TRANSACTION


class PartitionsInTransactions(Protocol):
    """The part of TransactionCoordinator that verifies partitions."""

    def touch(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        version: int,
        now: Moment,
    ) -> Written | None: ...

    def unsafe_join(self, transactional_id: str) -> Written | None: ...

    def check_touched(self, transactional_id: str, producer: ProducerIdAndEpoch, name: TopicPartition) -> None: ...


def answer(
    coordinator: PartitionsInTransactions, question: Question, names: Collection[TopicPartition], now: Moment
) -> tuple[Codes, Written | None]:
    """Return the error code of each partition, and the write that must be safe before they apply."""
    transactional_id, producer, adds = question
    try:
        if adds:
            written = coordinator.touch(transactional_id, producer, names, EPOCH_PER_TRANSACTION, now)
            return dict.fromkeys(names, ErrorCode.NONE), written
    except Refused as refused:
        return dict.fromkeys(names, refused.code), None
    codes = {name: _code_of(coordinator, question, name) for name in names}
    return codes, coordinator.unsafe_join(transactional_id)


def _code_of(coordinator: PartitionsInTransactions, question: Question, name: TopicPartition) -> ErrorCode:
    try:
        coordinator.check_touched(question.transactional_id, question.producer, name)
    except Refused as refused:
        return refused.code
    return ErrorCode.NONE
