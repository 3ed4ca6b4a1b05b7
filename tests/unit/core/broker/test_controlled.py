"""Controller requests to a broker, and their effect on parked client requests."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from odradek.api.request.outcome import Encoded
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import ZERO_UUID
from odradek.core.controller.broker_request_batch import PartitionMetadata, UpdateMetadata
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, LeaderAndIsr
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.replication.replica_fetcher_manager import ReplicaFetch
from odradek.log.files.disk import RealDisk
from odradek.log.segment.checkpoints import read_topic_id
from odradek.record.record_batch import iter_batches
from odradek.record.records import decode
from odradek.wire.messages.fetch import FetchResponse, PartitionData
from odradek.wire.messages.join_group import JoinGroupResponse
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from odradek.wire.messages.produce import ProduceResponse
from support.asking import ALL, FETCH, LEADER, PRODUCE, fetch_request, produce_request
from support.controlling import OTHER, Controlling, name_of, topic_id
from support.in_memory import NOW_MS, US, Harness
from support.invariants import check
from support.members import OLD, coordinator, group_of, joining, stable

METADATA = 12
BEFORE_FOLLOWERS = 10  # The last version of Fetch that only leaders serve.


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


@pytest.fixture
def controller(harness: Harness) -> Controlling:
    controller = Controlling(harness)
    controller.create_topic("t")
    return controller


def produce(harness: Harness, value: bytes, acks: int = LEADER, topic: str = "t") -> Encoded | ParkedRequest[Encoded]:
    return harness.send(produce_request(topic, value, acks=acks, timestamp_ms=NOW_MS), PRODUCE)


def produce_error(harness: Harness, outcome: Encoded | ParkedRequest[Encoded]) -> ErrorCode:
    answer = harness.decoded(harness.finished(outcome), PRODUCE, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def wait_for(harness: Harness, offset: int, topic: str = "t") -> Encoded | ParkedRequest[Encoded]:
    return harness.send(fetch_request(topic, offset, wait_ms=30_000), FETCH)


def fetched_partition(
    harness: Harness, outcome: Encoded | ParkedRequest[Encoded], version: int = FETCH
) -> PartitionData:
    return harness.decoded(harness.finished(outcome), version, FetchResponse).responses[0].partitions[0]


def values(harness: Harness, topic: str = "t") -> list[bytes | None]:
    data = fetched_partition(harness, harness.send(fetch_request(topic, 0, wait_ms=0), FETCH))
    assert data.error_code == ErrorCode.NONE
    assert isinstance(data.records, memoryview)
    return [record.value for batch in iter_batches(data.records) for record in decode(batch)]


def metadata(harness: Harness, topic: str = "t") -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return harness.request(request, METADATA, MetadataResponse).topics[0]


# Topics are created and deleted.


def test_topic_is_served_after_the_metadata_update(harness: Harness) -> None:
    controller = Controlling(harness)
    assert controller.send_leader_and_isr("t", is_new=True) == {}
    assert metadata(harness).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "clients have not been told yet"
    controller.send_update_metadata({"t": 1})
    topic = metadata(harness)
    assert (topic.error_code, topic.topic_id) == (ErrorCode.NONE, topic_id("t"))
    assert [(one.leader_id, one.leader_epoch) for one in topic.partitions] == [(US, 0)]
    assert produce_error(harness, produce(harness, b"a")) is ErrorCode.NONE
    assert values(harness) == [b"a"]
    check(harness.broker)


def test_topic_configuration_applies_to_the_first_record(harness: Harness) -> None:
    Controlling(harness).create_topic("t", max_message_bytes="100")
    assert produce_error(harness, produce(harness, bytes(200))) is ErrorCode.MESSAGE_TOO_LARGE


def test_configuration_altered_before_the_metadata_update_applies(harness: Harness) -> None:
    controller = Controlling(harness)
    controller.send_leader_and_isr("t", 0, 1, is_new=True)
    controller.overrides[TopicName("t")] = {"max.message.bytes": "100"}
    controller.send_update_metadata({"t": 2})
    assert produce_error(harness, produce(harness, bytes(200))) is ErrorCode.MESSAGE_TOO_LARGE


def test_configuration_altered_while_logs_open_applies_to_them(harness: Harness) -> None:
    controller = Controlling(harness)
    controller.create_topic("t", segment_bytes="10000")
    harness.announces_topics = False
    harness.restart()
    controller.overrides[TopicName("t")] = {"segment.bytes": "20000"}
    assert controller.send_leader_and_isr("t", epoch=1) == {}
    controller.send_update_metadata({"t": 1}, epoch=1)
    assert harness.broker.partitions[name_of("t")].log.config.segment_bytes == 20_000


@pytest.mark.parametrize("is_updated_first", [True, False])
def test_recreated_topic_gets_its_own_configuration_after_missed_deletion(
    harness: Harness, is_updated_first: bool
) -> None:
    controller = Controlling(harness)
    controller.create_topic("t")
    controller.overrides[TopicName("t")] = {"max.message.bytes": "100"}
    if is_updated_first:
        controller.send_update_metadata({"t": 1}, generation=1, is_full=True)
        controller.send_leader_and_isr("t", generation=1, is_new=True)
    else:
        controller.send_leader_and_isr("t", generation=1, is_new=True)
        assert produce_error(harness, produce(harness, bytes(200))) is ErrorCode.MESSAGE_TOO_LARGE
        controller.send_update_metadata({"t": 1}, generation=1, is_full=True)
    assert produce_error(harness, produce(harness, bytes(200))) is ErrorCode.MESSAGE_TOO_LARGE


def test_topic_deletion_completes_parked_requests_and_removes_files(
    harness: Harness, controller: Controlling, tmp_path: Path
) -> None:
    waiting, writing = wait_for(harness, 0), produce(harness, b"a", ALL)
    assert isinstance(writing, ParkedRequest)
    assert controller.delete_topic("t") == {}
    assert produce_error(harness, writing) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched_partition(harness, waiting).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata(harness).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not (tmp_path / "t-0").exists()
    controller.create_topic("t")
    assert values(harness) == []
    check(harness.broker)


def test_full_metadata_update_removes_unnamed_topics(harness: Harness, controller: Controlling) -> None:
    controller.create_topic("u")
    controller.send_update_metadata({"u": 1}, is_full=True)
    assert set(harness.broker.view.topics) == {"u"}
    controller.send_update_metadata({}, is_full=True)
    assert not harness.broker.view.topics


def test_full_metadata_update_removes_no_partition_of_a_named_topic(harness: Harness, controller: Controlling) -> None:
    """A controller deposed since then announced one partition more; its successor has yet to find it."""
    controller.create_topic("u", 3)
    controller.send_update_metadata({"u": 2}, is_full=True)
    assert len(harness.broker.view.topics[TopicName("u")].partitions) == 3


def test_metadata_omits_partitions_without_controller_state(harness: Harness) -> None:
    """None of the replicas of the omitted partitions has been alive yet."""
    controller = Controlling(harness)
    controller.send_leader_and_isr("t", 2, is_new=True)
    partitions = {name_of("t", 2): PartitionMetadata(LeaderAndIsr(US, LeaderEpoch(0), (US,)), (US,), ())}
    us = (harness.broker.view.brokers[US],)
    assert controller.send(UpdateMetadata(partitions, {TopicName("t"): topic_id("t")}, us, is_full=False)) == {}
    assert [one.partition_index for one in metadata(harness).partitions] == [2]


# Leaders change.


def test_leader_kept_in_a_new_epoch_completes_parked_requests(harness: Harness, controller: Controlling) -> None:
    """The leader epoch also rises when only the ISR changes."""
    writing, waiting = produce(harness, b"a", ALL), wait_for(harness, 0)
    assert controller.send_leader_and_isr("t", epoch=3) == {}
    assert produce_error(harness, writing) is ErrorCode.NONE
    assert fetched_partition(harness, waiting).error_code == ErrorCode.NONE
    assert harness.broker.leader(TopicName("t"), 0).epoch == 3
    produce(harness, b"b")
    assert [epoch for epoch, _ in harness.broker.replica(TopicName("t"), 0).log.epochs.entries] == [0, 3]


def test_parked_requests_fail_when_the_leader_is_lost(harness: Harness, controller: Controlling) -> None:
    writing = produce(harness, b"a", ALL)
    request = fetch_request("t", 0, wait_ms=30_000)
    of_old = harness.send(request, BEFORE_FOLLOWERS)
    request.topics[0].partitions[0].current_leader_epoch = 0
    waiting = harness.send(request, FETCH)
    assert isinstance(writing, ParkedRequest)
    controller.remove_leader("t", epoch=1)
    assert produce_error(harness, writing) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched_partition(harness, of_old, BEFORE_FOLLOWERS).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched_partition(harness, waiting).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert produce_error(harness, produce(harness, b"b")) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    check(harness.broker)
    assert controller.send_leader_and_isr("t", epoch=2) == {}
    assert produce_error(harness, produce(harness, b"c")) is ErrorCode.NONE
    assert values(harness) == [b"a", b"c"], "what was written stays, though nobody was told so"


def test_parked_write_fails_if_this_broker_is_elected_again(harness: Harness, controller: Controlling) -> None:
    """The record may have been truncated between the two leaderships."""
    writing = produce(harness, b"a", ALL)
    controller.remove_leader("t", epoch=1)
    assert controller.send_leader_and_isr("t", epoch=2) == {}
    assert produce_error(harness, writing) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_with_another_leader_epoch_is_refused(harness: Harness, controller: Controlling) -> None:
    assert controller.send_leader_and_isr("t", epoch=5) == {}
    for epoch, code in ((4, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.NONE), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        request = fetch_request("t", 0, wait_ms=0)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        assert fetched_partition(harness, harness.send(request, FETCH)).error_code == code


def test_new_follower_fetches_from_the_leader(harness: Harness, controller: Controlling) -> None:
    both = (OTHER, US)
    assert controller.send_leader_and_isr("t", leader=OTHER, epoch=1, replicas=both) == {}
    assert produce_error(harness, produce(harness, b"a")) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert controller.send_leader_and_isr("u", leader=OTHER, replicas=both) == {}
    ((fetcher, fetch),) = harness.broker.fetchers.take_requests()
    assert fetcher.leader == OTHER
    assert isinstance(fetch, ReplicaFetch)
    assert [one.name for one in fetch.named] == [name_of("t"), name_of("u")]
    assert controller.send_leader_and_isr("t", epoch=2, replicas=both) == {}
    fetcher.failed(fetch, ErrorCode.NETWORK_EXCEPTION, harness.now)
    harness.pass_time(60_000)
    ((_, fetch),) = harness.broker.fetchers.take_requests()
    assert isinstance(fetch, ReplicaFetch)
    assert [one.name for one in fetch.named] == [name_of("u")], "what is led here is not fetched any more"


def test_replica_assigned_elsewhere_is_refused(harness: Harness, controller: Controlling) -> None:
    assert controller.send_leader_and_isr("x", replicas=(OTHER,)) == {"x-0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert name_of("x") not in harness.broker.partitions


def test_offline_replica_returns_a_storage_error(harness: Harness, controller: Controlling) -> None:
    harness.broker.partitions[name_of("t")].take_offline()
    assert controller.send_leader_and_isr("t", epoch=1) == {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}
    assert controller.send_stop_replica("t") == {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}
    assert produce_error(harness, produce(harness, b"a")) is ErrorCode.KAFKA_STORAGE_ERROR


def test_stopped_replica_keeps_its_records_until_it_restarts(harness: Harness, controller: Controlling) -> None:
    assert produce_error(harness, produce(harness, b"a", ALL)) is ErrorCode.NONE
    assert controller.send_stop_replica("t", epoch=0) == {}
    assert name_of("t") not in harness.broker.partitions
    assert produce_error(harness, produce(harness, b"b")) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert controller.send_leader_and_isr("t", epoch=1) == {}
    assert values(harness) == [b"a"]


def test_an_old_stop_does_not_end_a_newer_leadership(harness: Harness, controller: Controlling) -> None:
    assert controller.send_leader_and_isr("t", epoch=4) == {}
    assert controller.send_stop_replica("t", epoch=3) == {"t-0": ErrorCode.FENCED_LEADER_EPOCH}
    assert produce_error(harness, produce(harness, b"a")) is ErrorCode.NONE


def test_new_topic_id_does_not_reuse_the_log_of_the_old_topic(
    harness: Harness, controller: Controlling, tmp_path: Path
) -> None:
    assert produce_error(harness, produce(harness, b"old", ALL)) is ErrorCode.NONE
    writing = produce(harness, b"older", ALL)
    assert controller.send_leader_and_isr("t", generation=1, is_new=True) == {}
    controller.send_update_metadata({"t": 1}, generation=1)
    assert produce_error(harness, writing) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert values(harness) == []
    assert [path.name for path in tmp_path.glob("*-stray")], "the old log is set aside, not deleted"


def test_request_without_topic_id_uses_the_existing_log(
    harness: Harness, controller: Controlling, tmp_path: Path
) -> None:
    """Controllers before Kafka 2.8 send no topic ids."""
    writing = produce(harness, b"a", ALL)
    assert controller.send_leader_and_isr("t", epoch=1, of=ZERO_UUID) == {}
    assert produce_error(harness, writing) is ErrorCode.NONE
    assert values(harness) == [b"a"]
    assert not list(tmp_path.glob("*-stray"))


def test_topic_without_an_id_gets_one_from_a_newer_controller(harness: Harness, tmp_path: Path) -> None:
    """A controller of Kafka 2.8 or later adds the id in the same leader epoch."""
    controller = Controlling(harness)
    controller.overrides[TopicName("t")] = {"max.message.bytes": "1000"}
    assert controller.send_leader_and_isr("t", is_new=True, of=ZERO_UUID) == {}
    controller.send_update_metadata({"t": 1}, of=ZERO_UUID)
    assert produce_error(harness, produce(harness, b"a", ALL)) is ErrorCode.NONE
    assert not (tmp_path / "t-0" / "partition.metadata").exists()
    writing = produce(harness, b"b", ALL)
    controller.epoch += 1
    assert controller.send_leader_and_isr("t") == {}
    controller.send_update_metadata({"t": 1})
    assert produce_error(harness, writing) is ErrorCode.NONE
    assert read_topic_id(RealDisk(), str(tmp_path / "t-0")) == topic_id("t")
    assert metadata(harness).topic_id == topic_id("t")
    assert produce_error(harness, produce(harness, bytes(2000))) is ErrorCode.MESSAGE_TOO_LARGE
    assert harness.broker.view.topics[TopicName("t")].configs == {"max.message.bytes": "1000"}
    assert controller.send_leader_and_isr("t") == {"t-0": ErrorCode.STALE_CONTROLLER_EPOCH}, "it has one by now"
    assert values(harness) == [b"a", b"b"]
    check(harness.broker)


# The sender of a request.


def test_a_deposed_controller_is_refused(harness: Harness, controller: Controlling) -> None:
    controller.epoch = 5
    assert controller.send_leader_and_isr("t", epoch=1) == {}
    controller.epoch = 4
    for send in (
        lambda: controller.send_leader_and_isr("t", epoch=2),
        lambda: controller.send_stop_replica("t"),
        lambda: controller.send_update_metadata({}, is_full=True),
    ):
        with pytest.raises(Refused, match="STALE_CONTROLLER_EPOCH"):
            send()
    assert harness.broker.leader(TopicName("t"), 0).epoch == 1
    assert "t" in harness.broker.view.topics


def test_request_for_an_older_broker_epoch_is_refused(harness: Harness, controller: Controlling) -> None:
    harness.broker.controlled.broker_epoch = 20
    update = UpdateMetadata({}, {}, (), is_full=True)
    for epoch in (20, 21, -1):  # A newer epoch is also ours; brokers before 2.2 have none.
        assert controller.send(update, broker_epoch=epoch) == {}
    for epoch in (19, 1, 0, -2, -(2**63)):
        with pytest.raises(Refused, match="STALE_BROKER_EPOCH"):
            controller.send(update, broker_epoch=epoch)
    controller.epoch -= 1  # Also from a deposed controller: Apache Kafka checks the broker epoch first.
    with pytest.raises(Refused, match="STALE_BROKER_EPOCH"):
        controller.send(update, broker_epoch=19)
    with pytest.raises(Refused, match="STALE_CONTROLLER_EPOCH"):
        controller.send(update, broker_epoch=20)


@pytest.mark.slow
def test_late_and_repeated_states_change_nothing(harness: Harness) -> None:
    """In any order of arrival, the newest leader epoch of each partition is kept."""
    for seed in range(30):
        random, topic = Random(seed), f"t{seed}"
        controller = Controlling(harness)
        states = [(index, epoch, random.choice([US, BrokerId(-1)])) for index in range(3) for epoch in range(6)]
        newest = {index: leader for index, epoch, leader in states if epoch == 5}
        random.shuffle(states)
        known = dict.fromkeys(range(3), -1)
        for index, epoch, leader in states + random.choices(states, k=6):
            stale = {f"{topic}-{index}": ErrorCode.STALE_CONTROLLER_EPOCH} if epoch <= known[index] else {}
            assert controller.send_leader_and_isr(topic, index, leader=leader, epoch=epoch) == stale, seed
            known[index] = max(known[index], epoch)
            check(harness.broker)
        for index, leader in newest.items():
            partition = harness.broker.partitions[name_of(topic, index)]
            assert (partition.leading is not None) == (leader == US)


# Coordinators.


def test_moved_coordinator_rejects_members_and_returns_with_their_group(tmp_path: Path) -> None:
    harness = coordinator(tmp_path)
    joined = stable(harness)
    waiting = harness.send(joining(), OLD)  # Until the first member joins again.
    controller, shards = Controlling(harness), harness.broker.groups.shards
    topic = harness.broker.view.topics[CONSUMER_OFFSETS]
    shard, all_indexes = shards.find_shard("g"), range(len(topic.partitions))
    assert controller.send_leader_and_isr(topic.name, *all_indexes, epoch=1, of=topic.id) == {}
    assert shards.find_shard("g") is shard, "the epoch rises, and nothing is loaded again"
    assert controller.send_leader_and_isr(topic.name, *all_indexes, leader=NO_BROKER, epoch=2, of=topic.id) == {}
    with pytest.raises(Refused, match="NOT_COORDINATOR"):
        shards.find_shard("g")
    answer = harness.decoded(harness.finished(waiting), OLD, JoinGroupResponse)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert controller.send_leader_and_isr(topic.name, *all_indexes, epoch=3, of=topic.id) == {}
    assert shards.find_shard("g") is not shard
    assert joined.member_id in {member.id for member in group_of(harness).members}
    check(harness.broker)
