"""Transactions without a socket: commits, aborts, fencing, and recovery after a stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import INT16_MAX, ProducerEpoch, ProducerId, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.transactions.transaction_states import LAST_EPOCH, NEVER_MS, TransactionState
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.in_memory import Harness
from support.transactional import NO_PRODUCER, Transactional, committed, last_stable, make_topic, written

VERSIONS = pytest.mark.parametrize("version", [1, 2])
SECOND = 1000


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path, transaction_two_phase_commit_enable="true")
    make_topic(harness, "x", 2)
    return harness


def start_producer(harness: Harness, version: int = 2, name: str = "t") -> Transactional:
    producer = Transactional(harness, name, version)
    assert producer.begin().error_code == ErrorCode.NONE
    return producer


def put(producer: Transactional, *values: bytes, partition: int = 0) -> None:
    if producer.version < 2:
        assert producer.add(("x", partition)) == [ErrorCode.NONE]
    assert producer.write("x", *values, partition=partition) == ErrorCode.NONE


@VERSIONS
def test_commit_shows_all_records_and_abort_none(harness: Harness, version: int) -> None:
    producer = start_producer(harness, version)
    put(producer, b"a", b"b")
    put(producer, b"c", partition=1)
    assert committed(harness, "x") == committed(harness, "x", 1) == []
    assert producer.end(commit=True) == ErrorCode.NONE
    assert (committed(harness, "x"), committed(harness, "x", 1)) == ([b"a", b"b"], [b"c"])
    put(producer, b"d")
    assert producer.end(commit=False) == ErrorCode.NONE
    put(producer, b"e")
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "x") == [b"a", b"b", b"e"]
    assert written(harness, "x") == [b"a", b"b", b"d", b"e"]
    assert producer.state.state is TransactionState.COMPLETE_COMMIT


@VERSIONS
def test_decided_transaction_is_completed_after_a_stop(harness: Harness, version: int) -> None:
    producer = start_producer(harness, version)
    put(producer, b"a")
    decide_only(harness, producer)
    assert producer.state.state is TransactionState.PREPARE_COMMIT
    assert committed(harness, "x") == []
    harness.restart()
    harness.settle()
    assert producer.state.state is TransactionState.COMPLETE_COMMIT
    assert committed(harness, "x") == [b"a"]


def decide_only(harness: Harness, producer: Transactional) -> None:
    """Write the decision to the log, and stop before the markers."""
    from odradek.wire.messages.end_txn import EndTxnRequest

    request = EndTxnRequest(
        transactional_id=producer.id,
        producer_id=producer.producer.id,
        producer_epoch=producer.producer.epoch,
        committed=True,
    )
    harness.send(request, 5 if producer.version == 2 else 4)


@VERSIONS
def test_new_producer_aborts_the_open_transaction_and_fences_the_old(harness: Harness, version: int) -> None:
    zombie = start_producer(harness, version)
    put(zombie, b"a")
    new = start_producer(harness, version)
    assert new.producer.id == zombie.producer.id
    assert new.producer.epoch > zombie.producer.epoch
    assert zombie.write("x", b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.end(commit=True) == ErrorCode.PRODUCER_FENCED
    put(new, b"b")
    assert new.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "x") == [b"b"]


def test_late_end_does_not_affect_the_next_transaction(harness: Harness) -> None:
    producer = start_producer(harness)
    put(producer, b"a")
    before = producer.producer
    assert producer.end(commit=True) == ErrorCode.NONE
    put(producer, b"b")
    assert producer.end(commit=True, as_=before) == ErrorCode.PRODUCER_FENCED
    assert producer.end(commit=False, as_=before) == ErrorCode.PRODUCER_FENCED
    assert committed(harness, "x") == [b"a"]
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "x") == [b"a", b"b"]


def test_repeated_end_gets_the_same_response(harness: Harness) -> None:
    producer = start_producer(harness)
    put(producer, b"a")
    before = producer.producer
    assert producer.end(commit=True) == ErrorCode.NONE
    assert producer.end(commit=True, as_=before) == ErrorCode.NONE
    assert producer.end(commit=False, as_=before) == ErrorCode.INVALID_TXN_STATE


def test_late_batch_does_not_affect_the_next_transaction(harness: Harness) -> None:
    producer = start_producer(harness)
    put(producer, b"a")
    before = producer.producer
    assert producer.end(commit=True) == ErrorCode.NONE
    late = Transactional(harness)
    late.sequences[("x", 0)] = 1
    assert late.write("x", b"late", as_=before) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert late.write("x", b"late", partition=1, as_=before) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_batch_to_a_partition_outside_the_transaction_is_refused(harness: Harness) -> None:
    producer = start_producer(harness, version=1)
    assert producer.add(("x", 0)) == [ErrorCode.NONE]
    assert producer.write("x", b"a", partition=1) == ErrorCode.INVALID_TXN_STATE
    assert producer.end(commit=False) == ErrorCode.NONE
    assert producer.write("x", b"a") == ErrorCode.INVALID_TXN_STATE
    assert written(harness, "x") == written(harness, "x", 1) == []


def test_partitions_of_one_produce_join_by_one_record(harness: Harness) -> None:
    producer = start_producer(harness)
    state = harness.broker.transactions.states.find_transaction("t")[0].log.leading.log
    before = state.end_offset
    codes = producer.write_all("x", {0: [b"a"], 1: [b"b"], 2: [b"c"]})
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.write_all("x", {0: [b"d"], 1: [b"e"]}) == [ErrorCode.NONE, ErrorCode.NONE]
    assert state.end_offset == before + 1
    assert producer.state.partitions == {TopicPartition("x", 0), TopicPartition("x", 1)}
    producer.end(commit=True)
    assert (committed(harness, "x"), committed(harness, "x", 1)) == ([b"a", b"d"], [b"b", b"e"])


def test_late_batches_to_many_partitions_are_refused_individually(harness: Harness) -> None:
    producer = start_producer(harness)
    late = producer.producer
    put(producer, b"a")
    producer.end(commit=True)
    assert producer.write_all("x", {0: [b"b"], 1: [b"c"]}, as_=late) == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2
    assert (written(harness, "x"), written(harness, "x", 1)) == ([b"a"], [])
    assert producer.state.partitions == frozenset()


def test_missing_partitions_prevent_the_addition_of_others(harness: Harness) -> None:
    producer = start_producer(harness, version=1)
    codes = producer.add(("x", 0), ("x", 7), ("nothing", 0))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, unknown, unknown]
    assert producer.state.state is TransactionState.EMPTY


@VERSIONS
def test_transaction_is_aborted_after_its_timeout(harness: Harness, version: int) -> None:
    producer = Transactional(harness, version=version)
    producer.begin(timeout_ms=5 * SECOND)
    put(producer, b"a")
    for _ in range(20):
        harness.pass_time(SECOND)
        harness.run_housekeeping()
    assert producer.state.state is TransactionState.COMPLETE_ABORT
    assert last_stable(harness, "x") == 2
    assert committed(harness, "x") == []
    assert producer.write("x", b"b") in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
    assert producer.end(commit=True) == (ErrorCode.INVALID_TXN_STATE if version == 2 else ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_transaction_timeout_is_bounded(harness: Harness, timeout_ms: int) -> None:
    producer = Transactional(harness)
    assert producer.begin(timeout_ms=timeout_ms).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_unused_transactional_ids_expire(harness: Harness) -> None:
    producer = start_producer(harness)
    harness.pass_time(7 * 86_400 * SECOND + SECOND)
    harness.run_housekeeping()
    assert producer.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    harness.restart()
    assert producer.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# Identity sent by the producer (KIP-360).


def test_producer_recovers_with_a_new_epoch(harness: Harness) -> None:
    producer = start_producer(harness)
    put(producer, b"a")
    first = producer.producer
    assert producer.begin(first).producer_epoch == first.epoch + 1
    put(producer, b"b")
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "x") == [b"b"]
    assert producer.begin(first).error_code == ErrorCode.PRODUCER_FENCED


def test_repeated_init_producer_id_gets_the_same_epoch(harness: Harness) -> None:
    producer = start_producer(harness)
    first = producer.producer
    assert producer.begin(first).producer_epoch == first.epoch + 1
    assert producer.begin(first).producer_epoch == first.epoch + 1


def test_producer_id_without_an_epoch_is_refused(harness: Harness) -> None:
    producer = start_producer(harness)
    assert producer.begin(ProducerIdAndEpoch(ProducerId(3), ProducerEpoch(-1))).error_code == ErrorCode.INVALID_REQUEST
    assert producer.begin(ProducerIdAndEpoch(ProducerId(-1), ProducerEpoch(3))).error_code == ErrorCode.INVALID_REQUEST
    assert producer.begin(ProducerIdAndEpoch(ProducerId(99), ProducerEpoch(0))).error_code == ErrorCode.PRODUCER_FENCED


# Exhausted epochs.


@VERSIONS
def test_exhausted_epochs_lead_to_a_new_producer_id(harness: Harness, version: int) -> None:
    producer = start_producer(harness, version)
    use_up(harness, producer)
    put(producer, b"a")
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "x") == [b"a"]
    if version == 2:
        assert producer.producer.epoch == 0
    else:
        old = producer.producer
        assert producer.begin(old).error_code == ErrorCode.NONE
        assert producer.producer == (old.id + 1, 0)
    put(producer, b"b")
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "x") == [b"a", b"b"]


def test_fencing_abort_with_exhausted_epochs_leads_to_a_new_producer_id(harness: Harness) -> None:
    producer = start_producer(harness)
    use_up(harness, producer)
    put(producer, b"a")
    old = producer.producer
    new = start_producer(harness)
    assert new.producer.id != old.id
    assert new.producer.epoch == 0
    assert committed(harness, "x") == []
    assert last_stable(harness, "x") == 2


@pytest.mark.parametrize("restarts", [False, True])
def test_retry_of_an_abort_that_used_the_last_epoch_leads_to_a_new_producer_id(
    harness: Harness, *, restarts: bool
) -> None:
    """The producer continues as if it had aborted the transaction that the coordinator aborted."""
    producer = start_producer(harness)
    use_up(harness, producer)
    put(producer, b"a")
    old = producer.producer
    time_out(harness)
    assert producer.state.producer == (old.id, INT16_MAX)
    assert producer.end(commit=False) == ErrorCode.NONE
    new = producer.producer
    assert new.id != old.id and new.epoch == 0
    if restarts:
        harness.restart()
    assert producer.end(commit=False, as_=old) == ErrorCode.NONE
    assert producer.state.producer == new
    assert producer.end(commit=True, as_=old) == ErrorCode.INVALID_TXN_STATE
    put(producer, b"b")
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "x") == [b"b"]
    assert producer.write("x", b"late", as_=old) == ErrorCode.INVALID_PRODUCER_EPOCH


@VERSIONS
def test_open_transaction_with_an_epoch_past_the_last_is_aborted(harness: Harness, version: int) -> None:
    """Such a state may come from another broker."""
    producer = start_producer(harness, version)
    use_up(harness, producer)
    put(producer, b"a")
    shard, state = harness.broker.transactions.states.find_transaction(producer.id)
    shard.put(state._replace(epoch=ProducerEpoch(INT16_MAX)), harness.now)
    assert producer.end(commit=False) == ErrorCode.PRODUCER_FENCED
    time_out(harness)
    assert producer.state.state is TransactionState.COMPLETE_ABORT
    assert last_stable(harness, "x") == 2
    assert producer.begin().error_code == ErrorCode.NONE
    put(producer, b"b")
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "x") == [b"b"]


@VERSIONS
def test_epoch_past_the_last_is_fenced(harness: Harness, version: int) -> None:
    """Only an abort by the coordinator uses it, and another such abort needs a higher one."""
    producer = start_producer(harness, version)
    use_up(harness, producer)
    put(producer, b"a")
    time_out(harness)
    id_, _ = old = producer.producer
    producer.producer = ProducerIdAndEpoch(id_, ProducerEpoch(INT16_MAX))
    assert producer.add(("x", 0)) == [ErrorCode.PRODUCER_FENCED]
    assert producer.write("x", b"b") in {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}
    for commit in (True, False):
        assert producer.end(commit=commit) == ErrorCode.PRODUCER_FENCED
    assert producer.begin(old).error_code == (ErrorCode.NONE if version == 2 else ErrorCode.PRODUCER_FENCED)
    assert producer.begin().error_code == ErrorCode.NONE
    assert producer.producer.id != id_ and producer.producer.epoch == version - 1


def time_out(harness: Harness) -> None:
    """Let the coordinator abort all open transactions."""
    harness.pass_time(70 * SECOND)
    harness.run_housekeeping()
    harness.settle()


def use_up(harness: Harness, producer: Transactional) -> None:
    """The last epoch but one: as after thirty thousand transactions."""
    shard, state = harness.broker.transactions.states.find_transaction(producer.id)
    shard.put(state._replace(epoch=ProducerEpoch(LAST_EPOCH)), harness.now)
    producer.producer = ProducerIdAndEpoch(producer.producer.id, ProducerEpoch(LAST_EPOCH))


# Prepared transactions (KIP-939).


def test_prepared_transaction_is_kept_for_a_new_producer(harness: Harness) -> None:
    old = Transactional(harness)
    old.begin(two_phases=True)
    put(old, b"a")
    new = Transactional(harness)
    answer = new.begin(two_phases=True, keep=True)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == old.producer
    assert new.producer != old.producer
    assert old.end(commit=False) == ErrorCode.PRODUCER_FENCED
    assert new.write("x", b"too early", partition=1) == ErrorCode.INVALID_TXN_STATE
    harness.restart()
    assert new.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "x") == [b"a"]
    put(new, b"b")
    assert new.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "x") == [b"a", b"b"]


def test_a_prepared_transaction_may_be_kept_twice_and_then_aborted(harness: Harness) -> None:
    old = Transactional(harness)
    old.begin(two_phases=True)
    put(old, b"a")
    second, third = Transactional(harness), Transactional(harness)
    second.begin(two_phases=True, keep=True)
    answer = third.begin(two_phases=True, keep=True)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == old.producer
    assert second.end(commit=True) == ErrorCode.PRODUCER_FENCED
    assert third.end(commit=False) == ErrorCode.NONE
    assert committed(harness, "x") == []
    assert last_stable(harness, "x") == 2
    put(third, b"b")
    assert third.end(commit=True) == ErrorCode.NONE


def test_keep_without_an_open_transaction_keeps_nothing(harness: Harness) -> None:
    producer = Transactional(harness)
    answer = producer.begin(two_phases=True, keep=True)
    assert answer.error_code == ErrorCode.NONE
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == NO_PRODUCER


def test_a_prepared_transaction_does_not_time_out(harness: Harness) -> None:
    producer = Transactional(harness)
    producer.begin(two_phases=True)
    assert producer.state.timeout_ms == NEVER_MS
    put(producer, b"a")
    harness.pass_time(30 * 86_400 * SECOND)
    harness.run_housekeeping()
    assert producer.state.state is TransactionState.ONGOING


def test_two_phase_commit_requires_configuration(tmp_path: Path) -> None:
    producer = Transactional(Harness(tmp_path))
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert producer.begin(two_phases=True).error_code == refused
    assert producer.begin(keep=True).error_code == refused


# Producers without transactions.


def test_producer_ids_are_unique(harness: Harness) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    ids = [harness.request(request, 4, InitProducerIdResponse).producer_id for _ in range(2500)]
    harness.restart()
    ids += [harness.request(request, 4, InitProducerIdResponse).producer_id for _ in range(10)]
    assert len(set(ids)) == len(ids)


def test_end_does_not_wait_for_markers_of_deleted_topics(harness: Harness) -> None:
    from odradek.base.uuids import ZERO_UUID
    from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

    make_topic(harness, "y")
    producer = start_producer(harness)
    put(producer, b"a")
    assert producer.write("y", b"b") == ErrorCode.NONE
    states = [DeleteTopicState(name="y", topic_id=ZERO_UUID)]
    harness.request(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6, DeleteTopicsResponse)
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "x") == [b"a"]


def test_offline_partition_delays_only_its_transaction(harness: Harness) -> None:
    producer, other = start_producer(harness), start_producer(harness, name="other")
    put(producer, b"a")
    put(producer, b"b", partition=1)
    harness.broker.partitions[TopicPartition("x", 1)].take_offline()  # type: ignore[arg-type]
    assert producer.end(commit=True) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.state.state is TransactionState.PREPARE_COMMIT
    assert committed(harness, "x") == [b"a"]
    put(other, b"c")
    assert other.end(commit=True) == ErrorCode.NONE


def test_transaction_lost_by_its_coordinator_is_aborted_after_a_crash(harness: Harness) -> None:
    producer, other = start_producer(harness), start_producer(harness, name="other")
    put(producer, b"a")
    put(other, b"b")
    shard, _ = harness.broker.transactions.states.find_transaction(producer.id)
    shard.remove(producer.id, harness.now)  # As a power failure would have it.
    harness.kill()
    harness.run_housekeeping()
    assert other.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "x") == [b"b"]
    assert last_stable(harness, "x") == 4
