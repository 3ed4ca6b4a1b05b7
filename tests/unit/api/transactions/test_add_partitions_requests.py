"""AddPartitionsToTxn between brokers: round trips of requests and responses."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.request.admission import Admission
from odradek.api.transactions import add_partitions_requests as add_partitions_ask
from odradek.base.errors import ErrorCode, Refused
from odradek.core.kernel.access import Operation, Principal
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.transactions.additions import AddPartitions, TransactionQuery
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from support.controlling import name_of
from support.remote_coordinator import T0, T1, T2, TWO, CoordinatedElsewhere
from support.rights import Granted, on_cluster
from support.transactional import Transactional

VERSIONS = [4, 5]


@pytest.fixture
def elsewhere(tmp_path: Path) -> CoordinatedElsewhere:
    return CoordinatedElsewhere(tmp_path)


def query_of(producer: Transactional, *, adds: bool) -> TransactionQuery:
    return TransactionQuery(producer.id, producer.producer, adds)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_transaction_has_its_own_result(elsewhere: CoordinatedElsewhere, version: int) -> None:
    first, second, old = (elsewhere.begin_producer(name) for name in ("first", "second", "old"))
    fenced = query_of(old, adds=True)
    assert old.begin().error_code == ErrorCode.NONE
    effect = AddPartitions(
        TWO, [(query_of(first, adds=True), [T0, T1]), (fenced, [T0]), (query_of(second, adds=False), [T0, T2])]
    )
    assert elsewhere.execute(effect, version) == {
        ("first", T0): ErrorCode.NONE,
        ("first", T1): ErrorCode.NONE,
        ("old", T0): ErrorCode.PRODUCER_FENCED,
        ("second", T0): ErrorCode.TRANSACTION_ABORTABLE,
        ("second", T2): ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert first.state.partitions == {T0, T1}
    assert not second.state.partitions


def test_partition_unknown_to_the_coordinator_prevents_the_addition(elsewhere: CoordinatedElsewhere) -> None:
    producer = elsewhere.begin_producer()
    effect = AddPartitions(TWO, [(query_of(producer, adds=True), [T0, name_of("new")])])
    assert elsewhere.execute(effect) == {
        ("p", T0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("p", name_of("new")): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert not producer.state.partitions


@pytest.mark.parametrize("version", VERSIONS)
def test_request_requires_cluster_action(elsewhere: CoordinatedElsewhere, version: int) -> None:
    producer = elsewhere.begin_producer()
    effect = AddPartitions(TWO, [(query_of(producer, adds=True), [T0])])
    peer = elsewhere.coordinator.peer
    peer.admission = Admission(Principal("User", "other"), Granted([*on_cluster(Operation.ALTER)]))
    outcome = elsewhere.execute(effect, version)
    assert isinstance(outcome, Refused)
    assert outcome.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    peer.admission = Admission(Principal("User", "other"), Granted([*on_cluster(Operation.CLUSTER_ACTION)]))
    assert elsewhere.execute(effect, version) == {("p", T0): ErrorCode.NONE}


def test_verification_waits_until_the_addition_is_durable(
    elsewhere: CoordinatedElsewhere,
) -> None:
    producer, coordinator = elsewhere.begin_producer(), elsewhere.coordinator
    broker = coordinator.broker
    broker.transactions.add_partitions(producer.id, producer.producer, (T0,), 0, coordinator.now)
    effect = AddPartitions(TWO, [(query_of(producer, adds=False), [T0])])
    outcome = coordinator.send(add_partitions_ask.to_message(effect, 5), 5)
    assert isinstance(outcome, ParkedRequest)
    answer = coordinator.decoded(coordinator.finished(outcome), 5, AddPartitionsToTxnResponse)
    assert add_partitions_ask.errors(effect, answer) == {("p", T0): ErrorCode.NONE}


def test_clients_versions_are_not_used_between_brokers() -> None:
    with pytest.raises(Refused) as caught:
        add_partitions_ask.to_message(AddPartitions(TWO, []), 3)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_what_was_not_asked_for_and_codes_that_nobody_knows_do_no_harm(elsewhere: CoordinatedElsewhere) -> None:
    effect = AddPartitions(TWO, [(query_of(elsewhere.begin_producer(), adds=True), [T0, T1])])
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in ((0, 30_000), (7, 0))
    ]
    answer = AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=name,
                topic_results=[AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)],
            )
            for name in ("p", "q")
        ],
    )
    assert add_partitions_ask.errors(effect, answer) == {("p", T0): ErrorCode.UNKNOWN_SERVER_ERROR}
