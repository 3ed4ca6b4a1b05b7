"""A shard of transactions whose leadership ends in the middle of its own write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import HOUR_MS, TopicPartition
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.kernel.cluster_view import TRANSACTION_STATE
from odradek.core.kernel.moment import Moment
from support.in_memory import Harness
from support.transactional import Transactional, make_topic


def end_in_write(harness: Harness, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let one of the next writes find the disk failed, and that this broker is not the coordinator anymore.

    A write runs the steps that waited for earlier ones, and these may find both.
    """
    shards = harness.broker.transactions.shards
    log, writes = shards.shard(0).log, iter(range(1, number + 1))
    append = log.append

    def append_and_end(records: Sequence[StateRecord], now: Moment) -> PendingWrite:
        written = append(records, now)
        if next(writes) == number:
            monkeypatch.undo()
            harness.broker.partitions[TopicPartition(TRANSACTION_STATE, 0)].take_offline()
            shards.resign(0)
        return written

    monkeypatch.setattr(log, "append", append_and_end)


def begin_transaction(harness: Harness) -> Transactional:
    producer = Transactional(harness)
    producer.begin()
    assert producer.write("t", b"a") == ErrorCode.NONE
    return producer


def initializing(harness: Harness) -> Callable[[], int]:
    producer = Transactional(harness)
    return lambda: producer.begin().error_code


def adding(harness: Harness) -> Callable[[], int]:
    producer = Transactional(harness, version=1)
    producer.begin()
    return lambda: producer.add(("t", 0))[0]


def ending(harness: Harness) -> Callable[[], int]:
    producer = begin_transaction(harness)
    return lambda: producer.end(commit=True)


def replacing(harness: Harness) -> Callable[[], int]:
    begin_transaction(harness)
    return lambda: Transactional(harness).begin().error_code


@pytest.mark.parametrize(
    ("prepared", "number"),
    [(initializing, 1), (adding, 1), (ending, 1), (ending, 2), (replacing, 1), (replacing, 2), (replacing, 3)],
)
def test_shard_may_end_during_its_own_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Callable[[Harness], Callable[[], int]], number: int
) -> None:
    harness = Harness(tmp_path, transaction_state_log_num_partitions="1")
    make_topic(harness, "t")
    write = prepared(harness)
    end_in_write(harness, monkeypatch, number)
    began = harness.now.steady
    assert write() == ErrorCode.NOT_COORDINATOR
    assert harness.now.steady == began, "the client is answered at once"
    for _ in range(3):
        harness.pass_time(HOUR_MS)
        harness.run_housekeeping()
