"""Random histories of one coordinator whose transactions include partitions of other brokers, and their invariants.

The other brokers are a model: partitions with their producers, by Apache Kafka's rules for markers. A request is
executed before its end is delivered, or never. (A request that is executed after its sender gave up can end the next
transaction of the same epoch, in Apache Kafka too: KIP-890 fixes this.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, ProducerId, TopicPartition
from odradek.core.controller.broker_request_batch import LEADER_DURING_DELETE, PartitionMetadata, UpdateMetadata
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.transactions.transaction_markers import Marker, WriteMarkers
from support.controlling import name_of
from support.in_memory import US, Harness
from support.remote_partitions import LOST, THREE, TWO, Elsewhere, is_complete, pairs
from support.transactional import EPOCHS, SHARED, Transactional

OTHERS = (TWO, THREE)
HERE = name_of("t", 0)
RETRIABLE = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # The broker does not know it yet.
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CORRUPT_MESSAGE,
)
Codes = Mapping[tuple[ProducerId, TopicPartition], ErrorCode]


@dataclass
class Decision:
    """One transaction, from its first partition on; `is_commit` is None until the decision."""

    version: int
    is_commit: bool | None = None


@dataclass
class Known:
    """A partition's state of a producer."""

    epoch: int = -1
    coordinator_epoch: int = -1
    open: Decision | None = None


@dataclass
class RemotePartition:
    """A partition of another broker."""

    leader: BrokerId
    producers: dict[ProducerId, Known] = field(default_factory=dict)

    def mark(self, marker: Marker) -> ErrorCode:
        known = self.producers.setdefault(marker.producer.id, Known())
        is_of_one_before = marker.version >= 2 and marker.producer.epoch == known.epoch and known.open is not None
        if marker.producer.epoch < known.epoch or is_of_one_before:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < known.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if known.open is not None:
            assert known.open.is_commit is not None, "a marker for a transaction that nobody has decided"
            assert known.open.is_commit == marker.is_commit, "a marker that is not as it was decided"
        self.producers[marker.producer.id] = Known(marker.producer.epoch, marker.coordinator_epoch)
        return ErrorCode.NONE


