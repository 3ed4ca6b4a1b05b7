"""Controller requests to one broker, in worlds without a controller, and their execution.

a start   ──> UpdateMetadata of all topics ──> LeaderAndIsr
a change  ──> LeaderAndIsr ──> UpdateMetadata                        for created and extended topics
         └──> UpdateMetadata without leaders ──> StopReplica         for deleted topics
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.base.units import TimestampMs, TopicName, TopicPartition
from odradek.core.broker.broker import Broker
from odradek.core.broker.effects import Changed
from odradek.core.broker.log_creation import make_replicas
from odradek.core.broker.metadata_update import Overrides
from odradek.core.controller.broker_request_batch import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    AssignedState,
    BecomeLeaderOrFollower,
    ControlRequest,
    PartitionMetadata,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.kernel.cluster_view import LeaderAndIsr, PartitionInfo, TopicInfo
from odradek.core.kernel.moment import Moment

Request = BecomeLeaderOrFollower | UpdateMetadata | StopReplicas
Partitions = dict[TopicPartition, PartitionInfo]


class PreparedRequest(NamedTuple):
    """One request, and the configs of its topics."""

    sent: ControlRequest
    overrides: Overrides

    @property
    def makes_files(self) -> bool:
        return isinstance(self.sent.request, BecomeLeaderOrFollower)

    def make_files(self, broker: Broker, now: TimestampMs) -> None:
        """Create the files of new replicas, as a thread does before the request is applied."""
        if isinstance(self.sent.request, BecomeLeaderOrFollower):
            make_replicas(broker, self.sent.request, self.overrides, now)

    def apply(self, broker: Broker, now: Moment) -> Generator[None, None, None]:
        """Apply the request to the broker, in slices; only its disk may cause failures."""
        errors = yield from broker.apply_controller_request(self.sent, self.overrides, now)
        assert set(errors.values()) <= {ErrorCode.KAFKA_STORAGE_ERROR}, errors


class OneController:
    """The controller of one broker process. `epoch` is that of both, and increases with each start."""

    def __init__(self, broker: Broker, epoch: int) -> None:
        self._broker = broker
        self._epoch = epoch
        broker.controlled.broker_epoch = epoch

    # The requests of the controller.

    def initial_requests(self, topics: Iterable[TopicInfo]) -> list[PreparedRequest]:
        """Return the requests to a broker that has started."""
        by_name = {topic.name: topic for topic in topics}
        partitions = _partitions(by_name.values())
        requests: list[Request] = [self._update(by_name, partitions, is_full=True)]
        return self._prepared(by_name, [*requests, *self._become(by_name, partitions, are_new=False)])

    def requests_for(self, topics: Mapping[TopicName, TopicInfo | None]) -> list[PreparedRequest]:
        """Return the requests for a change, in which None is a deleted topic."""
        existing = {name: topic for name, topic in topics.items() if topic is not None}
        added = _partitions(existing.values(), self._broker.view.topics)
        requests: list[Request] = []
        if added:
            requests += self._become(existing, added, are_new=True)
            requests.append(self._update(existing, added))
        known = self._broker.view.topics
        deleted = {name: known[name] for name, topic in topics.items() if topic is None and name in known}
        if deleted:
            requests += self._delete(deleted)
        return self._prepared(existing, requests)

    def _become(
        self, topics: Mapping[TopicName, TopicInfo], partitions: Partitions, *, are_new: bool
    ) -> Iterator[BecomeLeaderOrFollower]:
        held = {name: info for name, info in partitions.items() if self._broker.id in info.replicas}
        if held:
            states = {
                name: AssignedState(self._state(info), info.replicas, is_new=are_new) for name, info in held.items()
            }
            ids = {name.topic: topics[name.topic].id for name in held}
            yield BecomeLeaderOrFollower(states, ids, tuple(self._broker.view.brokers.values()))

    def _update(
        self, topics: Mapping[TopicName, TopicInfo], partitions: Partitions, *, is_full: bool = False
    ) -> UpdateMetadata:
        metadata = {
            name: PartitionMetadata(self._state(info), info.replicas, info.offline) for name, info in partitions.items()
        }
        ids = {name: topic.id for name, topic in topics.items()}
        return UpdateMetadata(metadata, ids, tuple(self._broker.view.brokers.values()), is_full)

    def _delete(self, topics: Mapping[TopicName, TopicInfo]) -> Iterator[Request]:
        partitions = _partitions(topics.values())
        led_by_none = {name: info._replace(leader=LEADER_DURING_DELETE) for name, info in partitions.items()}
        yield self._update(topics, led_by_none)
        held = [name for name, info in partitions.items() if self._broker.id in info.replicas]
        yield StopReplicas(dict.fromkeys(held, EPOCH_DURING_DELETE), deletes=True)

    def _state(self, info: PartitionInfo) -> LeaderAndIsr:
        return LeaderAndIsr(
            info.leader, info.leader_epoch, info.isr, controller_epoch=self._epoch, partition_epoch=info.partition_epoch
        )

    def _prepared(self, topics: Mapping[TopicName, TopicInfo], requests: Iterable[Request]) -> list[PreparedRequest]:
        broker = self._broker
        epoch = max(self._epoch, broker.controlled.controller_epoch)  # A test may act as another controller.
        overrides = {name: topic.configs for name, topic in topics.items()}
        return [
            PreparedRequest(ControlRequest(broker.id, self._epoch, broker.id, epoch, one), overrides)
            for one in requests
        ]

    # Without threads or a scheduler in between.

    def begin(self, topics: Iterable[TopicInfo], now: Moment) -> Generator[None, None, None]:
        """Send the requests to a broker that has started, in slices."""
        yield from self._apply_all(self.initial_requests(topics), now)

    def apply_change(self, changed: Changed, now: Moment) -> Generator[None, None, None]:
        """Send the requests for a change, in slices, and then complete the waiting request."""
        yield from self._apply_all(self.requests_for(changed.topics), now)
        self._broker.on_event(changed, now)

    def _apply_all(self, requests: Iterable[PreparedRequest], now: Moment) -> Generator[None, None, None]:
        for one in requests:
            one.make_files(self._broker, now.wall)
            yield from one.apply(self._broker, now)


def _partitions(topics: Iterable[TopicInfo], known: Mapping[TopicName, TopicInfo] | None = None) -> Partitions:
    """Return the partitions of topics, except the known ones."""
    partitions: Partitions = {}
    for topic in topics:
        before = (known or {}).get(topic.name)
        first = len(before.partitions) if before is not None and before.id == topic.id else 0
        for index in range(first, len(topic.partitions)):
            partitions[TopicPartition(topic.name, index)] = topic.partitions[index]
    return partitions
