"""State in a topic: read again as it was written, loaded beside the loop if it is much, and kept small."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.core.cluster import TRANSACTION_STATE
from odradek.core.coordinators import shards as shards_module
from odradek.core.partition import Partition
from odradek.core.transactions.states import Transaction
from support.in_memory import Harness
from support.transactional import Transactional


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path, transaction_state_log_num_partitions="1")


def known(harness: Harness) -> dict[str, Transaction]:
    return dict(harness.broker.transactions.shards.shard(0).transactions)


def state_partition(harness: Harness) -> Partition:
    return harness.broker.partitions[TopicPartition(TRANSACTION_STATE, 0)]


def write_many(harness: Harness, ids: int, times: int) -> None:
    for number in range(ids):
        Transactional(harness, f"t{number}").begin()
    shard = harness.broker.transactions.shards.shard(0)
    for _ in range(times):
        for transaction in list(shard.transactions.values()):
            shard.put(transaction._replace(timeout_ms=transaction.timeout_ms + 1), harness.now)
    harness.settle()


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_state_is_read_again_as_it_was_written(harness: Harness, how: str) -> None:
    write_many(harness, ids=20, times=10)
    harness.broker.transactions.shards.shard(0).remove("t7", harness.now)
    before = known(harness)
    getattr(harness, how)()
    assert known(harness) == before
    assert len(before) == 19


def test_who_asks_while_much_is_loaded_is_told_to_come_again(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "LOADED_AT_ONCE_BYTES", 100)
    write_many(harness, ids=3, times=3)
    before = known(harness)
    harness.restart()
    assert Transactional(harness, "t1").begin().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.settle()
    assert known(harness) == before
    assert Transactional(harness, "t1").begin().error_code == ErrorCode.NONE


def test_a_log_far_beyond_its_state_is_cut_and_says_the_same(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "REWRITTEN_FROM_BYTES", 20_000)
    write_many(harness, ids=5, times=200)
    before, log = known(harness), state_partition(harness).log
    assert log.size > 100_000
    harness.keep_house()  # Written anew,
    harness.keep_house()  # and cut off once that is safe.
    assert log.size < 2_000
    assert log.start_offset > 1000
    write_many(harness, ids=0, times=1)
    after = known(harness)
    assert after.keys() == before.keys()
    harness.kill()
    assert known(harness) == after


def test_a_log_is_not_cut_before_what_is_written_anew_is_safe(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_module, "REWRITTEN_FROM_BYTES", 20_000)
    write_many(harness, ids=5, times=200)
    log = state_partition(harness).log
    harness.broker.keep_house(harness.now)
    harness.broker.keep_house(harness.now)
    assert log.start_offset == 0
    harness.settle()
    harness.keep_house()
    assert log.start_offset > 0


def test_without_a_disk_nobody_is_coordinated(harness: Harness) -> None:
    producer = Transactional(harness, "t")
    producer.begin()
    state_partition(harness).take_offline()
    assert producer.begin().error_code == ErrorCode.NOT_COORDINATOR
    assert producer.end(commit=True) == ErrorCode.NOT_COORDINATOR
