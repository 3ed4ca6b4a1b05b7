"""Large and malformed requests between brokers: they delay no other work, and are refused or close their connection."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.api.cluster import leader_and_isr, stop_replica, update_metadata
from odradek.app.serve.garbage import NEVER, YOUNG_COLLECTIONS, YOUNG_OBJECTS
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, LeaderEpoch, TopicPartition
from odradek.core.controller.broker_request_batch import (
    AssignedState,
    BecomeLeaderOrFollower,
    ControlRequest,
    PartitionMetadata,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.controller.events import AlteredPartition, AlterPartitions
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.catalog import APIS
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.wire.messages.leader_and_isr import LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataResponse
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.malformed import Malformed
from support.between_brokers import CASES, BetweenBrokers, extend_table, frame
from support.controlling import OTHER, Controlling, name_of, topic_id
from support.forge import Forge
from support.hostile import mutated
from support.in_memory import US, Harness

MANY, TOPICS = 10_000, 100
HOLD_MS_MAX = 20  # The limit of the design; a slice takes a tenth of it on an idle machine.
REQUESTS = 60
NAMES = [name_of(f"t{index % TOPICS}", index // TOPICS) for index in range(MANY)]
IDS = {name.topic: topic_id(name.topic) for name in NAMES}
BROKERS = tuple(map(BrokerId, (1, 2, 3)))
STATE = LeaderAndIsr(US, LeaderEpoch(3), BROKERS, controller_epoch=7)


@pytest.fixture
def between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BetweenBrokers:
    extend_table(monkeypatch)
    return BetweenBrokers(Harness(tmp_path))


@pytest.fixture(autouse=True)
def as_in_a_broker() -> Iterator[None]:
    """Exclude the test process's objects, and let the collector visit old objects as rarely as in a broker."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def sent(request: BecomeLeaderOrFollower | UpdateMetadata | StopReplicas) -> ControlRequest:
    return ControlRequest(US, 10, OTHER, 7, request)


def check_holds(between: BetweenBrokers) -> None:
    assert between.harness.longest_ns < HOLD_MS_MAX * 1_000_000, f"{between.harness.longest_ns / 1e6:.1f} ms"


FAILED = dict.fromkeys(NAMES[::3], ErrorCode.KAFKA_STORAGE_ERROR)


class Fails:
    """A handler that checks the partitions and fails all of them; it keeps nothing."""

    def __init__(self, between: BetweenBrokers) -> None:
        between.keeps = False
        self.names: set[object] = set()

    def __call__(self, one: ControlRequest) -> dict[TopicPartition, ErrorCode]:
        self.names.update(one.request.partitions)
        return dict(FAILED)


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 4, 7])
def test_large_leader_and_isr_request_is_handled_in_slices(between: BetweenBrokers, version: int) -> None:
    become = BecomeLeaderOrFollower({one: AssignedState(STATE, BROKERS) for one in NAMES}, IDS, ())
    message = leader_and_isr.to_message(sent(become), become, version, "PLAINTEXT")
    failing = Fails(between)
    answer = between.request(message, version, LeaderAndIsrResponse, respond=failing)
    assert leader_and_isr.errors(become, answer) == FAILED
    assert failing.names == become.partitions.keys()
    check_holds(between)


@pytest.mark.slow
@pytest.mark.parametrize("version", [0, 2, 4])
def test_large_stop_replica_request_is_handled_in_slices(between: BetweenBrokers, version: int) -> None:
    stop = StopReplicas(dict.fromkeys(NAMES, LeaderEpoch(3)), deletes=True)
    message = stop_replica.to_message(sent(stop), stop, version)
    failing = Fails(between)
    answer = between.request(message, version, StopReplicaResponse, respond=failing)
    assert stop_replica.errors(answer) == FAILED and len(answer.partition_errors) == MANY
    assert failing.names == stop.partitions.keys()
    check_holds(between)


@pytest.mark.slow
@pytest.mark.parametrize("version", [4, 8])
def test_large_update_metadata_request_is_handled_in_slices(between: BetweenBrokers, version: int) -> None:
    update = UpdateMetadata({one: PartitionMetadata(STATE, BROKERS, ()) for one in NAMES}, IDS, (), is_full=True)
    message = update_metadata.to_message(sent(update), update, version)
    failing = Fails(between)
    assert between.request(message, version, UpdateMetadataResponse, respond=failing).error_code == 0
    assert failing.names == update.partitions.keys()
    check_holds(between)


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 3])
def test_large_alter_partition_request_is_handled_in_slices(between: BetweenBrokers, version: int) -> None:
    Controlling(between.harness).send_update_metadata(dict.fromkeys(IDS, 1))
    between.harness.longest_ns, between.keeps = 0, False
    topics = [RequestTopicData(topic_name=name, topic_id=topic_id(name), partitions=[]) for name in IDS]
    for number, one in enumerate(NAMES):
        part = RequestPartitionData(partition_index=one.partition, leader_epoch=3, partition_epoch=1)
        if version < 3:
            part.new_isr = [1, 2, 3]
        else:
            part.new_isr_with_epochs = [BrokerState(broker_id=broker, broker_epoch=9) for broker in BROKERS]
        topics[number % TOPICS].partitions.append(part)

    def decide(query: AlterPartitions) -> None:
        assert len(query.proposals) == MANY
        query.answer = dict.fromkeys(query.proposals, AlteredPartition(ErrorCode.NONE, STATE))

    request = AlterPartitionRequest(broker_id=2, broker_epoch=20, topics=topics)
    answer = between.request(request, version, AlterPartitionResponse, decide=decide)
    assert [one.error_code for topic in answer.topics for one in topic.partitions] == [0] * MANY
    check_holds(between)


