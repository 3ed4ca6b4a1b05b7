"""Coordinator state in a topic: replayed as written, loaded on a thread if it is large, and compacted."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import DAY_MS, LeaderEpoch, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from odradek.core.cleaner.uncleanable_logs import RETRY_MS
from odradek.core.coordinators import shards as shards_module
from odradek.core.coordinators.shards import Load
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.partition import Partition
from odradek.core.partition.storage import log_config
from odradek.core.transactions.transaction_shard import TransactionShard
from odradek.core.transactions.transaction_states import Transaction, TransactionState
from odradek.log.files.disk import DiskFailed, File, RealDisk
from odradek.log.files.log_file_names import CLEANED
from odradek.log.log.durability import flush_now
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from support.cleaning import batches_of, compact
from support.group_offsets import GroupOffsets, Kept
from support.in_memory import Harness
from support.transactional import EPOCHS, Transactional, make_topic


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path, transaction_state_log_num_partitions="1", offsets_topic_num_partitions="1")


def transactions_of(harness: Harness) -> dict[str, Transaction]:
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
def test_state_is_replayed_as_it_was_written(harness: Harness, how: str) -> None:
    write_many(harness, ids=20, times=10)
    harness.broker.transactions.shards.shard(0).remove("t7", harness.now)
    before = transactions_of(harness)
    getattr(harness, how)()
    assert transactions_of(harness) == before
    assert len(before) == 19


def test_requests_during_a_long_load_return_load_in_progress(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "LOADED_AT_ONCE_BYTES", 100)
    write_many(harness, ids=3, times=3)
    before = transactions_of(harness)
    harness.restart()
    assert Transactional(harness, "t1").begin().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.settle()
    assert transactions_of(harness) == before
    assert Transactional(harness, "t1").begin().error_code == ErrorCode.NONE


class OutOfFiles(RealDisk):
    """A disk on which no file under `path` can be opened while `is_out`."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.is_out = True

    def open(self, path: str) -> File:
        if self.is_out and path.startswith(self.path):
            raise DiskFailed(errno.EMFILE, "Too many open files", path)
        return super().open(path)


def start_out_of_files(harness: Harness, producer: Transactional) -> OutOfFiles:
    """Return a broker with state in two segments, of which it cannot open the first."""
    producer.begin()
    log = state_partition(harness).log
    disk = OutOfFiles(log.segments[0].path)
    log.roll(harness.now.wall)
    producer.begin()
    harness.disk = disk
    harness.restart()
    assert producer.begin().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return disk


def test_load_without_a_free_descriptor_is_retried(harness: Harness) -> None:
    producer = Transactional(harness, "t")
    disk = start_out_of_files(harness, producer)
    harness.run_housekeeping()
    assert producer.begin().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    disk.is_out = False
    harness.run_housekeeping()
    assert list(transactions_of(harness)) == ["t"]
    assert producer.begin().error_code == ErrorCode.NONE


def test_partition_offline_before_a_descriptor_is_free_is_not_loaded(harness: Harness) -> None:
    producer = Transactional(harness, "t")
    disk = start_out_of_files(harness, producer)
    state_partition(harness).take_offline()
    disk.is_out = False
    harness.run_housekeeping()
    assert producer.begin().error_code == ErrorCode.NOT_COORDINATOR


