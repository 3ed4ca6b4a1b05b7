"""Verification requests to coordinators on other brokers: target, batching, and results."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, ProducerEpoch, ProducerId, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.promise import Promise
from odradek.core.transactions import addition_queue
from odradek.core.transactions.additions import TransactionQuery
from support.controlling import name_of
from support.in_memory import US
from support.remote_coordinator import LOST, T0, T1, T2, THREE, TWO, CoordinatedElsewhere, names

Codes = dict[TopicPartition, ErrorCode]


@pytest.fixture
def elsewhere(tmp_path: Path) -> CoordinatedElsewhere:
    return CoordinatedElsewhere(tmp_path)


def query(name: str = "p", epoch: int = 0, *, adds: bool = True) -> TransactionQuery:
    return TransactionQuery(name, ProducerIdAndEpoch(ProducerId(7), ProducerEpoch(epoch)), adds)


def add_partitions(
    elsewhere: CoordinatedElsewhere, about: TransactionQuery, *partitions: TopicPartition, retries: bool = False
) -> Promise[Codes]:
    additions = elsewhere.leader.broker.transactions.additions
    return additions.add_or_verify(about, partitions or (T0,), elsewhere.leader.now, retries=retries)


def test_coordinators_without_verification_get_no_request(tmp_path: Path) -> None:
    """Kafka's brokers do not verify with coordinators before 3.5 either."""
    elsewhere = CoordinatedElsewhere(tmp_path, inter_broker_protocol_version="3.4")
    assert add_partitions(elsewhere, query(adds=False), T0, T1).value == dict.fromkeys((T0, T1), ErrorCode.NONE)
    assert add_partitions(elsewhere, query(adds=True)).value == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert elsewhere.take_requests() == []


# Batching.


def test_additions_during_a_request_are_batched_into_the_next(elsewhere: CoordinatedElsewhere) -> None:
    first = add_partitions(elsewhere, query("a"), T0)
    effect = elsewhere.take_only_request()
    assert effect.broker == TWO
    others = [add_partitions(elsewhere, query(name), T0, T1) for name in "bcd"]
    assert elsewhere.take_requests() == []
    elsewhere.deliver(effect, ErrorCode.NONE)
    assert first.value == {T0: ErrorCode.NONE}
    effect = elsewhere.take_only_request()
    assert [(one.transactional_id, some) for one, some in effect.transactions] == [(one, [T0, T1]) for one in "bcd"]
    elsewhere.deliver(
        effect, {("b", T0): ErrorCode.NONE, ("b", T1): ErrorCode.PRODUCER_FENCED, ("c", T0): ErrorCode.NONE}
    )
    assert others[0].value == {T0: ErrorCode.NONE, T1: ErrorCode.PRODUCER_FENCED}
    assert others[1].value == {T0: ErrorCode.NONE, T1: ErrorCode.NETWORK_EXCEPTION}, "no code is no answer"
    assert others[2].value == dict.fromkeys((T0, T1), ErrorCode.NETWORK_EXCEPTION)


def test_each_coordinator_gets_its_own_request(elsewhere: CoordinatedElsewhere) -> None:
    add_partitions(elsewhere, query("a"))
    assert elsewhere.take_only_request().broker == TWO
    elsewhere.set_coordinator(THREE)
    add_partitions(elsewhere, query("b"))
    assert elsewhere.take_only_request().broker == THREE


def test_equal_additions_are_sent_once_and_answered_both(elsewhere: CoordinatedElsewhere) -> None:
    both = [add_partitions(elsewhere, query(), T0, T1), add_partitions(elsewhere, query(), T1, T2)]
    effect = elsewhere.take_only_request()
    assert effect.transactions == [(query(), [T0, T1, T2])]
    elsewhere.deliver(effect, ErrorCode.NONE)
    assert [one.value for one in both] == [dict.fromkeys(some, ErrorCode.NONE) for some in ((T0, T1), (T1, T2))]


