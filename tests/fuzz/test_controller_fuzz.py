"""Random requests of a controller or a broker: each is answered, and the broker still obeys its controller."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.api.cluster import alter_partition, controlled_shutdown
from odradek.api.request.sliced_response import whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT32_MAX, INT64_MAX, BrokerId, TopicName, TopicPartition
from odradek.core.broker.log_creation import make_replicas
from odradek.core.broker.replicas import Errors
from odradek.core.controller.broker_request_batch import BecomeLeaderOrFollower, ControlRequest
from odradek.core.kernel.cluster_view import BrokerInfo
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.catalog import APIS
from odradek.wire.messages.alter_partition import AlterPartitionRequest
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest
from odradek.wire.schema.api_keys import ApiKey
from sim.simcontroller import SimCluster
from support.asking import ALL, PRODUCE, produce_request
from support.between_brokers import LAST_VERSIONS, BetweenBrokers, extend_table, frame
from support.controlling import OTHER, Controlling, name_of, topic_id
from support.forge import Forge
from support.in_memory import NOW_MS, US, Harness
from support.invariants import check

REQUESTS = 150
TO_BROKERS = [
    (key, version)
    for key in (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA)
    for version in range(LAST_VERSIONS[key] + 1)
]
STRINGS = ["t", "u", "../../evil", "..", ".", "", "a/b", "é" * 300, "x" * 249, "x" * 250, "\0", "__consumer_offsets"]
EXTREMES = [-INT32_MAX - 1, -3, -2, -1, 0, 1, 2, 3, INT32_MAX - 1, INT32_MAX]
BROKERS = [[], [1], [1, 2], [2, 1], [1, 1], [2], [-1, 1], [1, INT32_MAX], list(range(1, 40))]


def forge_for(random: Random, uuids: list[bytes]) -> Forge:
    """Return a forge of random messages and of all extremes."""
    favourites: dict[str, list[object]] = {
        "topic_name": [*STRINGS, "t", "t", "u"],
        "name": STRINGS,
        "topic_id": list(uuids),
        "partition_index": [0, 0, 1, 2, *EXTREMES, 199_999, 200_000],
        "leader": [1] * 8 + EXTREMES,
        "leader_epoch": [0, 1, 2, 3] * 4 + EXTREMES,
        "isr": BROKERS + [[1], [1, 2]] * 3,
        "replicas": BROKERS + [[1], [1, 2]] * 3,
        "adding_replicas": [*BROKERS],
        "removing_replicas": [*BROKERS],
        "offline_replicas": [*BROKERS],
        "partition_epoch": [0, 1] * 6 + EXTREMES,
        "zk_version": [0, 1, *EXTREMES],
        "leader_recovery_state": [0] * 6 + [1, -1, 2, 127],
        "port": [9092, 0, -1, 65_535, 65_536, INT32_MAX],
        "host": ["h", "", "\0", "x" * 300, "a b"],
        "id": [1, 2, *EXTREMES],
    }
    return Forge(random, STRINGS, uuids, [None], favourites)


def make_mostly_valid(random: Random, body: Any, controller_epoch: int) -> Any:
    """Make most of a request valid, so that errors are found in requests that are applied."""
    body.controller_id = random.choice([1, 2] * 8 + EXTREMES)
    # In a broker the tree limits it.
    body.controller_epoch = random.choice([controller_epoch] * 12 + [controller_epoch + 1, controller_epoch - 1, -1])
    body.broker_epoch = random.choice([-1, 10] * 8 + [11, 0, INT64_MAX, -INT64_MAX - 1])
    for state in states_of(body):
        if random.random() < 0.8:
            wrong = random.choice([name for name in SOUND if hasattr(state, name)]) if random.random() < 0.5 else ""
            for name, values in SOUND.items():
                if hasattr(state, name) and name != wrong:
                    setattr(state, name, random.choice(values))
    for topic in getattr(body, "topic_states", ()):
        if random.random() < 0.7:
            topic.topic_name = random.choice("tuv")
            if hasattr(topic, "topic_id"):
                topic.topic_id = topic_id(topic.topic_name)
    return body


SOUND: dict[str, list[Any]] = {
    "partition_index": [0, 1],
    "controller_epoch": [1],
    "leader": [1, 1, 1, -1],
    "leader_epoch": [0, 1, 2, 3],
    "isr": [[1], [1, 2], [2, 1]],
    "replicas": [[1], [1, 2]],
    "adding_replicas": [[]],
    "removing_replicas": [[]],
    "offline_replicas": [[]],
    "partition_epoch": [0, 1],
    "zk_version": [0, 1],
    "leader_recovery_state": [0],
}


def states_of(body: Any) -> list[Any]:
    grouped = [state for topic in getattr(body, "topic_states", ()) for state in topic.partition_states]
    return [*getattr(body, "ungrouped_partition_states", ()), *grouped]


def apply(between: BetweenBrokers, sent: ControlRequest, taken: list[int]) -> Errors | Refused:
    """Apply the request as in a process: files are created first, and then all is applied in slices."""
    harness = between.harness
    overrides: dict[TopicName, dict[str, str]] = {name: {} for name in harness.broker.controlled.names(sent)}
    if isinstance(sent.request, BecomeLeaderOrFollower):
        make_replicas(harness.broker, sent.request, overrides, harness.now.wall)
    try:
        failed = whole(harness.broker.apply_controller_request(sent, overrides, harness.now))
        taken.append(len(sent.request.partitions) - len(failed))
        return failed
    except Refused as refused:
        return refused


def check_broker_works(harness: Harness, topic: str, ourselves: BrokerInfo) -> None:
    """Check that a topic is created, written to, led elsewhere, led here again, and deleted."""
    controller = Controlling(harness, harness.broker.controlled.controller_epoch + 1)
    controller.broker_epoch = max(harness.broker.controlled.broker_epoch, 10)
    both = (US, OTHER)
    assert controller.send_leader_and_isr(topic, is_new=True) == {}
    harness.broker.view.brokers = {US: ourselves}  # The former controller may have named others.
    controller.send_update_metadata({topic: 1})
    outcome = harness.send(produce_request(topic, b"v", acks=ALL, timestamp_ms=NOW_MS), PRODUCE)
    assert harness.finished(outcome)
    assert controller.send_leader_and_isr(topic, leader=OTHER, epoch=1, replicas=both) == {}
    assert harness.broker.partitions[name_of(topic)].leading is None
    assert controller.send_leader_and_isr(topic, epoch=2, replicas=both) == {}
    assert harness.broker.partitions[name_of(topic)].leading is not None
    assert controller.delete_topic(topic) == {}
    assert name_of(topic) not in harness.broker.partitions
    check(harness.broker)


@pytest.mark.parametrize(("key", "version"), TO_BROKERS, ids=lambda case: getattr(case, "name", str(case)))
def test_random_controller_requests_leave_the_broker_working(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, key: ApiKey, version: int
) -> None:
    extend_table(monkeypatch)
    random = Random(f"{key.name} {version}")
    between = BetweenBrokers(Harness(tmp_path / "data"))
    harness = between.harness
    ourselves = harness.broker.view.brokers[US]
    between.keeps, taken = False, list[int]()
    Controlling(harness).create_topic("t", 2)
    uuids = [topic_id("t"), topic_id("u"), bytes(16), bytes([255]) * 16]
    with caplog.at_level(logging.ERROR):
        for number in range(REQUESTS):
            body = forge_for(random, uuids).message(APIS[key][0], version)
            data = frame(make_mostly_valid(random, body, harness.broker.controlled.controller_epoch), version)
            harness.pass_time(1)  # Two logs of one name are never set aside in the same millisecond.
            outcome = harness.send_frame(data)
            while isinstance(outcome, ParkedRequest) and between.handle_requests(
                lambda sent: apply(between, sent, taken)
            ):
                pass
            harness.decoded(harness.finished(outcome), version, APIS[key][1])
            if not number % 50:
                check_broker_works(harness, f"after-{number}", ourselves)
    check_broker_works(harness, "after", ourselves)
    assert not caplog.records, caplog.text
    assert sum(map(bool, taken)) > REQUESTS // 20, "enough of them change something"
    assert [one.name for one in tmp_path.iterdir()] == ["data"], "nothing is written elsewhere"


@pytest.mark.parametrize("version", range(4))
def test_random_broker_requests_leave_the_controller_working(version: int) -> None:
    """ISRs, broker ids and epochs are random; then a topic is created and a leader dies as usual."""
    random = Random(version)
    cluster = SimCluster(1, 3)
    for member in cluster.members.values():
        member.start()
    cluster.run(1)
    cluster.create_topic("t", [[0, 1], [1, 2]])
    cluster.run(1)
    names = {topic_id("t"): TopicName("t"), topic_id("?"): TopicName("../../evil")}
    lists = [*BROKERS, [0], [0, 1], [1, 0], [1, 2]]
    favourites: dict[str, list[object]] = {
        "broker_id": [0, 1, 2, *EXTREMES],
        "broker_epoch": [member.epoch for member in cluster.members.values()],
        "topic_name": STRINGS,
        "topic_id": list(names),
        "partition_index": [0, 1, *EXTREMES],
        "leader_epoch": [0, 0, *EXTREMES],
        "partition_epoch": [0, 0, 1, *EXTREMES],
        "new_isr": [*lists],
        "leader_recovery_state": [0, 1, 2, -1],
    }
    forge = Forge(random, STRINGS, [*names], [None], favourites)
    for _ in range(REQUESTS):
        request = forge.message(AlterPartitionRequest, version)
        assert isinstance(request, AlterPartitionRequest)
        proposal = alter_partition.from_message(request, version, names).event  # type: ignore[arg-type]
        cluster.controllers[0].put_event(proposal)
        cluster.run(0.2)
        assert proposal.error or proposal.answer is not None
    for broker in (*EXTREMES, 99):
        if broker not in cluster.members:
            stop = controlled_shutdown.from_message(ControlledShutdownRequest(broker_id=broker, broker_epoch=-1))
            cluster.controllers[0].put_event(stop)
            cluster.run(0.2)
            assert stop.error is ErrorCode.BROKER_NOT_AVAILABLE
    cluster.run(1)
    cluster.create_topic("after", [[2, 1]])
    cluster.run(1)
    assert cluster.state("after", 0) is not None
    cluster.members[BrokerId(2)].kill()
    cluster.run(30)
    state = cluster.state("after", 0)
    assert state is not None and state.leader == 1
    assert TopicPartition(TopicName("after"), 0) in cluster.members[BrokerId(1)].states
