"""State in a topic: read again as it was written, loaded beside the loop if it is much, and kept small."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import ProducerId, TopicPartition
from odradek.core.cluster import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.core.coordinators import shards as shards_module
from odradek.core.coordinators.shards import Load
from odradek.core.groups.shard import GroupShard
from odradek.core.parked import Parked
from odradek.core.partition import Partition
from odradek.core.transactions.states import Transaction
from odradek.log.disk import DiskFailed, File, RealDisk
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from support.group_offsets import GroupOffsets, Kept
from support.in_memory import Harness
from support.transactional import EPOCHS, Transactional, make_topic


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path, transaction_state_log_num_partitions="1", offsets_topic_num_partitions="1")


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


class OutOfFiles(RealDisk):
    """No file under `path` can be opened while `is_out`."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.is_out = True

    def open(self, path: str) -> File:
        if self.is_out and path.startswith(self.path):
            raise DiskFailed(errno.EMFILE, "Too many open files", path)
        return super().open(path)


def start_out_of_files(harness: Harness, producer: Transactional) -> OutOfFiles:
    """A broker whose state lies in two segments, of which it can't open the first."""
    producer.begin()
    log = state_partition(harness).log
    disk = OutOfFiles(log.segments[0].path)
    log.roll(harness.now.wall)
    producer.begin()
    harness.disk = disk
    harness.restart()
    assert producer.begin().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return disk


def test_what_finds_no_descriptor_is_loaded_later(harness: Harness) -> None:
    producer = Transactional(harness, "t")
    disk = start_out_of_files(harness, producer)
    harness.keep_house()
    assert producer.begin().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    disk.is_out = False
    harness.keep_house()
    assert list(known(harness)) == ["t"]
    assert producer.begin().error_code == ErrorCode.NONE


def test_what_goes_offline_before_a_descriptor_is_free_is_not_loaded(harness: Harness) -> None:
    producer = Transactional(harness, "t")
    disk = start_out_of_files(harness, producer)
    state_partition(harness).take_offline()
    disk.is_out = False
    harness.keep_house()
    assert producer.begin().error_code == ErrorCode.NOT_COORDINATOR


def commit_offset(harness: Harness, producer: Transactional) -> None:
    """To group g, as part of the producer's transaction."""
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=producer.id,
        group_id="g",
        producer_id=producer.producer.id,
        producer_epoch=producer.producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
    )
    answer = harness.ask(request, 5, TxnOffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def offsets(harness: Harness) -> GroupShard:
    return harness.broker.groups.shards.shard(0)


def test_a_marker_that_is_written_while_offsets_are_loaded_counts(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(harness, "t")
    harness.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6, FindCoordinatorResponse)
    producer = Transactional(harness)
    producer.begin()
    commit_offset(harness, producer)
    end = EndTxnRequest(
        transactional_id=producer.id,
        producer_id=producer.producer.id,
        producer_epoch=producer.producer.epoch,
        committed=True,
    )
    assert isinstance(harness.send(end, EPOCHS), Parked)
    monkeypatch.setattr(shards_module, "LOADED_AT_ONCE_BYTES", 10)
    harness.kill()
    loads = [effect for effect in harness.broker.take_effects() if isinstance(effect, Load)]
    assert len(loads) == 2
    for load in sorted(loads, key=lambda load: load.name, reverse=True):  # Transactions first.
        harness.broker.loaded(load.run(), harness.now)
        harness.settle()
    assert not offsets(harness).offsets.has_pending_of("g")
    assert offsets(harness).offsets.groups() == ["g"]


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


@pytest.mark.parametrize("how", ["go on", "restart", "kill"])
def test_a_log_with_open_transactions_is_cut_too_and_they_end_as_they_would(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Somebody who copies without a pause may have one open at any time."""
    monkeypatch.setattr(shards_module, "REWRITTEN_FROM_BYTES", 20_000)
    make_topic(harness, "t", 3)
    group = GroupOffsets(harness)
    producers = [Transactional(harness, name) for name in ("first", "second", "third")]
    for number, producer in enumerate(producers):
        producer.begin()
        group.commit_in(producer, {("t", 0): 10 + number, ("t", 1): 20 + number})
    for number in range(200):
        group.commit({("t", 1): number, ("t", 2): number})
    log = harness.broker.partitions[TopicPartition(CONSUMER_OFFSETS, 0)].log
    before = log.size
    harness.keep_house()
    harness.keep_house()
    assert log.start_offset > 200 and log.size < before / 10
    if how != "go on":
        getattr(harness, how)()
    committed = Kept(199)
    assert group.fetch() == {("t", 1): committed, ("t", 2): committed}
    assert group.fetch([("t", 0)], is_stable=True) == {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    for producer, is_commit in zip(producers, (True, True, False), strict=True):
        assert producer.end(commit=is_commit) == ErrorCode.NONE
    assert group.fetch() == {("t", 0): Kept(11), ("t", 1): committed, ("t", 2): committed}


def test_a_log_is_not_cut_before_what_is_written_anew_is_safe(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_module, "REWRITTEN_FROM_BYTES", 20_000)
    write_many(harness, ids=5, times=200)
    log = state_partition(harness).log
    list(harness.broker.keep_house(harness.now))
    list(harness.broker.keep_house(harness.now))
    assert log.start_offset == 0
    harness.settle()
    harness.keep_house()
    assert log.start_offset > 0


def test_state_that_is_too_much_for_one_batch_is_written_anew_in_several(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_module, "REWRITTEN_FROM_BYTES", 20_000)
    write_many(harness, ids=20, times=50)
    before, log = known(harness), state_partition(harness).log
    log.config = replace(log.config, max_message_bytes=500)
    harness.keep_house()
    harness.keep_house()
    assert log.start_offset > 0
    harness.kill()
    assert known(harness) == before


def test_what_cannot_be_written_anew_is_not_tried_over_and_over(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_module, "REWRITTEN_FROM_BYTES", 20_000)
    write_many(harness, ids=5, times=200)
    shard = harness.broker.transactions.shards.shard(0)
    shard.put(Transaction("much" * 100, ProducerId(9)), harness.now)
    log = state_partition(harness).log
    log.config = replace(log.config, max_message_bytes=400)
    harness.keep_house()
    size = log.size
    for _ in range(5):
        harness.keep_house()
    assert log.size == size
    assert log.start_offset == 0


def test_the_log_of_a_state_that_is_empty_by_now_is_cut_too(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "REWRITTEN_FROM_BYTES", 20_000)
    write_many(harness, ids=5, times=200)
    for transactional_id in known(harness):
        harness.broker.transactions.shards.shard(0).remove(transactional_id, harness.now)
    harness.keep_house()
    harness.keep_house()
    assert state_partition(harness).log.size == 0
    harness.kill()
    assert known(harness) == {}


def test_without_a_disk_nobody_is_coordinated(harness: Harness) -> None:
    producer = Transactional(harness, "t")
    producer.begin()
    state_partition(harness).take_offline()
    assert producer.begin().error_code == ErrorCode.NOT_COORDINATOR
    assert producer.end(commit=True) == ErrorCode.NOT_COORDINATOR
