"""The metadata of a broker that is alone: a cluster of one, which nobody else may join."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from odradek.base.units import TimestampMs
from odradek.coordination import claims
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import (
    Create,
    MultiFailed,
    NoNode,
    Operation,
    TreeFailed,
    Unavailable,
    ensure_paths,
)
from odradek.core.kernel.cluster_view import BrokerInfo, PartitionInfo, TopicInfo
from odradek.net.cluster.tree_metadata import AnotherBroker, Metadata, named

REGISTRATIONS_MAX = 3  # Another broker may come and go meanwhile.


class LoneMetadata(Metadata):
    """The one broker's door to its tree."""

    def _check_may_join(self) -> None:
        """Raises AnotherBroker if one is alive; if one was killed, its session has ended."""
        for name in self._tree.children(layout.BROKER_IDS):
            with suppress(NoNode):
                raise AnotherBroker(detail=self._who_is_there(self.broker_named(name)))

    def _who_is_there(self, other: BrokerInfo) -> str:
        return (
            f"{named(other)} is running with the metadata in {self.where}, "
            "and several brokers can't share it yet: stop that one, or set metadata.log.dir to another folder."
        )

    def enroll(self, broker: BrokerInfo, now: Callable[[], TimestampMs], patience_ms: int) -> int:
        """Registers the broker, and as the controller, for as long as its session lives; returns its broker epoch.

        Of two that start at a time one is the first to make these znodes; the other gets AnotherBroker.
        """
        ensure_paths(self._tree, [layout.CONTROLLER_EPOCH])
        failure: TreeFailed | None = None
        for _ in range(REGISTRATIONS_MAX):
            self._check_may_join()
            registration = Create(layout.broker(broker.id), self._registration(broker, now()), ephemeral=True)
            try:
                # In one, by which brokers of a cluster see that this one takes the tree for its own.
                self._tree.multi([registration, *claims.controller(self._tree, broker.id, now())])
            except MultiFailed as failed:
                failure = failed.error
            else:
                registered = self._tree.exists(layout.broker(broker.id))
                assert registered is not None, "it lives as long as the session"
                return registered.czxid
        raise Unavailable(detail=f"Broker {broker.id} can't be registered in {self.where}: {failure}.") from failure

    @property
    def had_topics(self) -> bool:
        """True if the tree has topics, or had some: then logs of topics it does not know are not to be adopted."""
        return self._tree.get(layout.TOPICS)[1].cversion > 0

    def adopt(self, topics: Iterable[TopicInfo]) -> None:
        """Adds topics whose logs another broker wrote, all or none, to a tree that never had one."""
        assert not self.had_topics, "the last one that was deleted could come back"
        self._tree.check_room()
        self._tree.multi([operation for topic in topics for operation in _adoption(topic)])


def _adoption(topic: TopicInfo) -> list[Operation]:
    """Returns the creation of all the topic's znodes, parents first: the leaders' epochs go on as they were."""
    name = topic.name
    replicas = {index: info.replicas for index, info in enumerate(topic.partitions)}
    operations: list[Operation] = [
        Create(layout.config(layout.TOPIC_CONFIGS, name), layout.encode_config(topic.configs)),
        Create(layout.topic(name), layout.encode_topic(layout.TopicAssignment(replicas, topic.id))),
        Create(layout.partitions(name)),
    ]
    for index, info in enumerate(topic.partitions):
        state = layout.encode_partition_state(_state(info))
        operations += [Create(layout.partition(name, index)), Create(layout.partition_state(name, index), state)]
    return operations


def _state(info: PartitionInfo) -> layout.PartitionState:
    return layout.PartitionState(info.leader, info.leader_epoch, 0, info.isr)
