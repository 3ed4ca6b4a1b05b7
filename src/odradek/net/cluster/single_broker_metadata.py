"""Metadata of a lone broker: a cluster of one that no other broker may join."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from odradek.base.units import TimestampMs
from odradek.coordination import id_claims
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
from odradek.net.cluster.tree_metadata import AnotherBroker, Metadata, describe_broker

REGISTRATIONS_MAX = 3  # Another broker may register and leave in between.


class SingleBrokerMetadata(Metadata):
    """Access of the only broker to its tree."""

    def _check_may_join(self) -> None:
        """Raise AnotherBroker if a broker is alive; the session of a killed broker has expired."""
        for name in self._tree.children(layout.BROKER_IDS):
            with suppress(NoNode):
                raise AnotherBroker(detail=self._in_use_message(self.broker_named(name)))

    def _in_use_message(self, other: BrokerInfo) -> str:
        return (
            f"{describe_broker(other)} is already using the metadata in {self.where}, "
            "which only one broker can use: stop that broker, or set metadata.log.dir to another directory."
        )

    def register_broker(self, broker: BrokerInfo, now: Callable[[], TimestampMs], timeout_ms: int) -> int:
        """Register the broker, also as the controller, while its session lives; return its broker epoch.

        If two brokers start simultaneously, the first to create these znodes succeeds; the other gets AnotherBroker.
        """
        ensure_paths(self._tree, [layout.CONTROLLER_EPOCH])
        failure: TreeFailed | None = None
        for _ in range(REGISTRATIONS_MAX):
            self._check_may_join()
            registration = Create(layout.broker(broker.id), self._registration(broker, now()), ephemeral=True)
            try:
                # One multi shows brokers of a cluster that this one claims the tree for itself.
                self._tree.multi([registration, *id_claims.controller(self._tree, broker.id, now())])
            except MultiFailed as failed:
                failure = failed.error
            else:
                registered = self._tree.exists(layout.broker(broker.id))
                assert registered is not None, "the registration exists until the session expires"
                return registered.czxid
        raise Unavailable(detail=f"Failed to register broker {broker.id} in {self.where}: {failure}.") from failure

    @property
    def had_topics(self) -> bool:
        """Return whether the tree has or had topics; if so, logs of unknown topics must not be adopted."""
        return self._tree.get(layout.TOPICS)[1].cversion > 0

    def adopt(self, topics: Iterable[TopicInfo]) -> None:
        """Add topics with logs written by another broker, all or none, to a tree that never had topics."""
        assert not self.had_topics, "adopting topics could restore a deleted topic"
        self._tree.check_room()
        self._tree.multi([operation for topic in topics for operation in _adoption(topic)])


def _adoption(topic: TopicInfo) -> list[Operation]:
    """Return the creation of the topic's znodes, parents first; leader epochs continue unchanged."""
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
