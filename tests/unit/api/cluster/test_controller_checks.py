"""Controller requests with invalid parts: these are refused, and all others are applied."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.cluster import leader_and_isr, stop_replica, update_metadata
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import PARTITIONS_PER_TOPIC_MAX
from odradek.base.units import INT32_MAX, NO_BROKER, BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.controller.broker_request_batch import (
    LEADER_DURING_DELETE,
    AssignedState,
    BecomeLeaderOrFollower,
    ControlRequest,
    PartitionMetadata,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint, LeaderAndIsr
from odradek.wire.messages.leader_and_isr import LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataResponse
from support.between_brokers import BetweenBrokers, extend_table
from support.controlling import OTHER, name_of, topic_id
from support.in_memory import US, Harness

BAD_NAME, BAD = ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REQUEST
NAMES = ("../../evil", "", ".", "..", "a/b", "é", "\0", "x" * 250, "a b")
INDEXES = (-1, -INT32_MAX - 1, PARTITIONS_PER_TOPIC_MAX, INT32_MAX)
GOOD = name_of("good")
STATE = LeaderAndIsr(US, LeaderEpoch(3), (US,), controller_epoch=7)
ASSIGNED = AssignedState(STATE, (US,), is_new=True)
METADATA = PartitionMetadata(STATE, (US,), ())
TWICE, NEGATIVE = (US, OTHER, US), (US, BrokerId(-1))

BAD_ASSIGNED = (
    ASSIGNED._replace(replicas=TWICE),
    ASSIGNED._replace(replicas=NEGATIVE),
    ASSIGNED._replace(adding=TWICE),
    ASSIGNED._replace(removing=NEGATIVE),
    *(
        ASSIGNED._replace(state=state)
        for state in (
            STATE._replace(isr=TWICE),
            STATE._replace(isr=NEGATIVE),
            STATE._replace(isr=()),
            STATE._replace(isr=(OTHER,)),
            STATE._replace(leader=LEADER_DURING_DELETE),
            STATE._replace(leader=OTHER),
            STATE._replace(leader_epoch=LeaderEpoch(-1)),
            STATE._replace(partition_epoch=-1),
            STATE._replace(controller_epoch=-1),
            STATE._replace(recovery=2),
            STATE._replace(recovery=-1),
        )
    ),
)
BAD_METADATA = (
    METADATA._replace(replicas=TWICE),
    METADATA._replace(replicas=NEGATIVE),
    METADATA._replace(offline=TWICE),
    METADATA._replace(state=STATE._replace(isr=NEGATIVE)),
    METADATA._replace(state=STATE._replace(leader=BrokerId(-3))),
    METADATA._replace(state=STATE._replace(leader_epoch=LeaderEpoch(-3))),
)


@pytest.fixture
def between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BetweenBrokers:
    extend_table(monkeypatch)
    return BetweenBrokers(Harness(tmp_path))


def sent(request: BecomeLeaderOrFollower | UpdateMetadata | StopReplicas) -> ControlRequest:
    return ControlRequest(US, 10, OTHER, 7, request)


def odd_names() -> dict[TopicPartition, ErrorCode]:
    names = {TopicPartition(TopicName(name), 0): BAD_NAME for name in NAMES}
    return names | {name_of("t", index): BAD for index in INDEXES}


def ids_of(names: object) -> dict[TopicName, Uuid]:
    topics = sorted({one.topic for one in names})  # type: ignore[attr-defined]
    return {name: Uuid(bytes([number]) * 16) for number, name in enumerate(topics, 1)}


@pytest.mark.parametrize("version", range(8))
def test_invalid_replica_does_not_prevent_leading_the_others(
    between: BetweenBrokers, tmp_path: Path, version: int
) -> None:
    wrong = odd_names()
    odd = dict.fromkeys(wrong, ASSIGNED)
    for number, assigned in enumerate(BAD_ASSIGNED):
        if (version < 3 and (assigned.adding or assigned.removing)) or (version < 6 and assigned.state.recovery):
            continue
        odd[name_of("u", number)] = assigned
        wrong[name_of("u", number)] = BAD
    become = BecomeLeaderOrFollower({**odd, GOOD: ASSIGNED}, ids_of([*odd, GOOD]), ())
    message = leader_and_isr.to_message(sent(become), become, version, "PLAINTEXT")
    answer = between.request(message, version, LeaderAndIsrResponse)
    assert answer.error_code == ErrorCode.NONE
    assert leader_and_isr.errors(become, answer) == wrong
    assert list(between.harness.broker.partitions) == [GOOD]
    assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == ["good-0"]


@pytest.mark.parametrize("version", range(9))
def test_invalid_partition_does_not_hide_the_others_from_clients(between: BetweenBrokers, version: int) -> None:
    for bad in (
        *(((one, METADATA), code) for one, code in odd_names().items()),
        *(((name_of("u"), one), BAD) for one in BAD_METADATA),
    ):
        (name, metadata), code = bad
        if version < 4 and metadata.offline:
            continue
        partitions = {name: metadata, GOOD: METADATA}
        update = UpdateMetadata(partitions, ids_of(partitions), (), is_full=False)
        message = update_metadata.to_message(sent(update), update, version)
        assert between.request(message, version, UpdateMetadataResponse).error_code == code, bad
        assert list(between.harness.broker.view.topics) == [GOOD.topic]


@pytest.mark.parametrize("version", range(5))
def test_invalid_name_does_not_prevent_stopping_the_others(between: BetweenBrokers, version: int) -> None:
    become = BecomeLeaderOrFollower({GOOD: ASSIGNED}, ids_of([GOOD]), ())
    between.request(leader_and_isr.to_message(sent(become), become, 7, "PLAINTEXT"), 7, LeaderAndIsrResponse)
    stop = StopReplicas({**dict.fromkeys(odd_names(), LeaderEpoch(3)), GOOD: LeaderEpoch(3)}, deletes=True)
    message = stop_replica.to_message(sent(stop), stop, version)
    answer = between.request(message, version, StopReplicaResponse)
    assert stop_replica.errors(answer) == odd_names()
    assert len(answer.partition_errors) == len(stop.partitions)
    assert not between.harness.broker.partitions


def test_topic_with_the_id_of_another_is_refused(between: BetweenBrokers) -> None:
    both = {GOOD: ASSIGNED, name_of("thief"): ASSIGNED}
    become = BecomeLeaderOrFollower(both, dict.fromkeys((one.topic for one in both), topic_id("good")), ())
    between.request(leader_and_isr.to_message(sent(become), become, 7, "PLAINTEXT"), 7, LeaderAndIsrResponse)
    assert list(between.harness.broker.partitions) == [GOOD]


def test_an_isr_outside_of_the_replicas_is_accepted(between: BetweenBrokers) -> None:
    """Apache Kafka's controller sends it when a reassignment ends, before the ISR shrinks."""
    wide = ASSIGNED._replace(state=STATE._replace(isr=(US, OTHER)))
    led_by_none = ASSIGNED._replace(state=STATE._replace(leader=NO_BROKER))
    become = BecomeLeaderOrFollower({GOOD: wide, name_of("good", 1): led_by_none}, ids_of([GOOD]), ())
    message = leader_and_isr.to_message(sent(become), become, 7, "PLAINTEXT")
    answer = between.request(message, 7, LeaderAndIsrResponse)
    assert leader_and_isr.errors(become, answer) == {}


