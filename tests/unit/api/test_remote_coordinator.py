"""Transactional writes with a coordinator on another broker: verified first, then written or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS
from support.group_offsets import Kept
from support.in_memory import US
from support.remote_coordinator import LOST, OFFSETS, T0, T1, T2, THREE, TWO, CoordinatedElsewhere, names
from support.transactional import Transactional, committed

VERIFIES, ABORTABLE, ADDS = 10, 11, 13
NONE, AGAIN = ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.fixture
def elsewhere(tmp_path: Path) -> CoordinatedElsewhere:
    return CoordinatedElsewhere(tmp_path)


# Batches that wait for the response.


def test_batch_is_written_after_its_partition_joined(elsewhere: CoordinatedElsewhere) -> None:
    producer = elsewhere.begin_producer()
    talk = elsewhere.produce(producer, 0)
    assert talk.is_in_steps
    assert elsewhere.end(T0) == 0
    elsewhere.execute_and_deliver()
    assert elsewhere.codes(talk) == [NONE]
    assert producer.state.partitions == {T0}
    talk = elsewhere.produce(producer, 0)
    assert elsewhere.take_requests() == [], "the partition's own log tells that it is part of the transaction"
    assert elsewhere.codes(talk) == [NONE]
    elsewhere.send_end(producer)
    elsewhere.write_markers()
    assert committed(elsewhere.leader, "t") == [b"a", b"a"]


def test_unknown_partitions_of_a_produce_are_verified_in_one_request(elsewhere: CoordinatedElsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.produce_first(producer, 1)
    talk = elsewhere.produce(producer, 0, 1, 2)
    effect = elsewhere.take_only_request()
    assert names(effect) == [T0, T2]
    elsewhere.deliver(effect, elsewhere.execute(effect))
    assert elsewhere.codes(talk) == [NONE] * 3


def test_each_partition_gets_its_own_error_code(elsewhere: CoordinatedElsewhere) -> None:
    talk = elsewhere.produce(elsewhere.begin_producer(), 0, 1)
    effect = elsewhere.take_only_request()
    elsewhere.deliver(effect, {("p", T0): ErrorCode.TRANSACTION_ABORTABLE, ("p", T1): NONE})
    assert elsewhere.codes(talk) == [ErrorCode.TRANSACTION_ABORTABLE, NONE]
    assert (elsewhere.end(T0), elsewhere.end(T1)) == (0, 1)


def test_verification_delays_only_its_own_connection(elsewhere: CoordinatedElsewhere) -> None:
    producer, other = elsewhere.begin_producer(), elsewhere.begin_producer("other")
    talk = elsewhere.leader.talk()
    elsewhere.send_all([elsewhere.request(producer, 0), elsewhere.request(other, 2)], talk)
    effect = elsewhere.take_only_request()
    assert names(effect) == [T0], "the second request is not looked at before the first is done"
    assert elsewhere.codes(elsewhere.produce_without_transaction(0, talk=elsewhere.leader.talk())) == [NONE]
    elsewhere.deliver(effect, elsewhere.execute(effect))
    assert elsewhere.end(T0) == 2
    assert names(elsewhere.execute_and_deliver()) == [T2]
    assert elsewhere.all_codes(talk, 2) == [NONE, NONE]


def test_batches_of_one_connection_are_written_in_order(elsewhere: CoordinatedElsewhere) -> None:
    producer = elsewhere.begin_producer()
    talk = elsewhere.leader.talk()
    requests = [elsewhere.request(producer, 0) for _ in range(5)]
    elsewhere.send_all(requests, talk)
    assert names(elsewhere.execute_and_deliver()) == [T0]
    assert elsewhere.take_requests() == []
    assert elsewhere.all_codes(talk, 5) == [NONE] * 5
    assert elsewhere.end(T0) == 5


def test_later_batch_is_not_written_before_the_first(elsewhere: CoordinatedElsewhere) -> None:
    producer = elsewhere.begin_producer()
    first = elsewhere.produce(producer, 0)
    effect = elsewhere.take_only_request()
    second = elsewhere.produce(producer, 0)
    elsewhere.deliver(effect, LOST)
    assert elsewhere.codes(first) == [AGAIN]
    elsewhere.execute_and_deliver()
    assert elsewhere.codes(second) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_disabled_verification_sends_no_verification_requests(tmp_path: Path) -> None:
    elsewhere = CoordinatedElsewhere(tmp_path, transaction_partition_verification_enable="false")
    producer = elsewhere.begin_producer(version=1)
    assert elsewhere.codes(elsewhere.produce(producer, 0, version=VERIFIES), VERIFIES) == [NONE]
    assert elsewhere.take_requests() == []
    assert elsewhere.produce(elsewhere.begin_producer("q"), 1, version=ADDS).is_in_steps


def test_with_acks_0_an_error_closes_the_connection(elsewhere: CoordinatedElsewhere) -> None:
    talk = elsewhere.produce(elsewhere.begin_producer(), 0, acks=0)
    elsewhere.deliver(elsewhere.take_only_request(), LOST)
    assert talk.ending is not None
    assert elsewhere.end(T0) == 0


# Error codes by client version.


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, VERIFIES, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, VERIFIES, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NOT_COORDINATOR, ADDS, AGAIN),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, VERIFIES, AGAIN),
        (ErrorCode.NETWORK_EXCEPTION, ADDS, AGAIN),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, ADDS, AGAIN),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ABORTABLE, AGAIN),
    ],
)
def test_error_codes_depend_on_the_client_version(
    elsewhere: CoordinatedElsewhere, code: ErrorCode, version: int, expected: ErrorCode
) -> None:
    talk = elsewhere.produce(elsewhere.begin_producer(), 0, version=version)
    elsewhere.deliver(elsewhere.take_only_request(), code)
    assert elsewhere.codes(talk, version) == [expected]
    assert elsewhere.end(T0) == 0


def test_next_transaction_waits_for_the_end_of_the_previous(elsewhere: CoordinatedElsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.produce_first(producer, 0)
    elsewhere.send_end(producer)
    elsewhere.next_epoch(producer)
    talk = elsewhere.produce(producer, 0)
    elsewhere.execute_and_deliver()
    assert talk.is_in_steps, "CONCURRENT_TRANSACTIONS"
    elsewhere.write_markers()
    elsewhere.pass_time(20)
    elsewhere.execute_and_deliver()
    assert elsewhere.codes(talk) == [NONE]
    assert committed(elsewhere.leader, "t") == [b"a"]


def test_long_wait_for_the_previous_transaction_returns_an_error(elsewhere: CoordinatedElsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.produce_first(producer, 0)
    elsewhere.send_end(producer)
    elsewhere.next_epoch(producer)
    talk = elsewhere.produce(producer, 0)
    while talk.is_in_steps:
        for effect in elsewhere.take_requests():
            elsewhere.deliver(effect, elsewhere.execute(effect))
        elsewhere.pass_time(20)
    assert elsewhere.codes(talk) == [ErrorCode.CONCURRENT_TRANSACTIONS]


def test_missing_coordinator_makes_the_producer_retry(elsewhere: CoordinatedElsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.set_coordinator(NO_BROKER)
    assert elsewhere.codes(elsewhere.produce(producer, 0)) == [AGAIN]


# Changes during verification.


def test_batch_is_refused_if_the_leader_changed_during_verification(elsewhere: CoordinatedElsewhere) -> None:
    talk = elsewhere.produce(elsewhere.begin_producer(), 0)
    effect = elsewhere.take_only_request()
    assert elsewhere.controller.send_leader_and_isr("t", 0, leader=NO_BROKER, epoch=1) == {}
    elsewhere.deliver(effect, elsewhere.execute(effect))
    assert elsewhere.codes(talk) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_batch_is_written_if_this_broker_is_elected_again(elsewhere: CoordinatedElsewhere) -> None:
    talk = elsewhere.produce(elsewhere.begin_producer(), 0)
    effect = elsewhere.take_only_request()
    assert elsewhere.controller.send_leader_and_isr("t", 0, leader=NO_BROKER, epoch=1) == {}
    assert elsewhere.controller.send_leader_and_isr("t", 0, leader=US, epoch=2) == {}
    elsewhere.deliver(effect, elsewhere.execute(effect))
    assert elsewhere.codes(talk) == [NONE]


def test_stopping_broker_fails_waiting_batches(elsewhere: CoordinatedElsewhere) -> None:
    talk = elsewhere.produce(elsewhere.begin_producer(), 0)
    elsewhere.take_only_request()
    elsewhere.leader.broker.purgatory.complete_all()
    elsewhere.wake()
    assert elsewhere.codes(talk) == [AGAIN]
    assert elsewhere.end(T0) == 0


def test_missing_verification_response_times_out(elsewhere: CoordinatedElsewhere) -> None:
    talk = elsewhere.produce(elsewhere.begin_producer(), 0)
    effect = elsewhere.take_only_request()
    assert elsewhere.codes(talk) == [AGAIN]
    elsewhere.deliver(effect, elsewhere.execute(effect))
    assert elsewhere.end(T0) == 0


def test_batch_of_a_closed_connection_is_not_written(elsewhere: CoordinatedElsewhere) -> None:
    talk = elsewhere.produce(elsewhere.begin_producer(), 0)
    talk.leave()
    elsewhere.execute_and_deliver()
    assert elsewhere.end(T0) == 0


def test_batch_of_an_outdated_producer_epoch_is_not_written(elsewhere: CoordinatedElsewhere) -> None:
    producer = elsewhere.begin_producer()
    talk = elsewhere.produce(producer, 0)
    effect = elsewhere.take_only_request()
    outcome = elsewhere.execute(effect)
    elsewhere.send_end(producer, commit=False)
    elsewhere.write_markers()
    elsewhere.deliver(effect, outcome)
    assert elsewhere.codes(talk) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert elsewhere.end(T0) == 1, "the marker"


def test_batch_of_an_ended_transaction_with_the_same_epoch_is_not_written(
    elsewhere: CoordinatedElsewhere,
) -> None:
    producer = elsewhere.begin_producer(version=1)
    assert producer.add(("t", 0)) == [NONE]
    talk = elsewhere.produce(producer, 0)
    effect = elsewhere.take_only_request()
    outcome = elsewhere.execute(effect)
    assert outcome == {("p", T0): NONE}
    elsewhere.send_end(producer)
    elsewhere.write_markers()
    elsewhere.deliver(effect, outcome)
    assert elsewhere.codes(talk, VERIFIES) == [AGAIN]
    assert not elsewhere.leader.broker.partitions[T0].has_open_transactions()
    talk = elsewhere.produce(producer, 0)
    elsewhere.execute_and_deliver()
    assert elsewhere.codes(talk, VERIFIES) == [ErrorCode.INVALID_TXN_STATE]


def test_invalid_batch_is_not_verified(elsewhere: CoordinatedElsewhere) -> None:
    producer = elsewhere.begin_producer()
    request = elsewhere.request(producer, 0, 1)
    records = request.topic_data[0].partition_data[0].records
    assert records is not None
    broken = bytearray(records)
    broken[-1] ^= 1
    request.topic_data[0].partition_data[0].records = broken
    talk = elsewhere.send(request, ADDS)
    elsewhere.execute_and_deliver()
    assert elsewhere.codes(talk) == [ErrorCode.CORRUPT_MESSAGE, NONE]
    assert producer.state.partitions == {T1}


def test_many_partitions_are_verified_and_written_in_slices(tmp_path: Path) -> None:
    elsewhere = CoordinatedElsewhere(tmp_path)
    count = 700
    elsewhere.create_topic("w", count)
    producer = elsewhere.begin_producer()
    talk = elsewhere.send(producer.produce("w", {index: [b"a"] for index in range(count)}), ADDS)
    while effects := elsewhere.take_requests():
        for effect in effects:
            elsewhere.deliver(effect, elsewhere.execute(effect))
    assert elsewhere.codes(talk) == [NONE] * count
    assert len(producer.state.partitions) == count


# Offsets.


@pytest.mark.parametrize("version", [3, 5])
def test_offsets_are_written_after_the_groups_partition_joined(elsewhere: CoordinatedElsewhere, version: int) -> None:
    producer = elsewhere.begin_producer(version=2 if version == 5 else 1)
    if version < 5:
        producer.harness.broker.transactions.add_partitions(
            producer.id, producer.producer, (OFFSETS,), 0, producer.harness.now
        )
    talk = elsewhere.commit_offsets(producer, version)
    assert talk.is_in_steps
    assert names(elsewhere.execute_and_deliver()) == [OFFSETS]
    assert elsewhere.committed(talk, version) is NONE
    assert producer.state.partitions == {OFFSETS}
    elsewhere.send_end(producer)
    elsewhere.write_markers()
    assert elsewhere.group.fetch() == {("t", 0): Kept(1)}


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (ErrorCode.NETWORK_EXCEPTION, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_error_codes_of_offset_commits_depend_on_the_client_version(
    elsewhere: CoordinatedElsewhere, code: ErrorCode, version: int, expected: ErrorCode
) -> None:
    talk = elsewhere.commit_offsets(elsewhere.begin_producer(), version)
    elsewhere.deliver(elsewhere.take_only_request(), code)
    assert elsewhere.committed(talk, version) is expected
    assert elsewhere.end(OFFSETS) == 0


def test_offsets_of_a_moved_group_are_not_written(elsewhere: CoordinatedElsewhere) -> None:
    talk = elsewhere.commit_offsets(elsewhere.begin_producer(), 5)
    effect = elsewhere.take_only_request()
    assert elsewhere.controller.send_leader_and_isr(CONSUMER_OFFSETS, 0, leader=NO_BROKER, epoch=1) == {}
    elsewhere.deliver(effect, elsewhere.execute(effect))
    assert elsewhere.committed(talk, 5) is ErrorCode.NOT_COORDINATOR


def test_offsets_of_an_ended_transaction_are_not_written(elsewhere: CoordinatedElsewhere) -> None:
    old, new = elsewhere.begin_producer("old", version=1), elsewhere.begin_producer("new")
    for producer, version in ((old, 3), (new, 5)):
        now = producer.harness.now
        producer.harness.broker.transactions.add_partitions(
            producer.id, producer.producer, (OFFSETS,), producer.version, now
        )
        talk = elsewhere.commit_offsets(producer, version)
        effect = elsewhere.take_only_request()
        outcome = elsewhere.execute(effect)
        elsewhere.send_end(producer)
        elsewhere.write_markers()
        elsewhere.deliver(effect, outcome)
        code = elsewhere.committed(talk, version)
        assert code is (ErrorCode.INVALID_PRODUCER_EPOCH if version == 5 else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert not elsewhere.leader.broker.partitions[OFFSETS].has_open_transactions()


# Coordinators.


def test_missing_broker_right_is_not_reported_to_the_client(elsewhere: CoordinatedElsewhere) -> None:
    talk = elsewhere.produce(elsewhere.begin_producer(), 0)
    elsewhere.deliver(elsewhere.take_only_request(), Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert elsewhere.codes(talk) == [ErrorCode.INVALID_TXN_STATE]


def test_retry_is_verified_by_the_new_coordinator(elsewhere: CoordinatedElsewhere) -> None:
    producer = elsewhere.begin_producer()
    talk = elsewhere.produce(producer, 0)
    effect = elsewhere.take_only_request()
    assert effect.broker == TWO
    elsewhere.set_coordinator(THREE)
    elsewhere.deliver(effect, ErrorCode.NOT_COORDINATOR)
    assert elsewhere.codes(talk) == [AGAIN]
    resend(producer, 0)
    talk = elsewhere.produce(producer, 0)
    assert elsewhere.execute_and_deliver().broker == THREE
    assert elsewhere.codes(talk) == [NONE]


def resend(producer: Transactional, partition: int) -> None:
    """Let the producer resend its last batch."""
    producer.sequences["t", partition] -= 1