@pytest.mark.slow
def test_large_alter_partition_request_of_unknown_topics_is_handled(between: BetweenBrokers) -> None:
    parts = [RequestPartitionData(partition_index=index, leader_epoch=3, partition_epoch=1) for index in range(MANY)]
    topics = [RequestTopicData(topic_id=topic_id("?"), partitions=parts)]
    between.keeps = False

    def decide(query: AlterPartitions) -> None:
        query.answer = {}

    request = AlterPartitionRequest(broker_id=2, broker_epoch=20, topics=topics)
    answer = between.request(request, 2, AlterPartitionResponse, decide=decide)
    assert {one.error_code for one in answer.topics[0].partitions} == {ErrorCode.UNKNOWN_TOPIC_ID}
    check_holds(between)


@pytest.mark.slow
def test_large_request_can_be_refused(between: BetweenBrokers) -> None:
    between.may()
    become = BecomeLeaderOrFollower({one: AssignedState(STATE, BROKERS) for one in NAMES}, IDS, ())
    message = leader_and_isr.to_message(sent(become), become, 7, "PLAINTEXT")
    answer = between.request(message, 7, LeaderAndIsrResponse)
    assert leader_and_isr.errors(become, answer) == dict.fromkeys(NAMES, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    check_holds(between)


# Garbage.


class RandomDecisions:
    """A responder to requests of the controller and of brokers, with arbitrary results."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def apply(self, one: ControlRequest) -> dict[Any, ErrorCode]:
        names = list(one.request.partitions)
        return {name: ErrorCode.KAFKA_STORAGE_ERROR for name in names if self.random.random() < 0.3}

    def __call__(self, query: Any) -> None:
        if self.random.random() < 0.2:
            query.error = ErrorCode.NOT_CONTROLLER
        elif isinstance(query, AlterPartitions):
            query.answer = {
                name: AlteredPartition(ErrorCode.NONE, proposed)
                if self.random.random() < 0.5
                else AlteredPartition(ErrorCode.INELIGIBLE_REPLICA)
                for name, proposed in query.proposals.items()
            }
        else:
            query.answer = NAMES[:3]


def check_answer(between: BetweenBrokers, key: ApiKey, version: int, data: bytes, decides: RandomDecisions) -> bool:
    """Send one request; return False if it closes its connection."""
    harness = between.harness
    try:
        outcome = harness.send_frame(data)
        if isinstance(outcome, ParkedRequest):
            assert between.handle_requests(decides.apply) + between.answer_queries(decides)
        answer = harness.finished(outcome)
    except Malformed:
        return False
    harness.decoded(answer, version, APIS[key][1])
    return True


@pytest.mark.slow
@pytest.mark.share(3)
@pytest.mark.parametrize(("key", "version"), CASES, ids=lambda case: getattr(case, "name", str(case)))
def test_malformed_request_is_refused_or_closes_its_connection(
    between: BetweenBrokers, caplog: pytest.LogCaptureFixture, key: ApiKey, version: int
) -> None:
    random = Random(f"{key.name} {version}")
    controller = Controlling(between.harness)
    controller.create_topic("t", 2)
    strings, uuids = ("t", "u", "", "ü" * 100), (topic_id("t"), topic_id("u"), bytes(16))
    forge = Forge(random, strings, uuids, [None], {"broker_id": (1, 2), "topic_id": uuids})
    answered = 0
    with caplog.at_level(logging.ERROR):
        for number in range(REQUESTS):
            data = frame(forge.message(APIS[key][0], version), version)
            is_whole = number % 2 == 0
            if not is_whole:
                data = mutated(random, data)
            is_answered = check_answer(between, key, version, data, RandomDecisions(random))
            assert is_answered or not is_whole, "what is right in form has an answer"
            answered += is_answered
    assert not caplog.records, caplog.text
    assert answered >= REQUESTS // 2
    controller.epoch = 100
    assert controller.send_leader_and_isr("t", epoch=9) == {}, "the broker lives"
