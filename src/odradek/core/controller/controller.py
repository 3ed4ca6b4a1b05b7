"""The controller of a cluster with ZooKeeper: one broker that elects leaders and notifies the others.

    event ──> handle: steps on the tree, each completed before the next ──> take_requests: requests to brokers

Events are handled one after the other, each to its end. Every broker has such an object, but only the elected
broker's object is active. Modeled on Kafka's KafkaController (3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import singledispatchmethod

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.controller import events
from odradek.core.controller import replica_election as electing
from odradek.core.controller.broker_request_batch import (
    BecomeLeaderOrFollower,
    ControlRequest,
    RequestBatch,
    StopReplicas,
)
from odradek.core.controller.controller_context import ControllerContext, LiveBroker
from odradek.core.controller.controller_steps import (
    AssignTopicIds,
    DeleteNotices,
    Deposed,
    Elect,
    Finding,
    ReadBrokers,
    ReadDeletions,
    ReadFailedDirectories,
    ReadIsrChanges,
    ReadPreferredElections,
    ReadTopicNames,
    ReadTopics,
    Steps,
)
from odradek.core.controller.deletion import TopicDeletion
from odradek.core.controller.leaders import Leaders
from odradek.core.controller.requests_from_brokers import alter_partitions, shut_down
from odradek.core.kernel.cluster_view import TopicAssignment

_LOG = logging.getLogger(__name__)

# Errors that show a replica to be servable: the broker applied the request or already had that state.
_ONLINE_CODES = (None, ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)
NOT_ELECTED = 0  # The epoch of a broker that is not the controller; the first controller's epoch is 1.


class Controller:
    """One broker's controller; `epoch` is the epoch of its election, or NOT_ELECTED."""

    def __init__(
        self,
        broker: BrokerId,
        *,
        has_recovery: bool = True,
        new_topic_id: Callable[[], Uuid] | None = None,
        imbalance_percentage: int = 10,
    ) -> None:
        """Create the controller of one broker.

        `has_recovery` is True if brokers support the recovery of uncleanly elected leaders (KIP-704). `new_topic_id`
        returns an id for a topic created without one; None if brokers do not support topic ids (before 2.8).
        `imbalance_percentage` is leader.imbalance.per.broker.percentage.
        """
        self._id = broker
        self._new_topic_id = new_topic_id
        self._has_recovery = has_recovery
        self._imbalance_percentage = imbalance_percentage
        self._reset(NOT_ELECTED)

    def _reset(self, epoch: int) -> None:
        self.epoch = epoch
        self._context = ControllerContext()
        self._batch = RequestBatch(self._context)
        self._leaders = Leaders(self._context, self._batch, has_recovery=self._has_recovery)
        self._deletion = TopicDeletion(self._context, self._batch)

    @property
    def is_active(self) -> bool:
        return self.epoch != NOT_ELECTED

    @property
    def context(self) -> ControllerContext:
        """Return the controller's state, read-only."""
        return self._context

    def take_requests(self) -> list[ControlRequest]:
        """Return the requests to brokers that follow from the handled events."""
        return self._batch.take_requests(self._id, self.epoch) if self.is_active else []

    def handle(self, event: events.Event) -> Steps:
        """Handle one event; Deposed raised at a step ends it, because this broker lost the controllership."""
        try:
            if isinstance(event, events.SessionEnded):
                raise Deposed
            if isinstance(event, events.ControllerChanged | events.Reconnected):
                yield from self._elect(must_reload=isinstance(event, events.Reconnected))
            elif self.is_active:
                yield from self._handle(event)
        except Deposed:
            if self.is_active:
                _LOG.info("broker %d resigned as controller of epoch %d", self._id, self.epoch)
            self._reset(NOT_ELECTED)
        if isinstance(event, events.ControllerQuery) and event.answer is None and not event.error:
            event.error = ErrorCode.NOT_CONTROLLER
        if isinstance(event, events.ControllerQuery):
            assert (event.answer is None) == bool(event.error), "a request gets an answer or an error"

    # Election.

    def _elect(self, *, must_reload: bool) -> Steps:
        elect = Elect()
        yield elect
        if elect.result is None:  # Another broker is the controller.
            if self.is_active:
                raise Deposed
            return
        if elect.result != self.epoch:
            self._reset(elect.result)
            yield from self._fail_over({})
        elif must_reload:
            stopping = {broker: self._context.brokers[broker].epoch for broker in self._context.shutting_down}
            self._reset(self.epoch)
            yield from self._fail_over(stopping)

    def _fail_over(self, stopping: Mapping[BrokerId, int]) -> Steps:
        """Read all metadata, settle changes made without a controller, and send every broker everything.

        `stopping` are the brokers in controlled shutdown, by their epochs.
        """
        context = self._context
        assert not context.brokers and not context.topics, "a controller begins without knowledge"
        yield ReadIsrChanges()  # Sets the watches; the notices' content is read, or requested from brokers, anyway.
        yield ReadFailedDirectories()
        yield DeleteNotices()
        brokers, topics, deletions = ReadBrokers(), ReadTopics(), ReadDeletions()
        yield brokers
        for broker in brokers.result.values():
            context.add_broker(broker)
            if stopping.get(broker.info.id) == broker.epoch:
                context.shutting_down.add(broker.info.id)
        yield topics
        identified = yield from self._assign_ids(topics.result)
        for name, assignment in identified.items():
            context.put_topic(name, assignment)
        everything = list(context.all_partitions())
        yield from self._leaders.read(everything)
        yield deletions
        yield from self._deletion.begin_deletion(deletions.result)
        self._batch.announce(full_update_to=context.brokers)
        yield from self._leaders.settle(everything, also_notify=context.brokers)
        yield from self._handle(events.PreferredElectionsRequested())

    # Changes of the tree.

    @singledispatchmethod
    def _handle(self, event: events.Event) -> Steps:
        raise AssertionError(f"every event has a handler, {type(event).__name__} has none")

    @_handle.register
    def _(self, event: events.BrokersChanged) -> Steps:
        context = self._context
        read = ReadBrokers()
        yield read
        now, before = read.result, context.brokers
        # A broker that registered again before its session expired has lost all unsynced data.
        dead = [broker for broker, live in before.items() if broker not in now or now[broker].epoch != live.epoch]
        for broker in before.keys() - set(dead):
            before[broker] = now[broker]  # Its address may have changed.
        if dead:
            yield from self._on_brokers_failed(dead)
        yield from self._on_brokers_started(
            [live for broker, live in sorted(now.items()) if broker not in context.brokers]
        )

    def _on_brokers_started(self, brokers: Sequence[LiveBroker]) -> Steps:
        context = self._context
        for broker in brokers:
            assert broker.info.id not in context.brokers, "a broker starts after it has gone"
            context.add_broker(broker)
        ids = [broker.info.id for broker in brokers]
        self._batch.announce(full_update_to=ids)
        held = dict.fromkeys(partition for broker in ids for partition in context.partitions_on(broker))
        yield from self._leaders.settle(held, also_notify=ids)
        for broker_id in ids:
            self._deletion.resume_deletions(broker_id)

    def _on_brokers_failed(self, brokers: Sequence[BrokerId]) -> Steps:
        for broker in brokers:
            self._context.remove_broker(broker)
        held = dict.fromkeys(partition for broker in brokers for partition in self._context.partitions_on(broker))
        yield from self._leaders.settle(held, also_notify=self._context.brokers)

    @_handle.register
    def _(self, event: events.TopicsChanged) -> Steps:
        context = self._context
        names = ReadTopicNames()
        yield names
        for name in context.topics.keys() - set(names.result):
            context.remove_topic(name)  # The topic was removed manually.
        read = ReadTopics([name for name in names.result if name not in context.topics])
        yield read
        yield from self._add_topics((yield from self._assign_ids(read.result)))

    def _assign_ids(self, topics: Mapping[TopicName, TopicAssignment]) -> Finding[Mapping[TopicName, TopicAssignment]]:
        """Give an id to each topic created without one, before Kafka 2.8; return all of the topics."""
        if self._new_topic_id is None:
            return topics
        ids = {name: self._new_topic_id() for name, found in topics.items() if found.topic_id == ZERO_UUID}
        if not ids:
            return topics
        assign = AssignTopicIds(ids)
        yield assign
        return {**topics, **assign.result}

    @_handle.register
    def _(self, event: events.TopicChanged) -> Steps:
        read = ReadTopics([event.name])
        yield read
        yield from self._add_topics(read.result)

    def _add_topics(self, topics: Mapping[TopicName, TopicAssignment]) -> Steps:
        """Add new topics and partitions; existing partitions change only by reassignment."""
        context = self._context
        added: list[TopicPartition] = []
        for name, found in topics.items():
            before = context.topics.get(name)
            if before is not None and before.topic_id not in (found.topic_id, ZERO_UUID):
                context.remove_topic(name)  # The topic was removed and recreated, both manually.
                before = None
            partitions = {**found.partitions, **(before.partitions if before else {})}
            added += context.put_topic(name, (before or found)._replace(partitions=dict(sorted(partitions.items()))))
        yield from self._leaders.read(added)
        yield from self._leaders.settle(added, are_new=True)

    @_handle.register
    def _(self, event: events.DeletionsChanged) -> Steps:
        read = ReadDeletions()
        yield read
        yield from self._deletion.begin_deletion(read.result)

    @_handle.register
    def _(self, event: events.IsrsChanged) -> Steps:
        read = ReadIsrChanges()
        yield read
        partitions = [partition for partition in read.result.partitions if self._context.has_partition(partition)]
        yield from self._leaders.read(partitions)
        yield from self._leaders.settle(partitions)  # The leader may have been unaware of brokers that left.
        self._batch.update_metadata(partitions)
        yield DeleteNotices(read.result.paths)

    @_handle.register
    def _(self, event: events.DirectoriesFailed) -> Steps:
        """Send the brokers the state of all their replicas, so that they report the ones they can't serve.

        Also retry deletions that failed on a full disk, which may have room now.
        """
        read = ReadFailedDirectories()
        yield read
        context = self._context
        for broker in (broker for broker in read.result.brokers if broker in context.brokers):
            self._deletion.resume_deletions(broker)
            for partition in context.existing(context.partitions_on(broker)):
                self._batch.become([broker], partition)
        yield DeleteNotices(read.result.paths)

    @_handle.register
    def _(self, event: events.PreferredElectionsRequested) -> Steps:
        read = ReadPreferredElections()
        yield read
        yield from self._leaders.elect(read.result.partitions, electing.preferred(self._context, self._leaders))
        yield DeleteNotices(read.result.paths)

    @_handle.register
    def _(self, event: events.RebalanceDue) -> Steps:
        context, leaders = self._context, self._leaders
        candidates = electing.imbalanced(context, leaders, self._imbalance_percentage)
        yield from leaders.elect(candidates, electing.preferred(context, leaders))

    @_handle.register
    def _(self, event: events.UncleanElectionEnabled) -> Steps:
        yield from self._leaders.settle(list(electing.without_leader(self._context, event.name)))

    # Answers and requests of brokers, and requests of clients.

    @_handle.register
    def _(self, event: events.Answered) -> Steps:
        sent, errors = event.request, event.errors
        live = self._context.brokers.get(sent.broker)
        if live is None or live.epoch != sent.broker_epoch or sent.controller_epoch != self.epoch:
            return  # The request went to the broker's previous process, or came from an earlier controller.
        if isinstance(sent.request, StopReplicas) and sent.request.deletes:
            deleted = [partition for partition in sent.request.partitions if partition not in errors]
            yield from self._deletion.deleted(sent.broker, deleted)
        elif isinstance(sent.request, BecomeLeaderOrFollower):
            yield from self._on_leader_and_isr_response(sent.broker, sent.request.partitions, errors)

    def _on_leader_and_isr_response(
        self, broker: BrokerId, partitions: Iterable[TopicPartition], errors: Mapping[TopicPartition, ErrorCode]
    ) -> Steps:
        """Record replicas that a broker reports in a failed directory, or online again."""
        context = self._context
        restored = [
            partition
            for partition in partitions
            if errors.get(partition) in _ONLINE_CODES and context.has_partition(partition)
        ]
        restored = [partition for partition in restored if not context.is_online(broker, partition)]
        if restored:
            context.directories_restored(broker, restored)
            yield from self._leaders.settle(restored, also_notify=context.brokers)
        failed = [
            partition
            for partition in partitions
            if errors.get(partition) == ErrorCode.KAFKA_STORAGE_ERROR and context.has_partition(partition)
        ]
        lost = [partition for partition in failed if context.is_online(broker, partition)]
        if lost:
            context.directories_failed(broker, lost)
            yield from self._leaders.settle(lost, also_notify=context.brokers)
            for partition in lost:
                self._batch.stop(broker, partition)

    @_handle.register
    def _(self, event: events.ElectLeaders) -> Steps:
        yield from electing.elect_leaders(event, self._context, self._leaders)

    @_handle.register
    def _(self, event: events.ShutDown) -> Steps:
        yield from shut_down(event, self._context, self._leaders, self._batch)

    @_handle.register
    def _(self, event: events.AlterPartitions) -> Steps:
        yield from alter_partitions(event, self._context, self._leaders, self._batch)