def commit_offset(harness: Harness, producer: Transactional) -> None:
    """Commit an offset of group g as part of the producer's transaction."""
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=producer.id,
        group_id="g",
        producer_id=producer.producer.id,
        producer_epoch=producer.producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
    )
    answer = harness.request(request, 5, TxnOffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def offsets(harness: Harness) -> GroupShard:
    return harness.broker.groups.shards.shard(0)


def test_marker_written_while_offsets_load_is_applied(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    make_topic(harness, "t")
    harness.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6, FindCoordinatorResponse)
    producer = Transactional(harness)
    producer.begin()
    commit_offset(harness, producer)
    end = EndTxnRequest(
        transactional_id=producer.id,
        producer_id=producer.producer.id,
        producer_epoch=producer.producer.epoch,
        committed=True,
    )
    assert isinstance(harness.send(end, EPOCHS), ParkedRequest)
    monkeypatch.setattr(shards_module, "LOADED_AT_ONCE_BYTES", 10)
    harness.kill()
    loads = [effect for effect in harness.broker.take_effects() if isinstance(effect, Load)]
    assert len(loads) == 2
    for load in sorted(loads, key=lambda load: load.name, reverse=True):  # Transactions are loaded first.
        harness.broker.on_event(load.run(), harness.now)
        harness.settle()
    assert not offsets(harness).offsets.has_pending_of("g")
    assert offsets(harness).offsets.groups() == ["g"]


def test_a_log_may_be_compacted_while_it_is_loaded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction is also possible between the two parts of a load: the initial records, and those appended since."""
    write_many(harness, ids=5, times=20)
    before = transactions_of(harness)
    monkeypatch.setattr(shards_module, "LOADED_AT_ONCE_BYTES", 100)
    harness.kill()
    log, unknown = state_partition(harness).log, b"\x7f\x7f"
    loads = [effect for effect in harness.broker.take_effects() if isinstance(effect, Load)]
    for _ in range(3):
        batch = Batch.trusted(memoryview(encode_batch([(unknown, unknown, (), harness.now.wall)])))
        log.append(batch, LeaderEpoch(0), harness.now.wall)
    log.roll(harness.now.wall)
    compact(log, harness.now.wall)
    assert log.size < 2_000
    log.reaper.reap(TimestampMs(harness.now.wall + DAY_MS))
    assert not list(Path(log.directory).glob("*.deleted"))
    for load in loads:
        harness.broker.on_event(load.run(), harness.now)
    harness.settle()
    assert transactions_of(harness) == before


def begin_long_load(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Restart the broker, complete all its effects except the load of the state, and return that."""
    monkeypatch.setattr(shards_module, "LOADED_AT_ONCE_BYTES", 100)
    harness.kill()
    effects = harness.broker.take_effects()
    (load,) = (effect for effect in effects if isinstance(effect, Load))
    for effect in effects:
        if effect is not load:
            harness._carry_out(effect)
    return load


def empty_by_retention(harness: Harness, partition: Partition) -> None:
    configs = harness.configs.for_topic({"cleanup.policy": "delete", "retention.ms": "1"})
    partition.configure(configs, log_config(configs))
    harness.run_housekeeping()  # The first retention follows after a delay.
    harness.pass_time(DAY_MS)
    harness.run_housekeeping()
    assert partition.log.start_offset == partition.log.end_offset > 0


@pytest.mark.parametrize("is_decided", [True, False])
def test_retention_may_empty_a_log_while_it_is_loaded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, *, is_decided: bool
) -> None:
    write_many(harness, ids=3, times=3)
    if is_decided:
        shard = harness.broker.transactions.shards.shard(0)
        shard.put(shard.transactions["t1"]._replace(state=TransactionState.PREPARE_ABORT), harness.now)
        harness.settle()
    before = transactions_of(harness)
    load = begin_long_load(harness, monkeypatch)
    empty_by_retention(harness, state_partition(harness))
    harness.broker.on_event(load.run(), harness.now)
    harness.settle()
    if is_decided:
        assert transactions_of(harness)["t1"].state is TransactionState.COMPLETE_ABORT
        del before["t1"]
    assert {name: transactions_of(harness)[name] for name in before} == before


