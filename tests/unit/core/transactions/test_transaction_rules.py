"""What becomes of a transaction where epochs run out."""

from __future__ import annotations

from odradek.base.units import ProducerEpoch, ProducerId, TimestampMs, TopicName, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.transactions import transaction_rules as rules
from odradek.core.transactions.transaction_states import LAST_EPOCH, Transaction, TransactionState, to_record
from odradek.record.internal.internal_codec import encode

NOW = TimestampMs(1_700_000_000_000)
ID, NEXT = ProducerId(4), ProducerId(9)


def test_who_decides_what_was_kept_with_the_last_epoch_goes_on_with_another_id() -> None:
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


def test_no_epoch_is_too_great_to_be_written() -> None:
    """An abort that nobody asked for takes the last one, also of what is kept."""
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
