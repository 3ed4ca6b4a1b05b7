"""Waits for writes that will never be durable."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

from odradek.base.units import TopicName, TopicPartition
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.transactions.transaction_states import TransactionState
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.end_txn import EndTxnRequest
from support.in_memory import Harness
from support.transactional import EPOCHS, Transactional, make_topic


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path, transaction_state_log_num_partitions="1")


def write_markers(harness: Harness, partitions: int = 1) -> Transactional:
    """Return a producer with a durable decision; its markers are written to t but not synced."""
    make_topic(harness, "t", partitions)
    producer = Transactional(harness)
    producer.begin()
    producer.write_all("t", {partition: [b"a"] for partition in range(partitions)})
    end = EndTxnRequest(
        transactional_id=producer.id,
        producer_id=producer.producer.id,
        producer_epoch=producer.producer.epoch,
        committed=True,
    )
    assert isinstance(harness.send(end, EPOCHS), ParkedRequest)
    broker = harness.broker
    (sync,) = broker.take_effects()
    broker.on_event(sync.run(), harness.now)  # type: ignore[union-attr, arg-type]
    assert producer.state.state is TransactionState.PREPARE_COMMIT
    return producer


def ends(harness: Harness, producer: Transactional) -> bool:
    for _ in range(3):
        harness.pass_time(1000)
        harness.run_housekeeping()
    return producer.state.state is TransactionState.COMPLETE_COMMIT


def test_transaction_ends_if_its_topic_is_deleted_before_the_marker_sync(harness: Harness) -> None:
    producer = write_markers(harness)
    harness.request(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5, DeleteTopicsResponse)
    assert ends(harness, producer)


def test_marker_is_rewritten_after_a_disk_failure_before_its_sync(harness: Harness) -> None:
    producer = write_markers(harness)
    name = TopicPartition(TopicName("t"), 0)
    harness.broker.partitions[name].take_offline()
    assert not ends(harness, producer)
    harness.broker.replicas._unopened[name] = harness.broker.view.topics[name.topic].id  # As if the disk had been full.
    assert ends(harness, producer)


def test_many_lost_markers_do_not_exceed_the_recursion_limit(harness: Harness) -> None:
    producer = write_markers(harness, partitions=60)
    for name, partition in harness.broker.partitions.items():
        if name.topic == "t":
            partition.take_offline()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        assert not ends(harness, producer)
    finally:
        sys.setrecursionlimit(limit)
    assert harness.broker.next_due() is not None, "they are tried again"
