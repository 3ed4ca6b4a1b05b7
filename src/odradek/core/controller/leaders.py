"""Keeps leaders and ISRs in step with who is online: Kafka's state machines of partitions and replicas, as one rule.

`settle` looks at partitions for which something may have changed, writes what follows, and has it told.  Which change
it was does not matter, so that one that was told twice, late, or not at all comes to the same.
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

# Returns a partition's next state: another one, or the same.
Election = Callable[[TopicPartition, LeaderAndIsr], LeaderAndIsr]


class Leaders:
    """Writes the states of partitions, which all else only reads."""

    def __init__(self, context: ControllerContext, batch: RequestBatch, *, has_recovery: bool) -> None:
        """`has_recovery`: who was elected uncleanly is told to recover (KIP-704)."""
        self._context = context
        self._batch = batch
        self._has_recovery = has_recovery

    def settle(
        self, partitions: Iterable[TopicPartition], also_told: Iterable[BrokerId] = (), *, are_new: bool = False
    ) -> Steps:
        """Gives each partition, if it is there and stays, a leader if it can have one, and an ISR of who is online.

        Those that changed are told to all of their replicas, and those that did not to the brokers `also_told`.
        """
        context = self._context
        asked = context.staying(partitions)
        created = yield from self._create(asked)
        unclean = yield from self._may_be_unclean(asked)

        def next_state(partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
            return self._next(partition, state, may_be_unclean=unclean.get(partition.topic, False))

        changed = yield from self._elect(asked, next_state)
        told = set(also_told)
        for partition in asked:
            if partition not in context.states:
                continue
            online = context.online(partition)
            is_new = are_new or partition in created
            if is_new or partition in changed:
                self._batch.become(online, partition, is_new=is_new)
            elif told:
                self._batch.become(online & told, partition)

    def elect(self, partitions: Iterable[TopicPartition], election: Election) -> Steps:
        """Gives each partition, if it is there and stays, the state that the election says, and tells its replicas."""
        context = self._context
        asked = context.staying(partitions)
        yield from self.read(asked)  # Leaders before Kafka 2.7 tell of their ISRs some seconds later.
        changed = yield from self._elect(asked, election)
        for partition in changed:
            self._batch.become(context.online(partition), partition)

    def for_preferred(self, partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
        """Returns the state in which the partition's preferred replica leads; None if that replica can't."""
        elected = elections.for_preferred(state, self._context.replicas(partition), self._eligible(partition))
        return None if elected is None else elected.state

    def for_offline(
        self, partition: TopicPartition, state: LeaderAndIsr, *, may_be_unclean: bool
    ) -> LeaderAndIsr | None:
        """Returns the state in which a partition without a leader has one; None if no replica can lead."""
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
            _LOG.warning("%s is led by %d, which may lack records", partition, elected.state.leader)
        return elected.state

    def _elect(self, partitions: Iterable[TopicPartition], election: Election) -> Finding[dict[TopicPartition, None]]:
        """Writes the next state of each partition; returns those that have changed.

        One whose znode was changed by somebody else is read, and elected for again.
        """
        context = self._context
        changed: dict[TopicPartition, None] = {}
        asked = list(partitions)
        while asked:
            known = {one: context.states[one] for one in asked if one in context.states}
            found = {one: election(one, state) for one, state in known.items()}
            write = WriteStates({one: state for one, state in found.items() if state != known[one]})
            if not write.states:
                break
            yield write
            context.became(write.result.states)
            changed.update(dict.fromkeys(write.result.states))
            asked = list(write.result.stale)
            changed.update(dict.fromkeys(asked))
            yield from self.read(asked)
        return changed

    def read(self, partitions: Iterable[TopicPartition]) -> Steps:
        """Takes in the states that partitions have in the tree, or that they have none."""
        context = self._context
        read = ReadStates([one for one in partitions if context.is_there(one)])
        if not read.partitions:
            return
        yield read
        for partition in read.partitions:
            context.states.pop(partition, None)
        context.became(read.result)

    def _create(self, partitions: Iterable[TopicPartition]) -> Finding[Mapping[TopicPartition, LeaderAndIsr]]:
        """Writes the first states of partitions that have none, and of whose replicas one is online; returns them."""
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
        context.became(create.result.states)
        yield from self.read(create.result.stale)
        return create.result.states

    def _may_be_unclean(self, partitions: Iterable[TopicPartition]) -> Finding[Mapping[TopicName, bool]]:
        """Returns unclean.leader.election.enable of the topics for which it matters now."""
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
        """Returns what follows from who is online.

        Who is shutting down leads on as long as nobody else can, and is elected by nobody.
        """
        online = self._context.online(partition)
        if state.leader not in online:
            elected = self.for_offline(partition, state, may_be_unclean=may_be_unclean)
            if elected is not None:
                return elected
        return elections.without(state, {*state.isr, state.leader} - online)