def test_response_for_another_epoch_of_the_transaction_is_ignored(elsewhere: CoordinatedElsewhere) -> None:
    old, verified, new = [add_partitions(elsewhere, one) for one in (query(), query(adds=False), query(epoch=1))]
    for promise, about in ((old, query()), (verified, query(adds=False)), (new, query(epoch=1))):
        effect = elsewhere.take_only_request()
        assert effect.transactions == [(about, [T0])]
        elsewhere.deliver(effect, ErrorCode.NONE)
        assert promise.value == {T0: ErrorCode.NONE}


def test_huge_addition_is_split_and_does_not_delay_others(
    elsewhere: CoordinatedElsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addition_queue, "PARTITIONS_PER_REQUEST_MAX", 2)
    many = [name_of("t", index) for index in range(5)]
    huge, small = add_partitions(elsewhere, query("huge"), *many), add_partitions(elsewhere, query("small"))
    sizes = []
    while effects := elsewhere.take_requests():
        (effect,) = effects
        sizes.append(len(names(effect)))
        assert (small.value is None) == (len(sizes) < 3)
        elsewhere.deliver(effect, ErrorCode.NONE)
    assert sizes == [2, 2, 2]
    assert huge.value == dict.fromkeys(many, ErrorCode.NONE)
    assert small.value == {T0: ErrorCode.NONE}


