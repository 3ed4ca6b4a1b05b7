"""Groups of the consumer protocol over a Harness."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from odradek.base.units import TopicName
from odradek.base.uuids import Uuid
from odradek.core.groups.consumer import ConsumerGroup
from odradek.wire.messages import consumer_group_describe as describing
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.in_memory import Harness

GROUP = "g"


class Consumers(Harness):
    """A broker with the group's coordinator, and the requests of members."""

    def __init__(self, directory: Path, **configs: str) -> None:
        settings = {"offsets_topic_num_partitions": "1", "group_consumer_assignment_interval_ms": "0"}
        super().__init__(directory, **settings | configs)
        self.request(FindCoordinatorRequest(key=GROUP, key_type=0), 3, FindCoordinatorResponse)
        self.settle()

    def create(self, topic: str, partitions: int = 1) -> Uuid:
        made = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        request = CreateTopicsRequest(topics=[made], timeout_ms=1000, validate_only=False)
        return Uuid(self.request(request, 7, CreateTopicsResponse).topics[0].topic_id)

    def join(self, member_id: str, *topics: str, version: int = 1, **more: object) -> ConsumerGroupHeartbeatResponse:
        fields: dict[str, object] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
        if "subscribed_topic_regex" not in more:
            fields["subscribed_topic_names"] = list(topics)
        return self.beat(member_id, 0, version=version, **fields | more)

    def beat(
        self, member_id: str, epoch: int, *, version: int = 1, group_id: str = GROUP, **more: object
    ) -> ConsumerGroupHeartbeatResponse:
        fields = {"rebalance_timeout_ms": -1} | more
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            **fields,  # type: ignore[arg-type]
        )
        return self.request(request, version, ConsumerGroupHeartbeatResponse)

    def describe(self, group_id: str = GROUP, version: int = 1) -> describing.DescribedGroup:
        request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
        (group,) = self.request(request, version, ConsumerGroupDescribeResponse).groups
        return group

    def group(self, group_id: str = GROUP) -> ConsumerGroup:
        group = self.broker.groups.group(group_id)
        assert isinstance(group, ConsumerGroup)
        return group

    def named(self, listed: list[TopicPartitions]) -> dict[TopicName, list[int]]:
        names: Mapping[Uuid, TopicName] = self.broker.view.names
        return {names[Uuid(one.topic_id)]: one.partitions for one in listed}


def owned(topic: Uuid, *partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic, partitions=list(partitions))]