class MarkerHistory:
    """One history."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        self.harness = Harness(directory, transaction_state_log_num_partitions="1")
        self.elsewhere = Elsewhere(self.harness)
        assert self.elsewhere.controller.send_leader_and_isr("t", 0, is_new=True) == {}
        names = [name_of("t", 1), name_of("t", 2), name_of("t", 3), name_of("u", 0), name_of("u", 1)]
        self.remote = {name: RemotePartition(self.random.choice(OTHERS)) for name in names}
        self.alive = set(OTHERS)
        self.coordinates = True
        self.update_metadata()
        self.producers = [self.elsewhere.begin_producer(f"p{index}", version=1 + index % 2) for index in range(4)]
        self.open: dict[str, Decision] = {}
        self.pending: list[WriteMarkers] = []
        self.answers: list[tuple[WriteMarkers, Codes | Refused]] = []  # On their way.
        self.marked = 0
        self.moves = [
            (self.add_partition, 12),
            (self.end, 5),
            (self.take_requests, 9),
            (self.execute, 8),
            (self.lose, 2),
            (self.deliver_response, 9),
            (self.move, 2),
            (self.kill_or_revive, 1),
            (self.update_metadata, 3),
            (self.delete_or_create, 1),
            (self.resign, 1),
            (self.coordinate, 5),
            (self.pass_time, 8),
        ]

    def step(self) -> None:
        moves, weights = zip(*self.moves, strict=True)
        self.random.choices(moves, weights)[0]()

    # Producers.

    def _producer(self) -> Transactional | None:
        return self.random.choice(self.producers) if self.coordinates else None

    def add_partition(self) -> None:
        """Write to a partition of a producer's transaction, which may start with it."""
        producer = self._producer()
        if producer is None or producer.state.is_decided:
            return
        self._continue(producer)
        decision = self.open.setdefault(producer.id, Decision(producer.version))
        if self.random.random() < 0.2:
            self._write_here(producer)
            return
        name = self.random.choice(list(self.remote))
        self.elsewhere.add_partitions(producer, name)
        known = self.remote[name].producers.setdefault(producer.producer.id, Known())
        assert known.open in (None, decision), "the transaction before was complete without a marker here"
        known.epoch, known.open = producer.producer.epoch, decision

    def _write_here(self, producer: Transactional) -> None:
        if producer.version == 1:
            assert producer.add(("t", 0)) == [ErrorCode.NONE]
        assert producer.write("t", b"a") == ErrorCode.NONE

    def _continue(self, producer: Transactional) -> None:
        client = producer.state.client
        if client != producer.producer:
            producer.producer = client
            producer.sequences.clear()

    def end(self) -> None:
        producer = self._producer()
        decision = self.open.pop(producer.id, None) if producer is not None else None
        if producer is None or decision is None:
            return
        decision.is_commit = self.random.random() < 0.5
        self.harness.send(producer.end_request(commit=decision.is_commit), EPOCHS if producer.version == 2 else SHARED)
        self.harness.settle()
        assert producer.state.is_decided or is_complete(producer)

    # Requests.

    def take_requests(self) -> None:
        for effect in self.elsewhere.take_requests():
            assert all(one.broker != effect.broker for one in self.pending), "one request at a time"
            self.pending.append(effect)

    def execute(self) -> None:
        """Let a broker execute a request; its response is in flight or lost."""
        if not self.pending:
            return
        effect = self.pending.pop(self.random.randrange(len(self.pending)))
        codes = {(one.producer.id, name): self._write_marker(effect.broker, one, name) for one, name in pairs(effect)}
        if effect.broker not in self.alive or self.random.random() < 0.2:
            self._end(effect, LOST)
        self._end(effect, codes)  # It arrives after the other end.
        if self.random.random() < 0.2:
            self._end(effect, codes)

    def _write_marker(self, broker: BrokerId, marker: Marker, name: TopicPartition) -> ErrorCode:
        partition = self.remote.get(name)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.leader != broker or broker not in self.alive:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.random.random() < 0.2:
            return self.random.choice(RETRIABLE)
        self.marked += 1
        code = partition.mark(marker)
        is_unsafe = code is ErrorCode.NONE and self.random.random() < 0.1
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if is_unsafe else code

    def _end(self, effect: WriteMarkers, outcome: Codes | Refused) -> None:
        self.answers.append((effect, outcome))

    def lose(self) -> None:
        """Lose a request before it reaches its broker."""
        if self.pending:
            effect = self.pending.pop(self.random.randrange(len(self.pending)))
            self._end(effect, LOST)

    def deliver_response(self) -> None:
        """Deliver the end of a request; only its first end counts, and requests may overtake each other."""
        if not self.answers:
            return
        effect, _ = self.random.choice(self.answers)
        index = next(index for index, one in enumerate(self.answers) if one[0] is effect)
        _, outcome = self.answers.pop(index)
        self.harness.broker.transactions.markers.on_answered(effect, outcome, self.harness.now)
        self.harness.settle()

    # The cluster.

    def move(self) -> None:
        partition = self.random.choice(list(self.remote.values()))
        partition.leader = self.random.choice([*sorted(self.alive) * 2, NO_BROKER])

    def kill_or_revive(self) -> None:
        broker = self.random.choice(OTHERS)
        if broker not in self.alive:
            self.alive.add(broker)
        elif len(self.alive) > 1:
            self.alive.remove(broker)
            (other,) = self.alive
            for partition in self.remote.values():
                if partition.leader == broker:
                    partition.leader = self.random.choice((other, NO_BROKER))

    def update_metadata(self) -> None:
        """Update the coordinator's metadata to the actual state of the cluster."""
        self.elsewhere.alive = (US, *sorted(self.alive))
        self.elsewhere.update_metadata("t", US, *(self.remote[name_of("t", index)].leader for index in (1, 2, 3)))
        if name_of("u", 0) in self.remote:
            self.elsewhere.update_metadata("u", *(self.remote[name_of("u", index)].leader for index in (0, 1)))

    def delete_or_create(self) -> None:
        names = [name_of("u", 0), name_of("u", 1)]
        if names[0] in self.remote:
            self._delete(names)
        else:
            self.remote.update({name: RemotePartition(self.random.choice(sorted(self.alive))) for name in names})
            self.update_metadata()

    def _delete(self, names: list[TopicPartition]) -> None:
        state = LeaderAndIsr(LEADER_DURING_DELETE, LeaderEpoch(0), (), controller_epoch=1)
        infos = {name: PartitionMetadata(state, (), ()) for name in names}
        brokers = tuple(self.harness.broker.view.brokers.values())
        assert self.elsewhere.controller.send(UpdateMetadata(infos, {}, brokers, False)) == {}
        for name in names:
            del self.remote[name]

    def resign(self) -> None:
        """Move the coordinator away; its requests are still in flight."""
        if self.coordinates:
            self.coordinates = False
            self.elsewhere.resign()

    def coordinate(self) -> None:
        if not self.coordinates:
            self.coordinates = True
            self.elsewhere.coordinate_again()

    def pass_time(self) -> None:
        self.elsewhere.pass_time(self.random.choice((1, 500, 1000, 1000)))

    # The end.

    def heal(self) -> None:
        """End all faults and all open transactions."""
        self.alive = set(OTHERS)
        for partition in self.remote.values():
            partition.leader = self.random.choice(OTHERS)
        self.update_metadata()
        self.coordinate()
        for _ in range(10):
            self._round()
        for producer in self.producers:
            decision = self.open.get(producer.id)
            if decision is not None:
                decision.is_commit = True
                request = producer.end_request(commit=True)
                self.harness.send(request, EPOCHS if producer.version == 2 else SHARED)
                self.harness.settle()
        for _ in range(10):
            self._round()
        self._check()

    def _round(self) -> None:
        while self.answers:
            self.deliver_response()
        self.take_requests()
        for effect in self.pending:
            codes = {
                (marker.producer.id, name): self.remote[name].mark(marker)
                if name in self.remote and self.remote[name].leader == effect.broker
                else ErrorCode.NOT_LEADER_OR_FOLLOWER
                for marker, name in pairs(effect)
            }
            self._end(effect, codes)
        self.pending.clear()
        while self.answers:
            self.deliver_response()
        self.elsewhere.pass_time(1000)

    def _check(self) -> None:
        assert self.elsewhere.take_requests() == []
        for producer in self.producers:
            assert is_complete(producer) or not producer.state.partitions, producer.state
        for name, partition in self.remote.items():
            hanging = [known for known in partition.producers.values() if known.open is not None]
            assert not hanging, (name, hanging)
        assert not self.harness.broker.partitions[HERE].has_open_transactions()
        assert self.harness.broker.timers.next_due() is None, "nothing is left to be done"
