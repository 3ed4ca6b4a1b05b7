"""Markers for partitions on other brokers: targets, retries, and accepted responses."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.transactions import marker_channel
from odradek.core.transactions.transaction_states import TransactionState
from odradek.wire.messages.end_txn import EndTxnResponse
from support.controlling import name_of
from support.in_memory import US
from support.remote_partitions import LOST, THREE, TWO, Elsewhere, first_of_four_here, is_complete, names, pairs
from support.transactional import EPOCHS, committed

T0, T1, T2, T3 = (name_of("t", index) for index in range(4))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    return first_of_four_here(tmp_path)


# Targets.


def test_transaction_ends_with_the_last_leaders_response(
    elsewhere: Elsewhere,
) -> None:
    producer = elsewhere.begin_producer()
    assert producer.write("t", b"a") == ErrorCode.NONE
    outcome = elsewhere.send_end(producer, T0, T1, T2, T3)
    two, three = sorted(elsewhere.take_requests(), key=lambda one: one.broker)
    assert (two.broker, names(two)) == (TWO, [T1, T3])
    assert (three.broker, names(three)) == (THREE, [T2])
    ((marker, _),) = two.markers
    assert marker.producer == (producer.producer.id, producer.producer.epoch + 1)
    assert (marker.is_commit, marker.version) == (True, 2)
    assert committed(elsewhere.harness, "t") == [b"a"], "what is led here does not wait for the others"
    elsewhere.respond(two)
    assert not is_complete(producer)
    elsewhere.respond(three)
    assert is_complete(producer)
    harness = elsewhere.harness
    assert isinstance(outcome, ParkedRequest)
    assert harness.decoded(harness.finished(outcome), EPOCHS, EndTxnResponse).error_code == ErrorCode.NONE


def test_abort_sends_abort_markers(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1, commit=False)
    effect = elsewhere.take_only_request()
    assert [marker.is_commit for marker, _ in effect.markers] == [False]
    elsewhere.respond(effect)
    assert producer.state.state is TransactionState.COMPLETE_ABORT


def test_markers_are_not_sent_before_the_decision_is_durable(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.add_partitions(producer, T1)
    elsewhere.harness.send(producer.end_request(commit=True), EPOCHS)
    assert elsewhere.take_requests() == []
    elsewhere.harness.settle()
    assert names(elsewhere.take_only_request()) == [T1]


def test_markers_during_a_request_are_batched_into_the_next(elsewhere: Elsewhere) -> None:
    producers = [elsewhere.begin_producer(f"p{index}") for index in range(4)]
    elsewhere.send_end(producers[0], T1)
    first = elsewhere.take_only_request()
    for producer in producers[1:]:
        elsewhere.send_end(producer, T1)
        assert elsewhere.take_requests() == []
    elsewhere.respond(first)
    second = elsewhere.take_only_request()
    assert [marker.producer.id for marker, _ in second.markers] == [one.producer.id for one in producers[1:]]
    elsewhere.respond(second)
    assert all(map(is_complete, producers))


def test_huge_transaction_is_split_and_does_not_delay_others(
    elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_channel, "MARKERS_PER_REQUEST_MAX", 2)
    elsewhere.update_metadata("u", *[TWO] * 5)
    huge, small = elsewhere.begin_producer("huge"), elsewhere.begin_producer("small")
    elsewhere.send_end(huge, *[name_of("u", index) for index in range(5)])
    elsewhere.send_end(small, T1)
    sizes = []
    while effects := elsewhere.take_requests():
        (effect,) = effects
        sizes.append(len(list(pairs(effect))))
        elsewhere.respond(effect)
        if len(sizes) == 2:
            assert is_complete(small)
            assert not is_complete(huge)
    assert sizes == [2, 2, 2]
    assert is_complete(huge)


def test_many_transactions_of_one_response_end_in_slices(elsewhere: Elsewhere) -> None:
    count = 2 * marker_channel.PROCESSED_AT_ONCE
    producers = [elsewhere.begin_producer(f"p{index}") for index in range(count)]
    first = elsewhere.begin_producer("first")
    elsewhere.send_end(first, T1)
    effect = elsewhere.take_only_request()
    for producer in producers:
        elsewhere.send_end(producer, T1)
    elsewhere.respond(effect)
    elsewhere.respond(elsewhere.take_only_request())
    assert sum(map(is_complete, producers)) == marker_channel.PROCESSED_AT_ONCE
    elsewhere.pass_time(1)
    assert all(map(is_complete, producers))


@pytest.mark.slow
def test_markers_of_a_hundred_thousand_partitions_are_sent_in_slices(elsewhere: Elsewhere) -> None:
    count = 100_000
    elsewhere.update_metadata("u", *[TWO] * count)
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, *[name_of("u", index) for index in range(count)])
    marked, requests = 0, 0
    while not is_complete(producer):
        for effect in elsewhere.take_requests():
            size = len(list(pairs(effect)))
            assert size <= marker_channel.MARKERS_PER_REQUEST_MAX
            marked, requests = marked + size, requests + 1
            elsewhere.respond(effect)
        elsewhere.pass_time(1)
    assert (marked, requests <= 2 * count // marker_channel.MARKERS_PER_REQUEST_MAX) == (count, True)


# Errors.

MAY_PASS = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
]


@pytest.mark.parametrize("code", MAY_PASS)
def test_transient_error_is_retried_later_with_the_current_leader(elsewhere: Elsewhere, code: ErrorCode) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1, T3)
    elsewhere.respond(elsewhere.take_only_request(), {T1: code})
    assert elsewhere.take_requests() == []
    elsewhere.update_metadata("t", US, THREE, THREE, TWO)
    elsewhere.pass_time(999)
    assert elsewhere.take_requests() == []
    elsewhere.pass_time(1)
    effect = elsewhere.take_only_request()
    assert (effect.broker, names(effect)) == (THREE, [T1])
    elsewhere.respond(effect)
    assert is_complete(producer)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_partition_with_a_later_epoch_needs_no_marker(elsewhere: Elsewhere, code: ErrorCode) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1)
    elsewhere.respond(elsewhere.take_only_request(), code)
    assert is_complete(producer)


def test_partition_missing_in_the_response_is_retried(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1)
    elsewhere.harness.broker.transactions.markers.on_answered(elsewhere.take_only_request(), {}, elsewhere.harness.now)
    elsewhere.pass_time()
    assert names(elsewhere.take_only_request()) == [T1]
    assert not is_complete(producer)


def test_lost_request_is_retried_with_the_current_leader(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1, T3)
    elsewhere.respond(elsewhere.take_only_request(), LOST)
    elsewhere.update_metadata("t", US, TWO, THREE, THREE)
    assert elsewhere.take_requests() == []
    elsewhere.pass_time()
    two, three = sorted(elsewhere.take_requests(), key=lambda one: one.broker)
    assert (names(two), names(three)) == ([T1], [T3])
    elsewhere.respond(two)
    elsewhere.respond(three)
    assert is_complete(producer)


def test_only_the_first_completion_of_a_request_is_applied(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1)
    lost = elsewhere.take_only_request()
    elsewhere.respond(lost, LOST)
    elsewhere.respond(lost)
    assert not is_complete(producer), "it will be asked again, and that answer counts"
    elsewhere.pass_time()
    again = elsewhere.take_only_request()
    elsewhere.respond(lost)
    assert not is_complete(producer)
    elsewhere.respond(again)
    elsewhere.respond(again)
    assert is_complete(producer)


def test_broker_without_authorization_is_reported_once(elsewhere: Elsewhere, caplog: pytest.LogCaptureFixture) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1, T3)
    caplog.clear()
    for _ in range(3):
        elsewhere.respond(elsewhere.take_only_request(), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        elsewhere.pass_time()
    assert [one.levelno for one in caplog.records] == [logging.ERROR]
    assert "broker 2" in caplog.text
    elsewhere.respond(elsewhere.take_only_request(), LOST)
    elsewhere.pass_time()
    elsewhere.respond(elsewhere.take_only_request(), Refused(ErrorCode.UNSUPPORTED_VERSION, "it speaks 1 to 1"))
    assert [one.levelno for one in caplog.records] == [logging.ERROR, logging.WARNING, logging.ERROR]