HERE = Endpoint("PLAINTEXT", "h", 9092)


@pytest.mark.parametrize(
    "odd",
    [
        BrokerInfo(BrokerId(-1), (HERE,)),
        BrokerInfo(US, (HERE._replace(port=1),)),
        *(BrokerInfo(BrokerId(5), (HERE._replace(port=port),)) for port in (0, -1, 65_536, INT32_MAX)),
        *(BrokerInfo(BrokerId(5), (HERE._replace(host=host),)) for host in ("", "a b", "\0", "a\nb", "x" * 256, "/")),
        BrokerInfo(BrokerId(5), (HERE, HERE)),
    ],
)
def test_unreachable_broker_is_left_out(between: BetweenBrokers, odd: BrokerInfo) -> None:
    update = UpdateMetadata({GOOD: METADATA}, ids_of([GOOD]), (BrokerInfo(US, (HERE,)), odd), is_full=False)
    message = update_metadata.to_message(sent(update), update, 8)
    assert between.request(message, 8, UpdateMetadataResponse).error_code == BAD
    assert between.harness.broker.view.brokers == {US: BrokerInfo(US, (HERE,))}
    assert list(between.harness.broker.view.topics) == [GOOD.topic]


@pytest.mark.parametrize("controller", [-1, -INT32_MAX - 1])
def test_controller_with_an_invalid_id_is_refused(between: BetweenBrokers, controller: int) -> None:
    update = UpdateMetadata({GOOD: METADATA}, ids_of([GOOD]), (), is_full=True)
    message = update_metadata.to_message(sent(update)._replace(controller=BrokerId(controller)), update, 8)
    assert between.request(message, 8, UpdateMetadataResponse).error_code == BAD
    become = BecomeLeaderOrFollower({GOOD: ASSIGNED}, ids_of([GOOD]), ())
    one = sent(become)._replace(controller=BrokerId(controller))
    assert (
        between.request(leader_and_isr.to_message(one, become, 7, "PLAINTEXT"), 7, LeaderAndIsrResponse).error_code
        == BAD
    )
    assert not between.handle_requests()
    with pytest.raises(Refused):
        between.harness.broker.leader(GOOD.topic, 0)
