"""What brokers ask a transaction's coordinator on another broker: whether partitions are in it, or that they join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch


class Question(NamedTuple):
    """Are some partitions part of the producer's open transaction?  With `adds` they become part of it (KIP-890)."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    adds: bool


class AddPartitions:
    """An effect: ask a coordinator by one AddPartitionsToTxn request; it ends in one `Broker.additions_answered`.

    Each question comes with the partitions that it is about, and no transactional id comes twice.
    """

    def __init__(self, broker: BrokerId, transactions: Sequence[tuple[Question, Sequence[TopicPartition]]]) -> None:
        self.broker = broker
        self.transactions = transactions


# The error code of each partition; or why there is no answer: what was sent may have been carried out, or not.
AdditionsOutcome = Mapping[tuple[str, TopicPartition], ErrorCode] | Refused
