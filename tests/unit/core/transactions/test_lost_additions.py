"""Writes of partition additions: a lost one leaves doubts until the coordinator is queried."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.core.kernel.cluster_view import TRANSACTION_STATE
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.transactions.additions import AddPartitions
from odradek.wire.messages.produce import ProduceResponse
from support.controlling import name_of
from support.remote_partitions import TWO, Elsewhere, first_of_four_here
from support.transactional import Transactional

T0, STATE = name_of("t", 0), name_of(TRANSACTION_STATE)
ADDS = 13


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    return first_of_four_here(tmp_path)


def lose_addition(elsewhere: Elsewhere, *, runs_housekeeping: bool) -> Transactional:
    """Return a producer whose first batch is written, while the coordinator's record of its partition is lost."""
    producer = elsewhere.begin_producer()
    harness = elsewhere.harness
    waiting = harness.send(producer.produce("t", {0: [b"a"]}), ADDS)
    assert isinstance(waiting, ParkedRequest)
    harness.broker.partitions[STATE].take_offline()
    answer = harness.decoded(harness.finished(waiting), ADDS, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    elsewhere.update_metadata(TRANSACTION_STATE, TWO)
    if runs_housekeeping:
        harness.run_housekeeping()
    else:
        assert producer.write("t", b"a") is ErrorCode.NOT_ENOUGH_REPLICAS, "it is found out by this"
    assert harness.broker.partitions[T0].has_open_transactions()
    return producer


def resend(elsewhere: Elsewhere, producer: Transactional, code: ErrorCode) -> tuple[AddPartitions, ErrorCode]:
    """Resend the producer's batch; return the request to the next coordinator, and the producer's response."""
    harness = elsewhere.harness
    waiting = harness.send(producer.produce("t", {0: [b"a"]}), ADDS)
    assert isinstance(waiting, ParkedRequest)
    (effect,) = harness.broker.take_additions()
    outcome = {(producer.id, T0): code}
    harness.broker.transactions.additions.on_answered(effect, outcome, harness.now)
    answer = harness.decoded(harness.finished(waiting), ADDS, ProduceResponse)
    return effect, ErrorCode(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("runs_housekeeping", [False, True])
def test_next_coordinator_is_queried_about_existing_records(elsewhere: Elsewhere, runs_housekeeping: bool) -> None:
    producer = lose_addition(elsewhere, runs_housekeeping=runs_housekeeping)
    effect, code = resend(elsewhere, producer, ErrorCode.NONE)
    assert [names for _, names in effect.transactions] == [[T0]]
    assert code is ErrorCode.NONE
    producer.sequences["t", 0] = 1
    assert producer.write("t", b"b") is ErrorCode.NONE
    assert elsewhere.harness.broker.take_additions() == [], "it is asked once"


def test_records_unknown_to_the_next_coordinator_are_not_acknowledged(elsewhere: Elsewhere) -> None:
    producer = lose_addition(elsewhere, runs_housekeeping=True)
    for _ in range(2):
        _, code = resend(elsewhere, producer, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_other_transactions_are_not_in_doubt(elsewhere: Elsewhere) -> None:
    other = elsewhere.begin_producer("other")
    assert other.write("t", b"a") is ErrorCode.NONE
    lose_addition(elsewhere, runs_housekeeping=True)
    assert other.write("t", b"b") is ErrorCode.NONE
    assert elsewhere.harness.broker.take_additions() == []


def test_loss_is_forgotten_after_the_maximum_transaction_timeout(elsewhere: Elsewhere) -> None:
    lose_addition(elsewhere, runs_housekeeping=True)
    harness = elsewhere.harness
    joins = harness.broker.transactions.joins
    assert joins.lost
    harness.pass_time(harness.broker.transactions.timeout_ms_max)
    harness.run_housekeeping()
    assert not joins.lost
