"""Rules of transactions at the last producer epoch."""

from __future__ import annotations

from odradek.base.units import ProducerEpoch, ProducerId, TimestampMs, TopicName, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.transactions import transaction_rules as rules
from odradek.core.transactions.transaction_states import LAST_EPOCH, Transaction, TransactionState, to_record
from odradek.record.internal.internal_codec import encode

NOW = TimestampMs(1_700_000_000_000)
ID, NEXT = ProducerId(4), ProducerId(9)


def test_decision_of_a_kept_transaction_at_the_last_epoch_changes_the_id() -> None:
    kept = Transaction(
        "t",
        ID,
        ProducerEpoch(5),
        state=TransactionState.ONGOING,
        partitions=frozenset([TopicPartition(TopicName("t"), 0)]),
        version=2,
        next_id=ID,
        next_epoch=ProducerEpoch(LAST_EPOCH),
    )
    decided = rules.ends(kept, kept.client, 2, NEXT, NOW, commit=True)
    assert decided.producer == (ID, 6)
    assert rules.completed(decided, NOW).client == ProducerIdAndEpoch(NEXT, ProducerEpoch(0))


def test_last_epoch_can_be_written() -> None:
    """An abort by the coordinator uses the last epoch, also for a kept transaction."""
    last = ProducerEpoch(LAST_EPOCH)
    for next_id, next_epoch in ((ProducerId(-1), ProducerEpoch(-1)), (ID, last)):
        one = Transaction(
            "t", ID, last, state=TransactionState.ONGOING, version=2, next_id=next_id, next_epoch=next_epoch
        )
        fenced = rules.fenced(one, NOW)
        done = rules.completed(fenced, NOW)
        for expected in (None, done.client):
            begun = rules.begins(done, expected, 1000, NEXT, NOW)
            assert begun.client == (NEXT, 0)
            for each in (fenced, done, begun):
                for version in (0, 1):
                    record = to_record(each, version)
                    encode(record.key, record.value, version)
