"""The cluster's metadata as this broker reads and writes it: translates between the core's values and the tree.

All calls block; changes are made in a thread.  Each topic is changed by one multi, so that it is there whole or not at
all, and another broker that was faster shows as NodeExists or BadVersion.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, ProducerId, TimestampMs, TopicName
from odradek.base.uuids import Uuid
from odradek.coordination import claims, layout
from odradek.coordination.fields import BadZnodeError
from odradek.coordination.tree import (
    Create,
    Delete,
    DiskBroken,
    MultiFailed,
    NodeExists,
    NoNode,
    NoRoom,
    Operation,
    SetData,
    Tree,
    TreeFailed,
    Unavailable,
    children_if_there,
    ensure_paths,
)
from odradek.core.cluster import BrokerInfo, ClusterView, PartitionInfo, TopicInfo
from odradek.core.effects import Change, Changed, CreateTopics, DeleteTopics, Growth, GrowTopics, TakeProducerIds
from odradek.core.transactions.producer_ids import ProducerIdBlock

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

# No broker gave out a greater id: its producer made it up, and to begin above it would leave none.
PRODUCER_ID_GIVEN_MAX = 1 << 62
REGISTRATIONS_MAX = 3  # Another broker may come and go meanwhile.


class Membership(NamedTuple):
    """This broker's id and the cluster's."""

    broker_id: BrokerId
    cluster_id: str


class AnotherBroker(Unavailable):
    """A broker that is alive has this tree; the text is one sentence for a person."""


class Metadata:
    """One broker's door to the tree.  Methods raise TreeFailed when the tree does, BadZnodeError for foreign data."""

    def __init__(
        self, tree: Tree, where: str = "metadata.log.dir", registration_version: int = layout.WITH_FEATURES
    ) -> None:
        """`registration_version` is that in which a broker registers."""
        self._tree = tree
        self._where = where  # Named in messages.
        self._registration_version = registration_version
        self._cluster_id = ""
        self._controller_epoch = 0

    # Joining and leaving.

    def prepare(self, broker_id: BrokerId | None, reserved_max: int, new_cluster_id: str) -> Membership:
        """Makes what is missing in the tree; returns the broker's id and the cluster's.

        Without a broker id the next one above `reserved_max` is taken; without a cluster, `new_cluster_id` founds it.
        Raises AnotherBroker.
        """
        layout.ensure_startup_paths(self._tree)
        self._check_alone()
        return self._claimed(broker_id, reserved_max, new_cluster_id)

    def _claimed(self, broker_id: BrokerId | None, reserved_max: int, new_cluster_id: str) -> Membership:
        self._cluster_id = claims.cluster_id(self._tree, new_cluster_id)
        if broker_id is None:
            broker_id = claims.broker_id(self._tree, reserved_max)
        return Membership(broker_id, self._cluster_id)

    def register(self, broker: BrokerInfo, now: TimestampMs) -> None:
        """Registers the broker in the cluster, and as its controller, for as long as this broker's session lives.

        Of two that start at a time one is the first to make these znodes; the other gets AnotherBroker.
        """
        ensure_paths(self._tree, [layout.CONTROLLER_EPOCH])
        failure: TreeFailed | None = None
        for _ in range(REGISTRATIONS_MAX):
            self._check_alone()
            data, stat = self._tree.get(layout.CONTROLLER_EPOCH)
            self._controller_epoch = (layout.decode_controller_epoch(data) if data else 0) + 1
            try:
                self._tree.multi(
                    [
                        Create(layout.broker(broker.id), self._registration(broker, now), ephemeral=True),
                        Create(
                            layout.CONTROLLER,
                            layout.encode_controller(layout.Controller(broker.id, now)),
                            ephemeral=True,
                        ),
                        SetData(
                            layout.CONTROLLER_EPOCH,
                            layout.encode_controller_epoch(self._controller_epoch),
                            stat.version,
                        ),
                    ]
                )
            except MultiFailed as failed:
                failure = failed.error
            else:
                return
        raise Unavailable(detail=f"Broker {broker.id} can't be registered in {self._where}: {failure}.") from failure

    def _registration(self, broker: BrokerInfo, now: TimestampMs) -> bytes:
        return layout.encode_broker(broker, now, version=self._registration_version)

    def _check_alone(self) -> None:
        """Raises AnotherBroker if one is alive; if one was killed, its session has ended."""
        for name in self._tree.children(layout.BROKER_IDS):
            with suppress(NoNode):
                raise AnotherBroker(detail=self._who_is_there(self._broker(name)))

    def _who_is_there(self, other: BrokerInfo) -> str:
        at = " and ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in other.endpoints)
        return (
            f"Broker {other.id}{f' at {at}' if at else ''} is running with the metadata in {self._where}, "
            "and several brokers can't share it yet: stop that one, or set metadata.log.dir to another folder."
        )

    def leave(self) -> None:
        self._tree.close()

    # Reading.

    def view(self) -> ClusterView:
        """Returns the cluster as the tree has it now; tells of topics that can't be read."""
        brokers = {broker.id: broker for broker in map(self._broker, self._tree.children(layout.BROKER_IDS))}
        topics, unreadable = self._all_topics()
        for name, why in unreadable.items():
            _LOG.error("topic %s is not served: %s", name, why)
        return ClusterView(self._cluster_id, self._controller(), brokers, topics.values(), unreadable)

    def topics(self) -> dict[TopicName, TopicInfo]:
        """Returns all topics but those that can't be read: one broken znode costs its topic, and not the others."""
        return self._all_topics()[0]

    def _all_topics(self) -> tuple[dict[TopicName, TopicInfo], dict[TopicName, str]]:
        """Returns the topics, and why each of the others can't be read."""
        topics: dict[TopicName, TopicInfo] = {}
        unreadable: dict[TopicName, str] = {}
        for name in map(TopicName, self._tree.children(layout.TOPICS)):
            try:
                topic = self._topic(name)
            except BadZnodeError as bad:
                unreadable[name] = str(bad)
                continue
            if topic is not None:
                topics[name] = topic
        return topics, unreadable

    def _controller(self) -> BrokerId:
        try:
            return self._read(layout.CONTROLLER, layout.decode_controller).broker
        except NoNode:
            return NO_BROKER

    def _broker(self, name: str) -> BrokerInfo:
        broker_id = layout.broker_id(name)
        return self._read(layout.broker(broker_id), partial(layout.decode_broker, broker_id)).broker

    def _topic(self, name: TopicName) -> TopicInfo | None:
        try:
            assignment = self._read(layout.topic(name), layout.decode_topic)
        except NoNode:
            return None
        partitions = (
            self._partition(name, index, replicas) for index, replicas in sorted(assignment.partitions.items())
        )
        return TopicInfo(name, assignment.topic_id, tuple(partitions), self._configs(name))

    def _partition(self, name: TopicName, index: int, replicas: tuple[BrokerId, ...]) -> PartitionInfo:
        try:
            state = self._read(layout.partition_state(name, index), layout.decode_partition_state)
        except NoNode:  # The controller has not made it yet.
            return PartitionInfo(replicas[0], LeaderEpoch(0), replicas, replicas)
        return PartitionInfo(state.leader, state.leader_epoch, replicas, state.isr)

    def _configs(self, name: TopicName) -> Mapping[str, str]:
        try:
            return self._read(layout.config(layout.TOPIC_CONFIGS, name), layout.decode_config)
        except NoNode:
            return {}

    def _read(self, path: str, decode: Callable[[bytes], T]) -> T:
        return _decoded(path, decode, self._tree.get(path)[0])

    # Changing.

    def change(self, change: Change) -> Changed:
        """Carries out a change, topic by topic; a topic's refusal is in the result and never raised."""
        changed: dict[TopicName, TopicInfo | None] = {}
        refused: dict[TopicName, Refused] = {}
        for name, operations in self._operations(change).items():
            try:
                self._write(operations())
                changed[name] = self._after(change, name)
            except MultiFailed as failed:
                refused[name] = self._refusal(name, failed.error)
            except TreeFailed as failed:
                refused[name] = self._refusal(name, failed)
            except BadZnodeError as bad:
                _LOG.error("topic %s can't be changed: %s", name, bad)
                refused[name] = Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(bad))
            except Refused as refusal:
                refused[name] = refusal
        return Changed(change.token, changed, refused)

    def _write(self, operations: list[Operation]) -> None:
        self._tree.multi(operations)

    def _refusal(self, name: TopicName, error: TreeFailed) -> Refused:
        return _refusal(name, error)

    def _after(self, change: Change, name: TopicName) -> TopicInfo | None:
        """Returns what a change has made of a topic."""
        return self._topic(name)

    def _operations(self, change: Change) -> Mapping[TopicName, Callable[[], list[Operation]]]:
        """Returns each topic's operations apart, since one that is gone must not keep the others from being changed."""
        match change:
            case CreateTopics():
                return {topic.name: partial(self._creation, topic) for topic in change.topics}
            case GrowTopics():
                return {name: partial(self._growth, name, growth) for name, growth in change.topics.items()}
            case DeleteTopics():
                return {name: partial(self._deletion, name, topic_id) for name, topic_id in change.topics.items()}

    def _growth(self, name: TopicName, growth: Growth) -> list[Operation]:
        data, stat = self._tree.get(layout.topic(name))
        self._topic(name)  # Raises now, and not when it has grown and is read again.
        assignment = _decoded(layout.topic(name), layout.decode_topic, data)
        first = len(assignment.partitions)
        # If it grew after this was planned, the first of them exist already.
        added = growth.added[first - growth.first :] if first >= growth.first else ()
        if not added:
            raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic '{name}' has {first} partitions by now.")
        more = {first + place: info.replicas for place, info in enumerate(added)}
        grown = assignment._replace(partitions={**assignment.partitions, **more})
        operations: list[Operation] = [SetData(layout.topic(name), layout.encode_topic(grown), stat.version)]
        for place, info in enumerate(added):
            operations += self._partition_nodes(name, first + place, info)
        return operations

    def _deletion(self, name: TopicName, topic_id: Uuid) -> list[Operation]:
        """Returns the topic's deletion, children first."""
        if self._read(layout.topic(name), layout.decode_topic).topic_id != topic_id:
            raise NoNode(layout.topic(name), "It is another topic of the same name.")
        partitions = layout.partitions(name)
        operations: list[Operation] = []
        for index in map(int, children_if_there(self._tree, partitions)):
            operations += [Delete(layout.partition_state(name, index)), Delete(layout.partition(name, index))]
        if self._tree.exists(partitions) is not None:
            operations.append(Delete(partitions))
        operations.append(Delete(layout.topic(name)))
        if self._tree.exists(layout.config(layout.TOPIC_CONFIGS, name)) is not None:
            operations.append(Delete(layout.config(layout.TOPIC_CONFIGS, name)))
        return operations

    @property
    def had_topics(self) -> bool:
        """True if the tree has topics, or had some: then logs of topics it does not know are not to be adopted."""
        return self._tree.get(layout.TOPICS)[1].cversion > 0

    def adopt(self, topics: Iterable[TopicInfo]) -> None:
        """Adds topics whose logs another broker wrote, all or none, to a tree that never had one."""
        assert not self.had_topics, "the last one that was deleted could come back"
        self._tree.multi([operation for topic in topics for operation in self._creation(topic)])

    def take_producer_ids(self, broker_id: BrokerId, effect: TakeProducerIds) -> ProducerIdBlock | None:
        """Returns a block that nobody had, beginning at `effect.at_least` or later; None if the tree can't give one."""
        at_least = effect.at_least if effect.at_least <= PRODUCER_ID_GIVEN_MAX else 0
        try:
            block = claims.producer_ids(self._tree, broker_id, at_least)
        except TreeFailed:
            return None
        return ProducerIdBlock(ProducerId(block.first), ProducerId(block.last))

    def _creation(self, topic: TopicInfo) -> list[Operation]:
        """Returns the creation of all the topic's znodes, parents first."""
        name = topic.name
        replicas = {index: info.replicas for index, info in enumerate(topic.partitions)}
        operations: list[Operation] = [
            Create(layout.config(layout.TOPIC_CONFIGS, name), layout.encode_config(topic.configs)),
            Create(layout.topic(name), layout.encode_topic(layout.TopicAssignment(replicas, topic.id))),
            Create(layout.partitions(name)),
        ]
        for index, info in enumerate(topic.partitions):
            operations += self._partition_nodes(name, index, info)
        return operations

    def _partition_nodes(self, name: TopicName, index: int, info: PartitionInfo) -> list[Operation]:
        state = layout.PartitionState(info.leader, info.leader_epoch, self._controller_epoch, info.isr)
        return [
            Create(layout.partition(name, index)),
            Create(layout.partition_state(name, index), layout.encode_partition_state(state)),
        ]


def _decoded(path: str, decode: Callable[[bytes], T], data: bytes) -> T:
    """Returns the content of a znode.  Raises BadZnodeError, which names the znode."""
    try:
        return decode(data)
    except BadZnodeError as bad:
        raise BadZnodeError(f"{path} can't be read: {bad}") from bad


def _refusal(name: TopicName, error: TreeFailed) -> Refused:
    if isinstance(error, NodeExists):
        return Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if isinstance(error, NoNode):
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    if isinstance(error, NoRoom | DiskBroken):
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata could not be changed: {error}")
