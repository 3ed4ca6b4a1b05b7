"""Rules of transactions at the last producer epoch."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from odradek.base.errors import Refused
from odradek.base.units import INT16_MAX, ProducerEpoch, ProducerId, TimestampMs, TopicName, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.transactions import transaction_rules as rules
from odradek.core.transactions.transaction_states import (
    LAST_EPOCH,
    NEVER_MS,
    NO_EPOCH,
    NO_ID,
    Transaction,
    TransactionState,
    to_record,
)
from odradek.record.internal.internal_codec import encode

NOW = TimestampMs(1_700_000_000_000)
ID, NEXT = ProducerId(4), ProducerId(9)
PARTITION = TopicPartition(TopicName("t"), 0)


def test_decision_of_a_kept_transaction_at_the_last_epoch_changes_the_id() -> None:
    kept = Transaction(
        "t",
        ID,
        ProducerEpoch(5),
        state=TransactionState.ONGOING,
        partitions=frozenset([PARTITION]),
        version=2,
        next_id=ID,
        next_epoch=ProducerEpoch(LAST_EPOCH),
    )
    decided = rules.end_transaction(kept, kept.client, 2, NEXT, NOW, commit=True)
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
            begun = rules.init_producer_id(done, expected, 1000, NEXT, NOW)
            assert begun.client == (NEXT, 0)
            for each in (fenced, done, begun):
                for version in (0, 1):
                    record = to_record(each, version)
                    encode(record.key, record.value, version)


def following(was: Transaction) -> list[Transaction]:
    """Return the results of all transitions from a transaction, with every identity that a client may send."""
    results = [rules.completed(was, NOW)] if was.is_decided else []
    if was.state is TransactionState.ONGOING:
        results += rules.fenced(was, NOW), rules.keep_prepared(was, None, NEXT, NOW)
    elif not was.is_decided:
        results.append(rules.init_producer_id(was, None, 1000, NEXT, NOW))
    for id_, epoch in itertools.product((ID, NEXT), (0, LAST_EPOCH, INT16_MAX)):
        producer = ProducerIdAndEpoch(id_, ProducerEpoch(epoch))
        for version, commit in itertools.product((1, 2), (True, False)):
            with suppress(Refused):
                results.append(rules.add_partitions(was, producer, {PARTITION}, version, NOW))
            try:
                results.append(rules.end_transaction(was, producer, version, NEXT, NOW, commit=commit))
            except Refused:
                pass
            except rules.RepeatedEndTxn:
                if was.is_past_last_epoch:
                    results.append(rules.renewed(was, NEXT, NOW))
        if was.state is not TransactionState.ONGOING and not was.is_decided:
            with suppress(Refused):
                results.append(rules.init_producer_id(was, producer, 1000, NEXT, NOW))
    return results


@pytest.mark.parametrize("epoch", [-1, LAST_EPOCH, INT16_MAX])
@pytest.mark.parametrize("next_epoch", [-1, LAST_EPOCH, INT16_MAX])
@pytest.mark.parametrize("version", [1, 2])
def test_epochs_stay_within_bounds_from_any_state(epoch: int, next_epoch: int, version: int) -> None:
    """A log may contain any of these states, and every state that follows can be written."""
    next_id = NO_ID if next_epoch == NO_EPOCH else ID
    states = [one for one in TransactionState if one < TransactionState.DEAD]
    seen = {
        Transaction("t", ID, ProducerEpoch(epoch), NEVER_MS, state, version=version, next_id=id_, next_epoch=next_)
        for state in states
        for id_, next_ in ((next_id, ProducerEpoch(next_epoch)), (NEXT, NO_EPOCH))
    }
    new = list(seen)
    for _ in range(3):
        new = list({one for was in new for one in following(was)} - seen)
        seen.update(new)
    assert all(one.epoch <= INT16_MAX and one.next_epoch <= INT16_MAX for one in seen)
    for one in seen:
        record = to_record(one, 1)
        encode(record.key, record.value, 1)
        if one.is_past_last_epoch:
            with pytest.raises(Refused):
                rules.check_producer(one, one.client)
