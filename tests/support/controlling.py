"""Controller requests to the only broker of a harness, built from the fields relevant to a test."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.api.request.sliced_response import whole
from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, TopicName, TopicPartition
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
from odradek.core.kernel.cluster_view import LeaderAndIsr
from support.in_memory import US, Harness

OTHER = BrokerId(2)
Request = BecomeLeaderOrFollower | UpdateMetadata | StopReplicas


def topic_id(name: str, generation: int = 0) -> Uuid:
    return Uuid(name.encode().ljust(15, b"-")[:15] + bytes([generation]))


def name_of(topic: str, index: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), index)


class Controlling:
    """The controller of a harness's broker; its requests arrive immediately, in order."""

    def __init__(self, harness: Harness, epoch: int = 1) -> None:
        self.harness = harness
        self.epoch = epoch
        self.broker_epoch = 10
        self.overrides: dict[TopicName, Mapping[str, str]] = {}

    def send(
        self, request: Request, *, epoch: int | None = None, broker_epoch: int | None = None
    ) -> dict[str, ErrorCode]:
        """Send a request; return the failures by partition. Raise Refused if it is refused."""
        sent = ControlRequest(
            US,
            self.broker_epoch if broker_epoch is None else broker_epoch,
            OTHER,
            self.epoch if epoch is None else epoch,
            request,
        )
        broker = self.harness.broker
        named = broker.controlled.names(sent)
        overrides = {name: self.overrides.get(name, {}) for name in named}
        return {
            str(one): code
            for one, code in whole(broker.apply_controller_request(sent, overrides, self.harness.now)).items()
        }

    def send_leader_and_isr(
        self,
        topic: str,
        *indexes: int,
        leader: BrokerId = US,
        epoch: int = 0,
        replicas: tuple[BrokerId, ...] = (US,),
        generation: int = 0,
        is_new: bool = False,
        of: Uuid | None = None,
    ) -> dict[str, ErrorCode]:
        """Send LeaderAndIsr for partitions of one topic."""
        state = LeaderAndIsr(leader, LeaderEpoch(epoch), replicas, controller_epoch=self.epoch)
        assigned = AssignedState(state, replicas, is_new=is_new)
        states = {name_of(topic, index): assigned for index in indexes or (0,)}
        return self.send(
            BecomeLeaderOrFollower(states, {TopicName(topic): topic_id(topic, generation) if of is None else of}, ())
        )

    def send_update_metadata(
        self,
        topics: Mapping[str, int],
        *,
        leader: BrokerId = US,
        epoch: int = 0,
        is_full: bool = False,
        brokers: tuple[BrokerId, ...] = (US,),
        generation: int = 0,
        of: Uuid | None = None,
    ) -> None:
        """Send UpdateMetadata for topics with these numbers of partitions."""
        state = LeaderAndIsr(leader, LeaderEpoch(epoch), (US,), controller_epoch=self.epoch)
        info = PartitionMetadata(state, (US,), ())
        known = self.harness.broker.view.brokers
        update = UpdateMetadata(
            {name_of(topic, index): info for topic, count in topics.items() for index in range(count)},
            {TopicName(topic): topic_id(topic, generation) if of is None else of for topic in topics},
            tuple(known[one] for one in brokers),
            is_full,
        )
        assert self.send(update) == {}

    def create_topic(self, topic: str, partitions: int = 1, **overrides: str) -> None:
        """Create a topic completely, as brokers and clients learn of it."""
        self.overrides[TopicName(topic)] = {key.replace("_", "."): value for key, value in overrides.items()}
        assert self.send_leader_and_isr(topic, *range(partitions), is_new=True) == {}
        self.send_update_metadata({topic: partitions})

    def delete_topic(self, topic: str, *indexes: int) -> dict[str, ErrorCode]:
        """Delete a topic; clients learn of it first."""
        self.send_update_metadata({topic: len(indexes) or 1}, leader=LEADER_DURING_DELETE)
        return self.send_stop_replica(topic, *indexes, deletes=True)

    def send_stop_replica(
        self, topic: str, *indexes: int, epoch: int = -2, deletes: bool = False
    ) -> dict[str, ErrorCode]:
        """Send StopReplica."""
        epochs = {name_of(topic, index): LeaderEpoch(epoch) for index in indexes or (0,)}
        return self.send(StopReplicas(epochs, deletes))

    def remove_leader(self, topic: str, *indexes: int, epoch: int) -> None:
        assert self.send_leader_and_isr(topic, *indexes, leader=NO_BROKER, epoch=epoch) == {}
