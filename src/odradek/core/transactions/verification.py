"""What the coordinator on another broker says of the partitions of one request, and whether it still holds.

Time passes until the answer is there.  A partition may have got a marker meanwhile, that of the very transaction that
was asked about: what came behind it would be open for ever.  So the answer counts only while the partition knows the
producer as it did when it was asked (Kafka's VerificationGuard), or if the transaction is open in it by now.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicPartition
from odradek.core.partition.leading import Leading
from odradek.core.transactions.addition_queue import Codes
from odradek.core.transactions.additions import Question
from odradek.log.producers.producer_state import ProducerStateEntry


class Verification:
    """One question and its answer; `asked` has the partitions that it is about."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.asked: dict[TopicPartition, ProducerStateEntry | None] = {}
        self.codes: Codes = {}

    def add(self, leading: Leading) -> None:
        """Adds a partition to what is asked about."""
        self.asked[leading.name] = leading.producer(self.question.producer.id)

    def answered(self, codes: Codes | None) -> None:
        """Takes the answer; None if there was none in time, or the broker stops."""
        self.codes = dict.fromkeys(self.asked, ErrorCode.NETWORK_EXCEPTION) if codes is None else codes

    @property
    def confirmed(self) -> list[TopicPartition]:
        """The partitions that are part of the transaction."""
        return [name for name, code in self.codes.items() if code is ErrorCode.NONE]

    def check(self, leading: Leading) -> None:
        """Raises Refused unless the producer may write to the partition now, by all that the coordinator has said.

        NOT_ENOUGH_REPLICAS, which producers of all versions try again for, if it has to be asked anew.
        """
        code = self.codes.get(leading.name, ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            raise Refused(code, f"the coordinator of {self.question.transactional_id} was asked about {leading.name}")
        producer = self.question.producer
        if not leading.has_open_transaction(producer.id, producer.epoch) and not self._holds_for(leading):
            text = f"{leading.name} has seen producer {producer.id} end a transaction since it was asked about"
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS, text)

    def _holds_for(self, leading: Leading) -> bool:
        if leading.name not in self.asked:
            return False
        # Where each transaction has an epoch, that of the one before may end meanwhile; the end of this one, whose
        # epoch is above it, fences what comes late.
        return self.question.adds or leading.producer(self.question.producer.id) is self.asked[leading.name]
