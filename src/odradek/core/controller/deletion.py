"""Deletes topics that are marked for it: each replica is deleted by its broker, then the topic's znodes are.

A broker that is away, or can't reach its directory, keeps the mark there until it has started again; one whose disk
is full, until there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.core.controller.broker_request_batch import RequestBatch
from odradek.core.controller.controller_context import ControllerContext
from odradek.core.controller.controller_steps import RemoveTopics, Steps


class TopicDeletion:
    """Keeps `deleting` of the context: topics, each with the replicas that are still there."""

    def __init__(self, context: ControllerContext, batch: RequestBatch) -> None:
        self._context = context
        self._batch = batch

    def begin(self, names: Sequence[TopicName]) -> Steps:
        """Begins to delete marked topics; takes away the marks of those that are not there."""
        context = self._context
        unknown = [name for name in names if name not in context.topics]
        if unknown:  # A controller before this one removed the topic, and died.
            yield RemoveTopics(unknown)
        for name in names:
            if name in context.topics and name not in context.deleting:
                partitions = context.partitions_of(name)
                replicas = {(broker, partition) for partition in partitions for broker in context.replicas(partition)}
                context.deleting[name] = replicas
                self._batch.update_metadata(partitions)
                self._stop(replicas)

    def broker_came(self, broker: BrokerId) -> None:
        """Has a broker that has started, or has replicas back, delete what it still has of these topics."""
        for left in self._context.deleting.values():
            self._stop((one, partition) for one, partition in left if one == broker)

    def _stop(self, replicas: Iterable[tuple[BrokerId, TopicPartition]]) -> None:
        for broker, partition in sorted(replicas):
            if broker in self._context.brokers:
                self._batch.stop(broker, partition, deletes=True)

    def deleted(self, broker: BrokerId, partitions: Iterable[TopicPartition]) -> Steps:
        """Takes in that a broker has deleted replicas; a topic that has none left is gone."""
        context = self._context
        done: dict[TopicName, None] = {}
        for partition in partitions:
            left = context.deleting.get(partition.topic)
            if left is not None and (broker, partition) in left:
                left.remove((broker, partition))
                if not left:
                    done[partition.topic] = None
        if done:
            yield RemoveTopics(list(done))
            for name in done:
                context.topic_went(name)