def test_retention_may_delete_records_written_during_a_load(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    write_many(harness, ids=3, times=3)
    before = transactions_of(harness)
    load, partition = begin_long_load(harness, monkeypatch), state_partition(harness)
    assert partition.leading is not None
    partition.leading.end_transaction(ProducerId(1), ProducerEpoch(0), 0, commit=True, now=harness.now)
    harness.broker.flushes.request_flush(partition.topic_partition)
    harness.settle()
    empty_by_retention(harness, partition)
    harness.broker.on_event(load.run(), harness.now)
    assert transactions_of(harness) == before


def test_partition_that_goes_offline_while_it_is_loaded_has_no_coordinator(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load reads its files first, and then another request finds that the disk fails."""
    write_many(harness, ids=3, times=3)
    load = begin_long_load(harness, monkeypatch)
    loaded = load.run()
    state_partition(harness).take_offline()
    harness.broker.on_event(loaded, harness.now)
    harness.settle()
    assert Transactional(harness, "t1").begin().error_code == ErrorCode.NOT_COORDINATOR


def test_partition_may_go_offline_while_transactions_are_resumed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_many(harness, ids=3, times=1)
    shard, resumed = harness.broker.transactions.shards.shard(0), list[str]()

    def resume(_: TransactionShard, transaction: Transaction, __: Moment) -> None:
        resumed.append(transaction.id)
        state_partition(harness).take_offline()

    monkeypatch.setattr(shard, "_resume", resume)
    shard.on_loaded(harness.now)
    assert resumed == ["t0"]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compact state logs while they are small."""
    monkeypatch.setattr(shards_module, "COMPACTED_FROM_BYTES", 20_000)


def run_housekeeping(harness: Harness) -> None:
    """Keep house until the state log is requested, synced, compacted and renamed."""
    for _ in range(5):
        harness.pass_time(1000)
        harness.run_housekeeping()


@pytest.mark.usefixtures("soon")
def test_state_log_is_compacted_without_a_change_of_state(harness: Harness) -> None:
    write_many(harness, ids=5, times=200)
    before, log = transactions_of(harness), state_partition(harness).log
    assert log.size > 100_000
    run_housekeeping(harness)
    assert log.size < 2_000
    assert log.compaction.cleaned_to > 1000
    write_many(harness, ids=0, times=1)
    after = transactions_of(harness)
    assert after.keys() == before.keys()
    harness.kill()
    assert transactions_of(harness) == after


@pytest.mark.usefixtures("soon")
def test_state_log_is_compacted_with_a_disabled_cleaner(tmp_path: Path) -> None:
    harness = Harness(tmp_path, transaction_state_log_num_partitions="1", log_cleaner_enable="false")
    write_many(harness, ids=5, times=200)
    before = transactions_of(harness)
    run_housekeeping(harness)
    assert state_partition(harness).log.size < 2_000
    harness.kill()
    assert transactions_of(harness) == before


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_state_survives_a_stop_at_any_step_of_compaction(harness: Harness, how: str) -> None:
    """Stop after each step of a pass, from the roll of the active segment to the last rename."""
    write_many(harness, ids=5, times=200)
    before, sizes = transactions_of(harness), []
    for steps in range(12):
        for _ in range(steps):
            harness.pass_time(1000)
            harness.run_housekeeping_in_slices()
            effects = harness.broker.take_effects()
            assert not any(isinstance(effect, Load) for effect in effects)
            for effect in effects:
                harness._carry_out(effect)
        getattr(harness, how)()
        assert transactions_of(harness) == before
        sizes.append(state_partition(harness).log.size)
    assert sizes[0] > 20_000
    assert sizes[-1] < 2_000


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("how", ["go on", "restart", "kill"])
def test_state_log_is_compacted_up_to_open_transactions(harness: Harness, how: str) -> None:
    make_topic(harness, "t", 3)
    group = GroupOffsets(harness)
    for number in range(200):
        group.commit({("t", 1): number, ("t", 2): number})
    producers = [Transactional(harness, name) for name in ("first", "second", "third")]
    for number, producer in enumerate(producers):
        producer.begin()
        group.commit_in(producer, {("t", 0): 10 + number, ("t", 1): 20 + number})
    group.commit({("t", 1): 200, ("t", 2): 200})
    log = harness.broker.partitions[TopicPartition(CONSUMER_OFFSETS, 0)].log
    before = log.size
    run_housekeeping(harness)
    assert log.compaction.cleaned_to == log.producers.first_unstable == 400 and log.size < before / 10
    if how != "go on":
        getattr(harness, how)()
    committed = Kept(200)
    assert group.fetch() == {("t", 1): committed, ("t", 2): committed}
    assert group.fetch([("t", 0)], is_stable=True) == {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    for producer, is_commit in zip(producers, (True, True, False), strict=True):
        assert producer.end(commit=is_commit) == ErrorCode.NONE
    assert group.fetch() == {("t", 0): Kept(11), ("t", 1): committed, ("t", 2): committed}


@pytest.mark.slow
@pytest.mark.usefixtures("soon")
def test_state_log_with_permanently_open_transactions_is_compacted(harness: Harness) -> None:
    """A client that copies without a pause has a transaction open at any time."""
    make_topic(harness, "t")
    group = GroupOffsets(harness)
    first, second = Transactional(harness, "first"), Transactional(harness, "second")
    first.begin()
    second.begin()
    for number in range(400):
        group.commit_in(first, {("t", 0): number})
        if number:
            assert second.end(commit=True) == ErrorCode.NONE
        first, second = second, first
        harness.pass_time(1000)
        harness.run_housekeeping()
    log = harness.broker.partitions[TopicPartition(CONSUMER_OFFSETS, 0)].log
    assert log.compaction.cleaned_to > 400
    data = [batch for batch in batches_of(log) if not batch.is_control]
    assert len(data) < 200, "markers stay for delete.retention.ms"
    assert second.end(commit=True) == ErrorCode.NONE
    harness.kill()
    assert group.fetch() == {("t", 0): Kept(399)}


@pytest.mark.slow
@pytest.mark.usefixtures("soon")
def test_fast_growing_state_log_stays_small(harness: Harness) -> None:
    write_many(harness, ids=5, times=1)
    log, sizes = state_partition(harness).log, []
    for _ in range(60):
        write_many(harness, ids=0, times=50)
        harness.pass_time(1000)
        harness.run_housekeeping()
        sizes.append(log.size)
    assert max(sizes) < 10 * sizes[0]


@pytest.mark.usefixtures("soon")
def test_state_log_is_compacted_after_a_blocking_transaction_ends(harness: Harness) -> None:
    make_topic(harness, "t", 2)
    group, producer = GroupOffsets(harness), Transactional(harness, "t")
    producer.begin()
    group.commit_in(producer, {("t", 0): 1})
    for number in range(400):
        group.commit({("t", 1): number})
    log = harness.broker.partitions[TopicPartition(CONSUMER_OFFSETS, 0)].log
    run_housekeeping(harness)
    assert log.compaction.cleaned_to == 0 and log.size > 20_000
    assert producer.end(commit=True) == ErrorCode.NONE
    harness.pass_time(15_000)  # log.cleaner.backoff.ms
    run_housekeeping(harness)
    assert log.size < 2_000
    harness.kill()
    assert group.fetch() == {("t", 0): Kept(1), ("t", 1): Kept(399)}


@pytest.mark.usefixtures("soon")
def test_a_log_is_not_compacted_before_it_is_synced(harness: Harness) -> None:
    write_many(harness, ids=5, times=200)
    Transactional(harness, "t").begin()
    for _ in range(3):
        harness.run_housekeeping_in_slices()
    assert not harness.broker.cleaner.is_running
    run_housekeeping(harness)
    assert state_partition(harness).log.compaction.cleaned_to > 1000


@pytest.mark.usefixtures("soon")
def test_state_log_is_compacted_after_max_message_bytes_was_lowered(harness: Harness) -> None:
    write_many(harness, ids=20, times=50)
    before, log = transactions_of(harness), state_partition(harness).log
    log.config = replace(log.config, max_message_bytes=100)
    run_housekeeping(harness)
    assert log.size < 6_000
    harness.kill()
    assert transactions_of(harness) == before


@pytest.mark.usefixtures("soon")
def test_damaged_state_log_is_reported_once_and_stays_in_use(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    write_many(harness, ids=5, times=200)
    before, log = transactions_of(harness), state_partition(harness).log
    log.roll(harness.now.wall)
    flush_now(log, harness.now.wall)
    with Path(log.segments[0].path).open("r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    for _ in range(20):
        harness.pass_time(15_000)
        harness.run_housekeeping()
    assert [record.levelname for record in caplog.records if "no longer compacted" in record.message] == ["ERROR"]
    assert state_partition(harness) in harness.broker.cleaner.set_aside
    assert transactions_of(harness) == before
    assert Transactional(harness, "t1").begin().error_code == ErrorCode.NONE


class FullDisk(RealDisk):
    """A disk on which no compacted data can be written while `is_full`."""

    is_full = True

    def open(self, path: str) -> File:
        if self.is_full and path.endswith(CLEANED):
            raise DiskFailed(errno.ENOSPC, "No space left on device", path)
        return super().open(path)


@pytest.mark.usefixtures("soon")
def test_state_log_is_compacted_after_a_full_disk_has_room_again(tmp_path: Path) -> None:
    harness = Harness(tmp_path, transaction_state_log_num_partitions="1")
    harness.disk = disk = FullDisk()
    harness.kill()
    write_many(harness, ids=5, times=200)
    before, log = transactions_of(harness), state_partition(harness).log
    size = log.size
    run_housekeeping(harness)
    assert log.size == size and transactions_of(harness) == before
    disk.is_full = False
    harness.pass_time(RETRY_MS)
    run_housekeeping(harness)
    assert log.size < 2_000
    harness.kill()
    assert transactions_of(harness) == before


@pytest.mark.usefixtures("soon")
def test_state_log_with_only_tombstones_is_compacted(harness: Harness) -> None:
    write_many(harness, ids=5, times=200)
    for transactional_id in transactions_of(harness):
        harness.broker.transactions.shards.shard(0).remove(transactional_id, harness.now)
    run_housekeeping(harness)
    log = state_partition(harness).log
    assert 0 < log.size < 2_000, "tombstones stay for who is behind"
    harness.pass_time(DAY_MS + 1)
    Transactional(harness, "t").begin()
    harness.broker.transactions.shards.shard(0).remove("t", harness.now)
    harness.broker.cleaner.request_compaction(state_partition(harness))
    run_housekeeping(harness)
    assert sum(batch.records_count for batch in batches_of(log)) == 1
    harness.kill()
    assert transactions_of(harness) == {}


def test_offline_state_partition_returns_not_coordinator(harness: Harness) -> None:
    producer = Transactional(harness, "t")
    producer.begin()
    state_partition(harness).take_offline()
    assert producer.begin().error_code == ErrorCode.NOT_COORDINATOR
    assert producer.end(commit=True) == ErrorCode.NOT_COORDINATOR
