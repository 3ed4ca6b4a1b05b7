"""Leaders and ISRs that follow the online brokers: Kafka's partition and replica state machines.

Both are one rule here. `settle` checks partitions that may be affected by a change, writes their next states and
notifies brokers. The kind of change does not matter, so a duplicate, late or missing notification has the same
result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.core.controller import partition_leader_election as elections
from odradek.core.controller.broker_request_batch import RequestBatch
from odradek.core.controller.controller_context import ControllerContext
from odradek.core.controller.controller_steps import Finding, ReadMayBeUnclean, ReadStates, Steps, WriteStates
from odradek.core.kernel.cluster_view import LeaderAndIsr

_LOG = logging.getLogger(__name__)

# Returns a partition's next state, changed or not.
Election = Callable[[TopicPartition, LeaderAndIsr], LeaderAndIsr]


class Leaders:
    """The only writer of partition states."""

    def __init__(self, context: ControllerContext, batch: RequestBatch, *, has_recovery: bool) -> None:
        """Create the writer; with `has_recovery`, uncleanly elected leaders have to recover (KIP-704)."""
        self._context = context
        self._batch = batch
        self._has_recovery = has_recovery

    def settle(
        self, partitions: Iterable[TopicPartition], also_notify: Iterable[BrokerId] = (), *, are_new: bool = False
    ) -> Steps:
        """Give each existing partition a leader if possible, and an ISR of online brokers.

        Skips partitions being deleted. Changed states are sent to all replicas of the partition, and unchanged ones
        to the brokers in `also_notify`.
        """
        context = self._context
        existing = context.existing(partitions)
        created = yield from self._create(existing)
        unclean = yield from self._may_be_unclean(existing)

        def next_state(partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
            return self._next(partition, state, may_be_unclean=unclean.get(partition.topic, False))

        changed = yield from self._elect(existing, next_state)
        notified = set(also_notify)
        for partition in existing:
            if partition not in context.states:
                continue
            online = context.online(partition)
            is_new = are_new or partition in created
            if is_new or partition in changed:
                self._batch.become(online, partition, is_new=is_new)
            elif notified:
                self._batch.become(online & notified, partition)

    def elect(self, partitions: Iterable[TopicPartition], election: Election) -> Steps:
        """Give each existing partition its elected state and notify its replicas, unless it is being deleted."""
        context = self._context
        existing = context.existing(partitions)
        yield from self.read(existing)  # Leaders before Kafka 2.7 report their ISRs some seconds later.
        changed = yield from self._elect(existing, election)
        for partition in changed:
            self._batch.become(context.online(partition), partition)

    def for_preferred(self, partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
        """Return the state in which the partition's preferred replica leads, or None if it can't."""
        elected = elections.for_preferred(state, self._context.replicas(partition), self._eligible(partition))
        return None if elected is None else elected.state

    def for_offline(
        self, partition: TopicPartition, state: LeaderAndIsr, *, may_be_unclean: bool
    ) -> LeaderAndIsr | None:
        """Return the state with a new leader for a partition without one, or None if no replica can lead."""
        elected = elections.for_offline(
            state,
            self._context.replicas(partition),
            self._eligible(partition),
            may_be_unclean=may_be_unclean,
            has_recovery=self._has_recovery,
        )
        if elected is None:
            return None
        if elected.is_unclean:
            _LOG.warning(
                "unclean leader election: %s is now led by broker %d, which may lack committed records",
                partition,
                elected.state.leader,
            )
        return elected.state

    def _elect(self, partitions: Iterable[TopicPartition], election: Election) -> Finding[dict[TopicPartition, None]]:
        """Write the next state of each partition and return the changed ones.

        If a znode was changed by another client, the state is read again and the election repeated.
        """
        context = self._context
        changed: dict[TopicPartition, None] = {}
        remaining = list(partitions)
        while remaining:
            known = {partition: context.states[partition] for partition in remaining if partition in context.states}
            found = {partition: election(partition, state) for partition, state in known.items()}
            write = WriteStates({partition: state for partition, state in found.items() if state != known[partition]})
            if not write.states:
                break
            assert all(
                state.leader_epoch > known[partition].leader_epoch for partition, state in write.states.items()
            ), "each election begins a leader epoch"
            yield write
            assert len(write.result.states) + len(write.result.stale) == len(write.states), (
                "each state is written or stale"
            )
            context.put_states(write.result.states)
            changed.update(dict.fromkeys(write.result.states))
            remaining = list(write.result.stale)
            changed.update(dict.fromkeys(remaining))
            yield from self.read(remaining)
        return changed

    def read(self, partitions: Iterable[TopicPartition]) -> Steps:
        """Read the states of partitions from the tree, which may be missing."""
        context = self._context
        read = ReadStates([partition for partition in partitions if context.has_partition(partition)])
        if not read.partitions:
            return
        yield read
        for partition in read.partitions:
            context.states.pop(partition, None)
        context.put_states(read.result)

    def _create(self, partitions: Iterable[TopicPartition]) -> Finding[Mapping[TopicPartition, LeaderAndIsr]]:
        """Write and return the first states of partitions without state that have an online replica."""
        context = self._context
        firsts: dict[TopicPartition, LeaderAndIsr] = {}
        for partition in partitions:
            if partition not in context.states:
                state = elections.first(context.replicas(partition), self._eligible(partition))
                if state is not None:
                    firsts[partition] = state
        if not firsts:
            return firsts
        create = WriteStates(firsts, creates=True)
        yield create
        assert len(create.result.states) + len(create.result.stale) == len(firsts), "each state is written or stale"
        context.put_states(create.result.states)
        yield from self.read(create.result.stale)
        return create.result.states

    def _may_be_unclean(self, partitions: Iterable[TopicPartition]) -> Finding[Mapping[TopicName, bool]]:
        """Return unclean.leader.election.enable of the topics for which it matters now."""
        states = self._context.states
        lost = {
            partition.topic: None
            for partition in partitions
            if partition in states and not self._eligible(partition) & {*states[partition].isr}
        }
        if not lost:
            return {}
        read = ReadMayBeUnclean(list(lost))
        yield read
        return read.result

    def _eligible(self, partition: TopicPartition) -> AbstractSet[BrokerId]:
        return self._context.online(partition) - self._context.shutting_down

    def _next(self, partition: TopicPartition, state: LeaderAndIsr, *, may_be_unclean: bool) -> LeaderAndIsr:
        """Return the next state, derived from the online brokers.

        A leader that is shutting down continues while no other replica can lead, but is never elected.
        """
        online = self._context.online(partition)
        if state.leader not in online:
            elected = self.for_offline(partition, state, may_be_unclean=may_be_unclean)
            if elected is not None:
                return elected
        return elections.without(state, {*state.isr, state.leader} - online)
