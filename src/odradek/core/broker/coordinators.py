"""Both coordinators of a broker: the partitions of their state topics here, and their effects.

partition opened ──> adopt ──> perhaps a Load, an effect ──> loaded
partition deleted, or its log offline ──> resign
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.base.units import ProducerId, TopicName, TopicPartition
from odradek.core.broker.effects import AllocateProducerIds
from odradek.core.coordinators.runtime import Runtime
from odradek.core.coordinators.shards import Load, Loaded
from odradek.core.groups.group_coordinator import GroupCoordinator
from odradek.core.kernel.moment import Moment
from odradek.core.partition.partition import Partition
from odradek.core.transactions.transaction_coordinator import TransactionCoordinator
from odradek.core.transactions.transaction_markers import WriteMarker


class Coordinators:
    """Group coordinator and transaction coordinator."""

    def __init__(
        self, runtime: Runtime, write_marker: WriteMarker, partitions: Mapping[TopicPartition, Partition]
    ) -> None:
        self._partitions = partitions
        self._loads: list[Load] = []
        self.needs_ids = False  # True until the shell takes the request.
        self.groups = GroupCoordinator(runtime, self._loads.append)
        self.transactions = TransactionCoordinator(runtime, self._loads.append, self._request_ids, write_marker)
        self.shards = {shards.topic: shards for shards in (self.groups.shards, self.transactions.shards)}
        self._has_started = False

    def _request_ids(self) -> None:
        self.needs_ids = True

    def start_coordinating(self, now: Moment) -> None:
        """Start to coordinate the partitions led here."""
        assert not self._has_started
        self._has_started = True
        for partition in list(self._partitions.values()):
            self.adopt(partition, now)

    def has_state_in(self, topic: TopicName) -> bool:
        """Return whether a coordinator keeps its state in the topic."""
        return topic in self.shards

    def adopt(self, partition: Partition, now: Moment) -> None:
        """Serve the state in a partition led here, if it is a coordinator's and coordination has started."""
        shards = self.shards.get(partition.topic_partition.topic) if self._has_started else None
        if shards is not None and partition.leading is not None:
            shards.adopt(partition.leading, now)

    def resign(self, name: TopicPartition) -> None:
        """Drop the state of a partition that was deleted or is offline."""
        shards = self.shards.get(name.topic)
        if shards is not None:
            shards.resign(name.partition)

    def on_loaded(self, loaded: Loaded, now: Moment) -> None:
        """Complete a Load."""
        self.shards[loaded.load.name.topic].on_loaded(loaded, now)

    @property
    def has_effects(self) -> bool:
        """Return whether `take_effects` would return anything."""
        return self.needs_ids or bool(self._loads)

    def take_effects(self) -> list[Load | AllocateProducerIds]:
        """Return the effects for the shell to run now."""
        effects: list[Load | AllocateProducerIds] = []
        if self.needs_ids:
            effects.append(AllocateProducerIds(self._first_free_id()))
            self.needs_ids = False
        if self._loads:
            effects.extend(self._loads)
            self._loads.clear()
        return effects

    def _first_free_id(self) -> ProducerId:
        """Return a producer id above all ids in our logs."""
        logs = (partition.log for partition in self._partitions.values() if partition.is_online)
        used = (producer.id for log in logs for producer in log.producers)
        return ProducerId(max(max(used, default=-1), self.transactions.states.greatest_id()) + 1)

    def run_housekeeping(self, now: Moment) -> Iterator[None]:
        """Run the periodic tasks, about once a second, in slices."""
        yield from self.groups.run_housekeeping(now)
        yield from self.transactions.run_housekeeping(now)
        if self.transactions.may_hang:
            yield from self.transactions.end_hanging(self._partitions, now)
