"""The metadata of a tree that several brokers share: each registers, and the controller alone changes topics.

Topics are written as Apache Kafka writes them under ZooKeeper: their assignment and configuration; the controller, who
watches them, elects the leaders.  A topic is marked for deletion, and goes when all of its replicas have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, SECOND_MS, BrokerId, LeaderEpoch, ProducerId, TimestampMs, TopicName
from odradek.base.uuids import Uuid
from odradek.coordination import claims, layout
from odradek.coordination.tree import (
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    SetData,
    TreeFailed,
)
from odradek.core.cluster import BrokerInfo, PartitionInfo, TopicInfo
from odradek.core.effects import Change, DeleteTopics
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.net.metadata import AnotherBroker, Membership, Metadata

LOOK_SECONDS = 0.1


class SharedMetadata(Metadata):
    """One broker's door to a tree that others have, too."""

    def prepare(self, broker_id: BrokerId | None, reserved_max: int, new_cluster_id: str) -> Membership:
        layout.ensure_startup_paths(self._tree)
        self._check_none_is_alone()
        return self._claimed(broker_id, reserved_max, new_cluster_id)

    def _check_none_is_alone(self) -> None:
        """Raises AnotherBroker for a broker that takes the tree for its own: it registers as controller at once."""
        controller = self._tree.exists(layout.CONTROLLER)
        for name in self._tree.children(layout.BROKER_IDS):
            stat = self._tree.exists(f"{layout.BROKER_IDS}/{name}")
            if stat is not None and controller is not None and stat.czxid == controller.czxid:
                raise AnotherBroker(detail=self._who_is_there(self._broker(name)))

    def enroll(self, broker: BrokerInfo, now: Callable[[], TimestampMs], patience_ms: int) -> int:
        """Registers the broker for as long as the session lives; returns its broker epoch.

        The node of an earlier session of this broker may still be there: that is waited for.  Raises AnotherBroker if
        the node's owner lives on.
        """
        path = layout.broker(broker.id)
        until = time.monotonic() + patience_ms / SECOND_MS
        while True:
            try:
                self._tree.create(path, self._registration(broker, now()), ephemeral=True)
            except NodeExists:
                stat = self._tree.exists(path)
                if stat is not None and stat.ephemeral_owner == self._tree.session_id:
                    return stat.czxid  # The answer to the creation was lost.
                if time.monotonic() > until:
                    raise AnotherBroker(detail=self._who_is_there(self._broker(str(broker.id)))) from None
                time.sleep(LOOK_SECONDS)
            else:
                stat = self._tree.exists(path)
                if stat is not None:
                    return stat.czxid

    def _who_is_there(self, other: BrokerInfo) -> str:
        at = " and ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in other.endpoints)
        return f"Broker {other.id}{f' at {at}' if at else ''} is running already with the metadata in {self._where}."

    def give_producer_ids(self, broker_id: BrokerId, broker_epoch: int) -> ProducerIdBlock:
        """Returns a block for a broker that asks this one as the controller.  Raises Refused."""
        self._check_controller()
        stat = self._tree.exists(layout.broker(broker_id))
        if stat is None:
            raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if stat.czxid != broker_epoch:
            raise Refused(ErrorCode.STALE_BROKER_EPOCH)
        block = claims.producer_ids(self._tree, broker_id)
        return ProducerIdBlock(ProducerId(block.first), ProducerId(block.last))

    def tell_directory_failed(self, broker_id: BrokerId) -> None:
        """Has the controller ask a broker which of its replicas it can't reach any more."""
        path = f"{layout.LOG_DIR_EVENTS}/{layout.LOG_DIR_EVENT_PREFIX}"
        self._tree.create(path, layout.encode_log_dir_event(broker_id), sequential=True)

    def _partition(self, name: TopicName, index: int, replicas: tuple[BrokerId, ...]) -> PartitionInfo:
        """Returns what the assignment says, without a look at the state: who leads is told by the controller."""
        return PartitionInfo(NO_BROKER, LeaderEpoch(0), replicas, replicas)

    def overrides(self, name: TopicName) -> Mapping[str, str]:
        """Returns what is set on a topic.  Raises BadZnodeError."""
        return self._configs(name)

    # Changing.

    def _check_controller(self) -> int:
        """Returns the version of /controller_epoch in which this broker was elected.  Raises Refused."""
        try:
            owner = self._tree.exists(layout.CONTROLLER)
        except SessionExpired:
            raise Refused(ErrorCode.NOT_CONTROLLER) from None
        if owner is None or owner.ephemeral_owner != self._tree.session_id:
            raise Refused(ErrorCode.NOT_CONTROLLER)
        epoch = self._tree.exists(layout.CONTROLLER_EPOCH)
        assert epoch is not None, "it was counted up by the election"
        return epoch.version

    def _write(self, operations: list[Operation]) -> None:
        if not operations:
            return
        try:
            self._tree.multi([Check(layout.CONTROLLER_EPOCH, self._check_controller()), *operations])
        except MultiFailed as failed:
            if failed.index == 0:
                raise Refused(ErrorCode.NOT_CONTROLLER) from failed
            raise

    def _refusal(self, name: TopicName, error: TreeFailed) -> Refused:
        if isinstance(error, SessionExpired):  # Who was the controller is not any more.
            return Refused(ErrorCode.NOT_CONTROLLER)
        return super()._refusal(name, error)

    def _after(self, change: Change, name: TopicName) -> TopicInfo | None:
        return None if isinstance(change, DeleteTopics) else self._topic(name)

    def _deletion(self, name: TopicName, topic_id: Uuid) -> list[Operation]:
        if self._read(layout.topic(name), layout.decode_topic).topic_id != topic_id:
            raise NoNode(layout.topic(name), "It is another topic of the same name.")
        mark = layout.delete_topic(name)
        return [] if self._tree.exists(mark) is not None else [Create(mark)]

    def _creation(self, topic: TopicInfo) -> list[Operation]:
        replicas = {index: info.replicas for index, info in enumerate(topic.partitions)}
        config = layout.config(layout.TOPIC_CONFIGS, topic.name)
        # A configuration may have been left by a topic of this name, or set before there was one.
        stat = self._tree.exists(config)
        data = layout.encode_config(topic.configs)
        mark = layout.delete_topic(topic.name)
        return [
            # Fails while a topic of this name is being deleted, though its own node may have gone.
            Create(mark),
            Delete(mark),
            Create(config, data) if stat is None else SetData(config, data, stat.version),
            Create(layout.topic(topic.name), layout.encode_topic(layout.TopicAssignment(replicas, topic.id))),
        ]

    def _partition_nodes(self, name: TopicName, index: int, info: PartitionInfo) -> list[Operation]:
        return []  # The controller makes them.
