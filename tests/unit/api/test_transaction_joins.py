"""Joins of partitions: a write to a partition is acknowledged only after the join is durable.

Otherwise, after a power failure in between, the transaction would commit without acknowledged records.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.request.outcome import Encoded
from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.core.disks.flushes import Sync
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.produce import ProduceResponse
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitResponse
from support.group_offsets import GroupOffsets
from support.in_memory import Harness, frame_of
from support.transactional import Transactional, make_topic

DATA = TopicPartition(TopicName("x"), 0)
STATE = TopicPartition(TRANSACTION_STATE, 0)
OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)
LATEST = 5  # The first version of TxnOffsetCommit that adds the group's partition to the transaction.


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path, transaction_state_log_num_partitions="1", offsets_topic_num_partitions="1")
    make_topic(harness, "x", 2)
    return harness


class Syncs:
    """Requested syncs, which a test ends one by one."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._waiting = [effect for effect in harness.broker.take_effects() if isinstance(effect, Sync)]

    def end(self, name: TopicPartition) -> list[object]:
        """End a sync and return the requests that complete."""
        (sync,) = [effect for effect in self._waiting if name in effect.flushes]
        assert list(sync.flushes) == [name]
        self._harness.broker.on_event(sync.run(), self._harness.now)
        return [*self._harness.broker.purgatory.take_completed()]


def begin_transaction(harness: Harness, *, is_plain: bool) -> Transactional:
    """Return a producer in a transaction that has the other partition.

    With `is_plain`, its next request to this partition matches a template.
    """
    producer = Transactional(harness)
    producer.begin()
    if is_plain:
        assert producer.write("x", b"before") == ErrorCode.NONE
        assert producer.end(commit=True) == ErrorCode.NONE
    assert producer.write("x", b"before", partition=1) == ErrorCode.NONE
    return producer


def parked(outcome: Encoded | ParkedRequest[Encoded]) -> ParkedRequest[Encoded]:
    assert isinstance(outcome, ParkedRequest)
    return outcome


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("order", [(DATA, STATE), (STATE, DATA)])
def test_batch_and_its_duplicate_wait_for_both_syncs(
    harness: Harness, order: tuple[TopicPartition, TopicPartition], is_plain: bool
) -> None:
    producer = begin_transaction(harness, is_plain=is_plain)
    request = producer.produce("x", {0: [b"a"]})
    waiting = [parked(harness.send(request, 13)) for _ in range(2)]
    syncs = Syncs(harness)
    assert syncs.end(order[0]) == []
    assert syncs.end(order[1]) == waiting
    for one in waiting:
        answer = harness.decoded(one.then(), 13, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_partitions_of_one_produce_wait_for_their_common_join_record(harness: Harness) -> None:
    producer = Transactional(harness)
    producer.begin()
    waiting = parked(harness.send(producer.produce("x", {0: [b"a"], 1: [b"b"]}), 13))
    syncs = Syncs(harness)
    assert syncs.end(DATA) == syncs.end(TopicPartition(TopicName("x"), 1)) == []
    assert syncs.end(STATE) == [waiting]


def test_lost_join_returns_an_error(harness: Harness) -> None:
    producer = begin_transaction(harness, is_plain=False)
    waiting = parked(harness.send(producer.produce("x", {0: [b"a"]}), 13))
    assert Syncs(harness).end(DATA) == []
    harness.broker.partitions[STATE].take_offline()
    answer = harness.decoded(harness.finished(waiting), 13, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("order", [(OFFSETS, STATE), (STATE, OFFSETS)])
def test_offset_commit_waits_for_both_syncs(harness: Harness, order: tuple[TopicPartition, TopicPartition]) -> None:
    group = GroupOffsets(harness)
    producer = begin_transaction(harness, is_plain=False)
    waiting = parked(harness.send(group.request_in(producer, {("x", 0): 1}), LATEST))
    syncs = Syncs(harness)
    assert syncs.end(order[0]) == []
    assert syncs.end(order[1]) == [waiting]
    answer = harness.decoded(waiting.then(), LATEST, TxnOffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_large_batch_is_not_streamed_during_a_join(harness: Harness) -> None:
    producer = Transactional(harness)
    producer.begin()
    large = b"a" * 1_000_000
    assert producer.write("x", b"small") == ErrorCode.NONE
    assert begins(harness, producer, large)
    parked(harness.send(producer.produce("x", {1: [b"joins"]}), 13))
    assert not begins(harness, producer, large)
    harness.settle()
    assert begins(harness, producer, large)


def begins(harness: Harness, producer: Transactional, value: bytes) -> bool:
    """Return whether a large batch is written while it is being received."""
    talk = harness.talk()
    talk.receive_data(frame_of(producer.produce("x", {0: [value]}), 13, 1, "tests")[:100_000])
    arrival = talk.begin_large(harness.now)
    if arrival is not None:
        arrival.forget()
    return arrival is not None


def test_verified_batch_waits_for_the_join(harness: Harness) -> None:
    producer = Transactional(harness, version=1)
    producer.begin()
    harness.broker.transactions.add_partitions(producer.id, producer.producer, (DATA,), 0, harness.now)
    waiting = parked(harness.send(producer.produce("x", {0: [b"a"]}), 10))
    syncs = Syncs(harness)
    assert syncs.end(DATA) == []
    assert syncs.end(STATE) == [waiting]
