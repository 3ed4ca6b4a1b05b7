"""Deletion of marked topics: brokers delete the replicas, then the topic's znodes are deleted.

The mark remains while a broker is down, or until it restarts if it can't reach its directory. If its disk is full,
the mark remains until there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.core.controller.broker_request_batch import RequestBatch
from odradek.core.controller.controller_context import ControllerContext
from odradek.core.controller.controller_steps import RemoveTopics, Steps


class TopicDeletion:
    """Deletion of topics; it maintains `deleting` in the context, topics with their remaining replicas."""

    def __init__(self, context: ControllerContext, batch: RequestBatch) -> None:
        self._context = context
        self._batch = batch

    def begin_deletion(self, names: Sequence[TopicName]) -> Steps:
        """Begin to delete marked topics, and remove the marks of topics that do not exist."""
        context = self._context
        unknown = [name for name in names if name not in context.topics]
        if unknown:  # An earlier controller removed the topic and died.
            yield RemoveTopics(unknown)
        for name in names:
            if name in context.topics and name not in context.deleting:
                partitions = context.partitions_of(name)
                replicas = {(broker, partition) for partition in partitions for broker in context.replicas(partition)}
                context.deleting[name] = replicas
                self._batch.update_metadata(partitions)
                self._stop(replicas)

    def resume_deletions(self, broker: BrokerId) -> None:
        """Send a broker that started or regained replicas its pending deletions."""
        for remaining in self._context.deleting.values():
            self._stop((one, partition) for one, partition in remaining if one == broker)

    def _stop(self, replicas: Iterable[tuple[BrokerId, TopicPartition]]) -> None:
        for broker, partition in sorted(replicas):
            if broker in self._context.brokers:
                self._batch.stop(broker, partition, deletes=True)

    def deleted(self, broker: BrokerId, partitions: Iterable[TopicPartition]) -> Steps:
        """Record that a broker has deleted replicas, and remove topics that have none left."""
        context = self._context
        done: dict[TopicName, None] = {}
        for partition in partitions:
            remaining = context.deleting.get(partition.topic)
            if remaining is not None and (broker, partition) in remaining:
                remaining.remove((broker, partition))
                if not remaining:
                    done[partition.topic] = None
        if done:
            yield RemoveTopics(list(done))
            for name in done:
                assert not context.deleting[name], "a topic is removed once its last replica is deleted"
                context.remove_topic(name)
