"""Requests of brokers to a transaction coordinator: Apache Kafka and this broker return the same responses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from kafka_peer import REAL_KAFKA, KafkaBroker

from odradek.api.transactions import add_partitions_requests as add_partitions_ask
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.transactions.additions import AdditionsOutcome, AddPartitions, TransactionQuery
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.controlling import name_of
from support.in_memory import Harness
from support.raw_client import RawClient
from support.waiting import until

pytestmark = [*REAL_KAFKA, pytest.mark.own_peer("asks a running Apache Kafka the same as this broker")]

T0, T1, UNKNOWN = name_of("t", 0), name_of("t", 1), name_of("unknown")
UNKNOWN_PRODUCER = ProducerIdAndEpoch(ProducerId(77), ProducerEpoch(0))
ONE_PARTITION = {"transaction.state.log.num.partitions": "1"}

Answer = TypeVar("Answer")


class SendRequest(Protocol):
    """A function that sends a request to a broker."""

    def __call__(self, message: object, version: int, answer: type[Answer], /) -> Answer: ...


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), settings=ONE_PARTITION) as broker:
        client = RawClient(broker.port)
        make_topic(client.request)
        yield client


def make_topic(send: SendRequest) -> None:
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
    answer = send(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


def begun(send: SendRequest, transactional_id: str) -> ProducerIdAndEpoch:
    """Send InitProducerId until the coordinator is available."""
    found = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )

    began: list[ProducerIdAndEpoch] = []

    def begin() -> bool:
        send(found, 6, FindCoordinatorResponse)
        answer = send(request, 4, InitProducerIdResponse)
        if answer.error_code == ErrorCode.NONE:
            began.append(ProducerIdAndEpoch(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch)))
        return bool(began)

    until(begin)
    return began[0]


def story(send: SendRequest, version: int) -> list[AdditionsOutcome]:
    """Return the responses to some requests, first one by one and then in a single batch."""
    one, other = f"one-{version}", f"other-{version}"
    producer = begun(send, one)
    older, newer = begun(send, other), begun(send, other)
    assert newer.epoch > older.epoch

    def about(
        transactional_id: str, identity: ProducerIdAndEpoch, *names: TopicPartition, adds: bool
    ) -> tuple[TransactionQuery, list[TopicPartition]]:
        return TransactionQuery(transactional_id, identity, adds), list(names)

    queries = [
        about(one, producer, T0, adds=False),
        about(one, producer, T0, UNKNOWN, adds=True),
        about(one, producer, T0, adds=True),
        about(one, producer, T0, T1, adds=False),
        about(one, producer, T0, T1, adds=True),
        about(one, producer, T0, T1, adds=False),
        about(other, older, T0, adds=True),
        about(other, older, T0, adds=False),
        about("nobody", UNKNOWN_PRODUCER, T0, adds=True),
        about("nobody", UNKNOWN_PRODUCER, T0, T1, adds=False),
        about(one, UNKNOWN_PRODUCER, T0, adds=False),
    ]
    effects = [AddPartitions(BrokerId(1), [query]) for query in queries]
    effects.append(AddPartitions(BrokerId(1), [queries[5], queries[6], queries[8]]))
    return [added(send, effect, version) for effect in effects]


def added(send: SendRequest, effect: AddPartitions, version: int) -> AdditionsOutcome:
    answer = send(add_partitions_ask.to_message(effect, version), version, AddPartitionsToTxnResponse)
    return add_partitions_ask.errors(effect, answer)


@pytest.mark.parametrize("version", [4, 5])
def test_both_coordinators_return_the_same_responses(kafka: RawClient, tmp_path: Path, version: int) -> None:
    harness = Harness(tmp_path, transaction_state_log_num_partitions="1")
    make_topic(harness.request)
    ours = story(harness.request, version)
    assert ours == story(kafka.request, version)
    assert ours[2] == {(f"one-{version}", T0): ErrorCode.NONE}
