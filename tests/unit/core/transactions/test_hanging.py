"""Hanging transactions: open in a partition, and unknown to their coordinator."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import INT16_MAX, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.transactions.hanging import OpenTransaction, OpenTransactionOutcome, fate
from odradek.core.transactions.transaction_states import LAST_EPOCH, NO_ID, Transaction, TransactionState
from odradek.log.files.disk import DiskFailed, RealFile
from odradek.log.producers.producer_state import ProducerStateEntry
from support.in_memory import Harness
from support.transactional import Transactional, committed, last_stable, make_topic

T0, T1, T2 = (TopicPartition(TopicName("t"), index) for index in range(3))
ID, NEXT = ProducerId(7), ProducerId(8)
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
COMMITTING, ABORTING = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMMITTED, ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path, transaction_state_log_num_partitions="2")
    make_topic(harness, "t", 3)
    return harness


def begin_transaction(harness: Harness, *partitions: int, name: str = "t", version: int = 2) -> Transactional:
    """Return a producer with a transaction that has written to these partitions."""
    producer = Transactional(harness, name, version)
    producer.begin()
    for index in partitions:
        if version < 2:
            producer.add(("t", index))
        assert producer.write("t", b"hangs", partition=index) == ErrorCode.NONE
    return producer


def lose(producer: Transactional, *names: TopicPartition) -> None:
    """Takes from the coordinator that these joined, as a power failure does, and stops the broker."""
    shard, was = producer.harness.broker.transactions.states.find_transaction(producer.id)
    left = was.partitions - set(names)
    shard.put(was._replace(partitions=left, state=was.state if left else EMPTY), producer.harness.now)
    producer.harness.kill()


def resend_first(producer: Transactional, partition: int) -> ErrorCode:
    """Send the first batch once more, as after a missing response."""
    producer.sequences["t", partition] = 0
    return producer.write("t", b"hangs", partition=partition)


def step(harness: Harness) -> None:
    """Run one check for hanging transactions, and all its effects."""
    for _ in harness.broker.transactions.end_hanging(harness.broker.partitions, harness.now):
        pass
    harness.settle()


# Fate of each transaction.


def test_marker_of_a_hanging_transaction_does_not_fence_the_coordinator(harness: Harness) -> None:
    begin_transaction(harness, 0)
    partition = harness.broker.partitions[T0]
    partition.info = partition.info._replace(leader_epoch=LeaderEpoch(5))
    (seen,) = partition.log.producers.open_transactions()
    one = OpenTransaction(partition, seen)
    assert one.marker.coordinator_epoch == 0, "that of the coordinator's own partition, not of this one"
    assert one.is_open
    harness.broker.end_transaction(T0, one.marker, harness.now)
    assert not one.is_open


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    ("state", "epoch", "expected"),
    [
        (EMPTY, 5, OpenTransactionOutcome.JOINS),
        (COMMITTED, 5, OpenTransactionOutcome.JOINS),
        (ABORTED, 5, OpenTransactionOutcome.JOINS),
        (ONGOING, 5, OpenTransactionOutcome.JOINS),
        (COMMITTING, 5, OpenTransactionOutcome.WAITS),
        (ABORTING, 5, OpenTransactionOutcome.WAITS),
        *[
            (state, epoch, OpenTransactionOutcome.MARKED)
            for state in (EMPTY, ONGOING, COMMITTING, COMMITTED)
            for epoch in (4, 6)
        ],
    ],
)
def test_fate_of_a_partition_outside_the_known_transaction(
    state: TransactionState, epoch: int, expected: OpenTransactionOutcome, version: int
) -> None:
    known = Transaction("t", ID, ProducerEpoch(5), state=state, partitions=frozenset({T1}), version=version)
    if state not in (ONGOING, COMMITTING, ABORTING):
        known = known._replace(partitions=frozenset())
    assert fate(T0, ProducerIdAndEpoch(ID, ProducerEpoch(epoch)), known) is expected


@pytest.mark.parametrize(
    ("state", "epoch", "expected"),
    [
        (ONGOING, 5, OpenTransactionOutcome.HELD),
        (
            ONGOING,
            4,
            OpenTransactionOutcome.MARKED,
        ),  # The marker belongs to an older transaction and must not end this one.
        (COMMITTING, 4, OpenTransactionOutcome.HELD),  # The marker's epoch is above that of the records.
        (COMMITTING, 5, OpenTransactionOutcome.WAITS),  # The next transaction started before a stop.
    ],
)
def test_fate_of_a_partition_in_the_known_transaction(
    state: TransactionState, epoch: int, expected: OpenTransactionOutcome
) -> None:
    known = Transaction("t", ID, ProducerEpoch(5), state=state, partitions=frozenset({T0}), version=2)
    assert fate(T0, ProducerIdAndEpoch(ID, ProducerEpoch(epoch)), known) is expected


def test_kept_transaction_is_not_aborted_for_a_foreign_partition() -> None:
    kept = Transaction(
        "t",
        ID,
        ProducerEpoch(5),
        state=ONGOING,
        partitions=frozenset({T0}),
        version=2,
        next_id=ID,
        next_epoch=ProducerEpoch(6),
    )
    assert fate(T0, kept.producer, kept) is OpenTransactionOutcome.HELD
    assert fate(T1, kept.producer, kept) is OpenTransactionOutcome.MARKED
    assert fate(T1, kept.client, kept) is OpenTransactionOutcome.WAITS


def test_producer_with_a_next_id_is_known_by_both_ids() -> None:
    decided = Transaction(
        "t", ID, ProducerEpoch(INT16_MAX), state=COMMITTING, partitions=frozenset({T0}), version=2, next_id=NEXT
    )
    assert fate(T0, ProducerIdAndEpoch(ID, ProducerEpoch(LAST_EPOCH)), decided) is OpenTransactionOutcome.HELD
    assert fate(T0, ProducerIdAndEpoch(NEXT, ProducerEpoch(0)), decided) is OpenTransactionOutcome.WAITS
    assert decided.next_id != NO_ID


def test_epoch_that_no_client_may_use_joins_no_transaction() -> None:
    last = Transaction("t", ID, ProducerEpoch(INT16_MAX), state=ABORTED, version=2)
    assert fate(T0, last.producer, last) is OpenTransactionOutcome.MARKED


# In a broker.


@pytest.mark.parametrize("version", [1, 2])
def test_producer_of_an_aborted_hanging_transaction_gets_an_error(harness: Harness, version: int) -> None:
    """The whole transaction is aborted; otherwise the producer would find its batch written and commit without it."""
    producer = begin_transaction(harness, 0, 1, version=version)
    lose(producer, T1)
    harness.run_housekeeping()
    assert producer.state.state is ABORTED
    assert resend_first(producer, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.end(commit=True) == (ErrorCode.PRODUCER_FENCED if version < 2 else ErrorCode.INVALID_TXN_STATE)
    assert committed(harness, "t") == committed(harness, "t", 1) == []
    assert [last_stable(harness, "t", index) for index in (0, 1)] == [2, 2], "no reader waits"
    assert not harness.broker.transactions.may_hang


def test_producer_whose_transaction_was_lost_completely_gets_an_error(harness: Harness) -> None:
    producer = begin_transaction(harness, 0)
    assert producer.end(commit=True) == ErrorCode.NONE
    assert producer.write("t", b"first") == ErrorCode.NONE
    lose(producer, T0)
    harness.run_housekeeping()
    assert producer.state.state is ABORTED
    assert resend_first(producer, 0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.end(commit=False) == ErrorCode.NONE
    assert producer.write("t", b"next") == ErrorCode.NONE
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "t") == [b"hangs", b"next"]


def test_all_partitions_of_a_transaction_are_aborted_by_one_decision(harness: Harness) -> None:
    producer, other = begin_transaction(harness, 0, 1, 2), begin_transaction(harness, 0, name="other")
    lose(producer, T1, T2)
    before = producer.state.epoch
    step(harness)
    assert producer.state.state is ABORTED
    assert producer.state.epoch == before + 1
    assert last_stable(harness, "t", 1) == last_stable(harness, "t", 2) == 2
    assert other.state.state is ONGOING
    assert other.end(commit=True) == ErrorCode.NONE


def test_partition_rejoins_if_the_producer_writes_before_the_check(harness: Harness) -> None:
    producer = begin_transaction(harness, 0, 1)
    lose(producer, T1)
    assert resend_first(producer, 1) == ErrorCode.NONE
    assert producer.state.partitions == {T0, T1}
    harness.run_housekeeping()
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "t", 1) == [b"hangs"]


def test_several_partitions_rejoin_in_one_request(harness: Harness) -> None:
    producer = begin_transaction(harness, 0, 1, 2)
    lose(producer, T1, T2)
    producer.sequences.clear()
    assert producer.write_all("t", {1: [b"hangs"], 2: [b"hangs"]}) == [ErrorCode.NONE] * 2
    assert producer.state.partitions == {T0, T1, T2}
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "t", 1) == committed(harness, "t", 2) == [b"hangs"]


def test_hanging_records_do_not_join_the_next_transaction(harness: Harness) -> None:
    producer = begin_transaction(harness, 0, 1)
    lose(producer, T1)
    assert producer.end(commit=False) == ErrorCode.NONE
    assert producer.write("t", b"next", partition=1) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.write_all("t", {0: [b"x"], 1: [b"next"]}) == [ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS]
    assert T1 in producer.state.partitions
    harness.run_housekeeping()
    assert producer.write("t", b"next", partition=1) == ErrorCode.NONE
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "t", 1) == [b"next"]


def test_records_after_a_decision_wait_for_its_completion(harness: Harness) -> None:
    producer = begin_transaction(harness, 0)
    assert producer.end(commit=True) == ErrorCode.NONE
    assert producer.write("t", b"next", partition=1) == ErrorCode.NONE
    shard, was = harness.broker.transactions.states.find_transaction(producer.id)
    decided = was._replace(state=COMMITTING, partitions=frozenset({T0}))
    shard.transactions[producer.id] = decided  # The completion and the join are lost, and the markers are on their way.
    harness.broker.transactions.may_hang = True
    step(harness)
    assert harness.broker.transactions.may_hang
    assert last_stable(harness, "t", 1) == 0
    shard.transactions[producer.id] = was._replace(state=COMMITTED, partitions=frozenset())
    step(harness)
    assert producer.state.state is ABORTED
    assert last_stable(harness, "t", 1) == 2
    step(harness)
    assert not harness.broker.transactions.may_hang


def test_refused_end_of_a_hanging_transaction_is_retried(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    producer, forgotten = begin_transaction(harness, 0, 1), begin_transaction(harness, 2, name="u")
    shard, _ = harness.broker.transactions.states.find_transaction(forgotten.id)
    shard.remove(forgotten.id, harness.now)
    lose(producer, T1)

    def full(*_: object) -> None:
        raise DiskFailed(28, "full", "")

    with monkeypatch.context() as patch:
        for write in ("write", "write_all"):
            patch.setattr(RealFile, write, full)
        step(harness)
        assert harness.broker.transactions.may_hang
        assert producer.state.state is ONGOING
    step(harness)
    assert not harness.broker.transactions.may_hang
    assert producer.state.state is ABORTED
    assert last_stable(harness, "t", 2) == 2


# Time of the check.


def test_check_waits_until_all_assigned_partitions_are_led(harness: Harness) -> None:
    """A partition that is opened after the check of all others would never be checked."""
    producer = begin_transaction(harness, 0, 1)
    topics = list(harness.broker.view.topics.values())
    harness.announces_topics = False
    lose(producer, T1)
    step(harness)
    assert harness.broker.transactions.may_hang, "nothing is known of the cluster"
    for request in harness.controller.initial_requests(topics):
        for _ in request.apply(harness.broker, harness.now):
            step(harness)
            assert harness.broker.transactions.may_hang == (len(harness.broker.partitions) < 5)
    assert producer.state.state is ABORTED
    assert last_stable(harness, "t", 1) == 2


def test_clean_restart_needs_no_check(harness: Harness) -> None:
    begin_transaction(harness, 0)
    harness.restart()
    assert not harness.broker.transactions.may_hang


# In slices.


def test_transactions_that_change_during_the_check_are_kept(harness: Harness) -> None:
    """The check reads the state at its start; the resulting action uses the current state."""
    ending, joining, lost = (
        begin_transaction(harness, 0, name="a"),
        begin_transaction(harness, 1, name="b"),
        begin_transaction(harness, 0, 2, name="c"),
    )
    lose(joining, T1)
    lose(lost, T2)
    slices = harness.broker.transactions.end_hanging(harness.broker.partitions, harness.now)
    next(slices)
    assert ending.end(commit=True) == ErrorCode.NONE
    assert resend_first(joining, 1) == ErrorCode.NONE
    beginning = begin_transaction(harness, 0, 1, 2, name="d")
    for _ in slices:
        pass
    harness.settle()
    assert [one.state.state for one in (ending, joining, lost, beginning)] == [COMMITTED, ONGOING, ABORTED, ONGOING]
    assert joining.end(commit=True) == beginning.end(commit=True) == ErrorCode.NONE
    assert committed(harness, "t", 1) == [b"hangs", b"hangs"]
    assert committed(harness, "t", 2) == [b"hangs"]


def test_check_ends_nothing_of_a_resigned_shard(harness: Harness) -> None:
    producer = begin_transaction(harness, 0)
    lose(producer, T0)
    slices = harness.broker.transactions.end_hanging(harness.broker.partitions, harness.now)
    next(slices)
    harness.broker.transactions.shards.resign(harness.broker.transactions.shards.partition_of(producer.id))
    for _ in slices:
        pass
    assert harness.broker.partitions[T0].log.producers.open_transactions()
    step(harness)
    assert not harness.broker.transactions.may_hang, "whoever has the shard now would have to be asked"


def test_many_transactions_are_checked_in_slices(harness: Harness) -> None:
    producer = begin_transaction(harness, 0)
    shard, was = harness.broker.transactions.states.find_transaction(producer.id)
    for number in range(2000):
        shard.transactions[f"t{number}"] = was._replace(id=f"t{number}", producer_id=ProducerId(10_000 + number))
    log = harness.broker.partitions[T1].log
    log.producers.put(
        {
            ProducerId(one): ProducerStateEntry(ProducerId(one), ProducerEpoch(0), first_offset=Offset(0))
            for one in range(10_000, 12_000)
        }
    )
    for transaction in list(shard.transactions.values()):
        shard.transactions[transaction.id] = transaction._replace(partitions=frozenset({T0, T1}))
    slices = harness.broker.transactions.end_hanging(harness.broker.partitions, harness.now)
    assert 15 < sum(1 for _ in slices) < 50
    assert not harness.broker.transactions.may_hang
    assert producer.state.state is ONGOING