def test_full_queue_refuses_additions_with_load_in_progress(
    elsewhere: CoordinatedElsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addition_queue, "WAITING_MAX", 3)
    in_flight = add_partitions(elsewhere, query("a"), T0, T1, T2)
    effect = elsewhere.take_only_request()
    waiting = add_partitions(elsewhere, query("b"), T0, T1)
    refused = add_partitions(elsewhere, query("c"), T0, T1)
    assert refused.value == dict.fromkeys((T0, T1), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    fits = add_partitions(elsewhere, query("d"), T0)
    elsewhere.deliver(effect, ErrorCode.NONE)
    elsewhere.deliver(elsewhere.take_only_request(), ErrorCode.NONE)
    for promise in (in_flight, waiting, fits):
        assert set((promise.value or {}).values()) == {ErrorCode.NONE}


# Results.


def test_second_completion_of_a_request_does_nothing(elsewhere: CoordinatedElsewhere) -> None:
    first = add_partitions(elsewhere, query())
    effect = elsewhere.take_only_request()
    second = add_partitions(elsewhere, query())
    elsewhere.deliver(effect, LOST)
    assert first.value == {T0: ErrorCode.NETWORK_EXCEPTION}
    elsewhere.deliver(effect, ErrorCode.NONE)
    assert second.value is None
    elsewhere.deliver(elsewhere.take_only_request(), ErrorCode.NONE)
    elsewhere.deliver(effect, ErrorCode.NONE)
    assert second.value == {T0: ErrorCode.NONE}


@pytest.mark.parametrize(
    ("refused", "adds", "expected"),
    [
        (ErrorCode.NETWORK_EXCEPTION, True, ErrorCode.NETWORK_EXCEPTION),
        (ErrorCode.REQUEST_TIMED_OUT, True, ErrorCode.NETWORK_EXCEPTION),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNSUPPORTED_VERSION, False, ErrorCode.NONE),
        (ErrorCode.UNSUPPORTED_VERSION, True, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_failed_request_returns_the_error_code_of_apache_kafka(
    elsewhere: CoordinatedElsewhere, refused: ErrorCode, adds: bool, expected: ErrorCode
) -> None:
    promise = add_partitions(elsewhere, query(adds=adds))
    elsewhere.deliver(elsewhere.take_only_request(), Refused(refused, "why"))
    assert promise.value == {T0: expected}


def test_each_change_of_a_coordinators_failure_is_logged_once(
    elsewhere: CoordinatedElsewhere, caplog: pytest.LogCaptureFixture
) -> None:
    denied = Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no right")
    for outcome in (LOST, denied, denied, ErrorCode.NONE, denied):
        add_partitions(elsewhere, query())
        elsewhere.deliver(elsewhere.take_only_request(), outcome)
    levels = [one.levelno for one in caplog.records if "AddPartitionsToTxn request to broker" in one.message]
    assert levels == [logging.WARNING, logging.ERROR, logging.ERROR]


# Dead brokers, and transactions that are ending.


@pytest.mark.parametrize("leader", [NO_BROKER, THREE])
def test_missing_coordinator_is_reported_immediately(elsewhere: CoordinatedElsewhere, leader: int) -> None:
    elsewhere.set_coordinator(THREE if leader == THREE else NO_BROKER, alive=(US, TWO))
    assert add_partitions(elsewhere, query()).value == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert elsewhere.take_requests() == []


def test_additions_queued_for_a_dead_broker_are_refused(elsewhere: CoordinatedElsewhere) -> None:
    sent = add_partitions(elsewhere, query())
    in_flight = elsewhere.take_only_request()
    waiting = add_partitions(elsewhere, query("b"))
    elsewhere.set_coordinator(THREE, alive=(US, THREE))
    elsewhere.pass_time(1000)
    assert waiting.value == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    elsewhere.deliver(in_flight, LOST)
    assert sent.value == {T0: ErrorCode.NETWORK_EXCEPTION}
    assert elsewhere.leader.broker.timers.next_due() is None, "nothing is left of it"


def test_additions_queued_too_long_are_refused_and_not_sent(elsewhere: CoordinatedElsewhere) -> None:
    add_partitions(elsewhere, query())
    in_flight = elsewhere.take_only_request()
    waiting = add_partitions(elsewhere, query("b"))
    for _ in range(31):
        elsewhere.pass_time(1000)
    assert waiting.value == {T0: ErrorCode.NETWORK_EXCEPTION}
    elsewhere.deliver(in_flight, LOST)
    assert elsewhere.take_requests() == []


def test_refused_addition_with_a_part_in_flight_completes_once(
    elsewhere: CoordinatedElsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addition_queue, "PARTITIONS_PER_REQUEST_MAX", 1)
    promise = add_partitions(elsewhere, query(), T0, T1)
    in_flight = elsewhere.take_only_request()
    elsewhere.set_coordinator(THREE, alive=(US, THREE))
    elsewhere.pass_time(1000)
    assert promise.value == dict.fromkeys((T0, T1), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elsewhere.deliver(in_flight, ErrorCode.NONE)
    assert promise.value == dict.fromkeys((T0, T1), ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_addition_is_retried_while_the_previous_transaction_ends(elsewhere: CoordinatedElsewhere) -> None:
    promise = add_partitions(elsewhere, query(), T0, T1, retries=True)
    sent = 0
    while promise.value is None:
        for effect in elsewhere.take_requests():
            sent += 1
            assert names(effect) == [T0, T1]
            elsewhere.deliver(effect, {("p", T0): ErrorCode.CONCURRENT_TRANSACTIONS, ("p", T1): ErrorCode.NONE})
        elsewhere.pass_time(5)
    assert sent == 6, "now, and each 20 ms until 100"
    assert promise.value[T0] is ErrorCode.CONCURRENT_TRANSACTIONS


def test_retry_is_sent_to_the_current_coordinator(elsewhere: CoordinatedElsewhere) -> None:
    promise = add_partitions(elsewhere, query(), retries=True)
    elsewhere.deliver(elsewhere.take_only_request(), ErrorCode.CONCURRENT_TRANSACTIONS)
    elsewhere.set_coordinator(THREE)
    elsewhere.pass_time(20)
    effect = elsewhere.take_only_request()
    assert effect.broker == THREE
    elsewhere.deliver(effect, ErrorCode.NONE)
    assert promise.value == {T0: ErrorCode.NONE}


def test_verification_without_addition_is_not_retried(elsewhere: CoordinatedElsewhere) -> None:
    promise = add_partitions(elsewhere, query(adds=False))
    elsewhere.deliver(elsewhere.take_only_request(), ErrorCode.CONCURRENT_TRANSACTIONS)
    assert promise.value == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
