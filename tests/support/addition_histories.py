"""Random histories of transactions whose coordinator is another broker, and their invariants.

Responses of the coordinator are late, lost or duplicated; it moves, and executes requests after their sender gave up.
Producers end transactions with batches still in flight, and start again; partitions lose their leader. At all times a
batch is acknowledged only in a partition that is part of the coordinator's transaction. At the end no partition has an
open transaction, and no request is parked.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

from odradek.api.conversation import Conversation
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_BROKER, BrokerId, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.transactions.additions import AdditionsOutcome, AddPartitions
from odradek.core.transactions.transaction_markers import WriteMarkers
from odradek.core.transactions.transaction_states import TransactionState
from odradek.wire.messages.produce import ProduceResponse
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitResponse
from support.in_memory import US
from support.remote_coordinator import ADDS, LOST, OFFSETS, T0, T1, T2, THREE, TWO, CoordinatedElsewhere
from support.transactional import EPOCHS, SHARED, Transactional

DATA = (T0, T1, T2)
VERIFIES, OFFSETS_VERIFIED, OFFSETS_ADDED = 11, 4, 5
RETRIABLE = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
OPEN = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class Write(NamedTuple):
    """A write that was sent and has no response yet."""

    talk: Conversation
    producer: Transactional
    identity: ProducerIdAndEpoch
    names: tuple[TopicPartition, ...]
    version: int


class AdditionHistory:
    """One history."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        self.brokers = CoordinatedElsewhere(directory)
        self.coordinator: BrokerId = TWO
        self.producers = [self.brokers.begin_producer(f"p{index}", version=1 + index % 2) for index in range(4)]
        self.broken: set[str] = set()
        self.writes: list[Write] = []
        self.pending: list[AddPartitions] = []
        self.given_up: list[AddPartitions] = []  # Not carried out yet.
        self.answers: list[tuple[AddPartitions, AdditionsOutcome]] = []  # On their way.
        self.marking: list[WriteMarkers] = []
        self.ever: dict[ProducerIdAndEpoch, set[TopicPartition]] = {}  # All that were in its transactions.
        self.led = dict.fromkeys(DATA, True)
        self.epoch = 0
        self.acknowledged = 0
        self.moves = [
            (self.write, 16),
            (self.commit_offsets, 3),
            (self.take_requests, 12),
            (self.execute, 12),
            (self.lose, 2),
            (self.execute_late, 2),
            (self.deliver_response, 12),
            (self.end, 6),
            (self.begin, 3),
            (self.fence, 1),
            (self.mark, 8),
            (self.move_coordinator, 1),
            (self.lose_or_gain_leader, 1),
            (self.pass_time, 5),
        ]

    def step(self) -> None:
        moves, weights = zip(*self.moves, strict=True)
        self.random.choices(moves, weights)[0]()
        self._collect_responses()

    # Producers.

    def write(self) -> None:
        producer = self.random.choice(self.producers)
        if producer.id in self.broken:
            return
        names = tuple(self.random.sample(DATA, self.random.choice((1, 1, 2))))
        if producer.version == 1 and self.random.random() < 0.9:
            codes = producer.add(*names)
            if any(codes):
                self._continue(producer)
                return
        version = ADDS if producer.version == 2 else VERIFIES
        talk = self.brokers.produce(producer, *[name.partition for name in names], version=version)
        self._remember(producer)
        self.writes.append(Write(talk, producer, producer.producer, names, version))

    def commit_offsets(self) -> None:
        producer = self.random.choice(self.producers)
        version = OFFSETS_ADDED if producer.version == 2 else OFFSETS_VERIFIED
        if producer.version == 1 and not producer.state.is_decided:
            now = producer.harness.now
            try:
                producer.harness.broker.transactions.add_partitions(producer.id, producer.producer, (OFFSETS,), 0, now)
            except Refused:
                return
            producer.harness.settle()
        talk = self.brokers.commit_offsets(producer, version)
        self.writes.append(Write(talk, producer, producer.producer, (OFFSETS,), version))

    def end(self) -> None:
        """End a transaction: usually with all writes acknowledged, as clients do; otherwise as a retry may."""
        producer = self.random.choice(self.producers)
        state = producer.state
        if state.state is not TransactionState.ONGOING or state.client != producer.producer:
            return
        if any(one.producer is producer for one in self.writes) and self.random.random() < 0.8:
            return
        self._remember(producer)
        commit = producer.id not in self.broken and self.random.random() < 0.7
        self.brokers.coordinator.send(producer.end_request(commit=commit), EPOCHS if producer.version == 2 else SHARED)
        self.brokers.coordinator.settle()
        self._continue(producer)

    def begin(self) -> None:
        """Request a new identity with InitProducerId, unless a transaction is open."""
        producer = self.random.choice(self.producers)
        if producer.state.state not in OPEN and (producer.id in self.broken or self.random.random() < 0.2):
            assert producer.begin().error_code == ErrorCode.NONE
            self.broken.discard(producer.id)

    def fence(self) -> None:
        """Let the coordinator abort a transaction, as on a timeout."""
        producer = self.random.choice(self.producers)
        if producer.state.state is TransactionState.ONGOING:
            self._remember(producer)
            coordinator = self.brokers.coordinator
            coordinator.broker.transactions.states.abort(producer.id, coordinator.now)
            coordinator.settle()
            self.broken.add(producer.id)

    def _continue(self, producer: Transactional) -> None:
        if producer.version == 2:
            self.brokers.next_epoch(producer)

    def _remember(self, producer: Transactional) -> None:
        state = producer.state
        if state.state in OPEN:
            self.ever.setdefault(state.client, set()).update(state.partitions)

    # Requests between the brokers.

    def take_requests(self) -> None:
        for effect in self.brokers.take_requests():
            assert all(one.broker != effect.broker for one in self.pending), "one request at a time"
            self.pending.append(effect)

    def execute(self) -> None:
        """Let the coordinator execute a request; its response is in flight, lost or duplicated."""
        if not self.pending:
            return
        effect = self.pending.pop(self.random.randrange(len(self.pending)))
        outcome = self._execute(effect)
        if self.random.random() < 0.15:
            self.answers.append((effect, LOST))
        self.answers.append((effect, outcome))  # It arrives after the other end.
        if self.random.random() < 0.2:
            self.answers.append((effect, outcome))

    def _execute(self, effect: AddPartitions) -> AdditionsOutcome:
        if effect.broker != self.coordinator:
            return self._codes_for_all(effect, ErrorCode.NOT_COORDINATOR)
        if self.random.random() < 0.1:
            return self._codes_for_all(effect, self.random.choice(RETRIABLE))
        outcome = self.brokers.execute(effect, self.random.choice((4, 5)))
        for producer in self.producers:
            self._remember(producer)
        return outcome

    @staticmethod
    def _codes_for_all(effect: AddPartitions, code: ErrorCode) -> AdditionsOutcome:
        return {(one.transactional_id, name): code for one, names in effect.transactions for name in names}

    def lose(self) -> None:
        """Give up a request, which may still arrive later."""
        if self.pending:
            effect = self.pending.pop(self.random.randrange(len(self.pending)))
            self.answers.append((effect, LOST))
            self.given_up.append(effect)

    def execute_late(self) -> None:
        if self.given_up:
            effect = self.given_up.pop(self.random.randrange(len(self.given_up)))
            self.answers.append((effect, self._execute(effect)))

    def deliver_response(self) -> None:
        """Deliver the end of a request; only its first end counts, and requests may overtake each other."""
        if not self.answers:
            return
        effect, _ = self.random.choice(self.answers)
        index = next(index for index, one in enumerate(self.answers) if one[0] is effect)
        self.brokers.deliver(*self.answers.pop(index))

    def mark(self) -> None:
        """Take the coordinator's requests for markers, or write the markers of one."""
        if self.random.random() < 0.5:
            self.marking += self.brokers.coordinator.broker.take_markers()
        elif self.marking:
            self._mark(self.marking.pop(self.random.randrange(len(self.marking))))

    def _mark(self, effect: WriteMarkers) -> None:
        leader, coordinator = self.brokers.leader, self.brokers.coordinator
        outcome = {}
        for marker, names in effect.markers:
            for name in names:
                outcome[marker.producer.id, name] = ErrorCode.NONE
                try:
                    leader.broker.end_transaction(name, marker, leader.now)
                except Refused as refused:
                    outcome[marker.producer.id, name] = refused.code
        leader.settle()
        coordinator.broker.transactions.markers.on_answered(effect, outcome, coordinator.now)
        coordinator.settle()

    # The cluster.

    def move_coordinator(self) -> None:
        """Move the coordinator, of which the brokers learn now or later."""
        self.coordinator = self.random.choice((TWO, THREE))
        self.brokers.set_coordinator(self.random.choice((self.coordinator, self.coordinator, NO_BROKER)))

    def lose_or_gain_leader(self) -> None:
        name = self.random.choice(DATA)
        self._lead(name, not self.led[name])

    def _lead(self, name: TopicPartition, is_led: bool) -> None:
        self.epoch += 1
        self.led[name] = is_led
        leader = US if is_led else NO_BROKER
        assert self.brokers.controller.send_leader_and_isr("t", name.partition, leader=leader, epoch=self.epoch) == {}

    def pass_time(self) -> None:
        ms = self.random.choice((1, 20, 20, 500, 1000))
        self.brokers.coordinator.pass_time(ms)
        self.brokers.coordinator.settle()
        self.brokers.pass_time(ms)

    # What must hold.

    def _collect_responses(self) -> None:
        """Collect the available responses to writes."""
        self.brokers.leader.settle()
        self.brokers.wake()
        for write in list(self.writes):
            chunks = write.talk.data_to_send()
            if chunks:
                self.writes.remove(write)
                self._answered(write, self._codes(write, chunks))

    def _codes(self, write: Write, chunks: list[object]) -> list[int]:
        decoded = self.brokers.leader.decoded
        if write.names == (OFFSETS,):
            answer = decoded(chunks, write.version, TxnOffsetCommitResponse)  # type: ignore[arg-type]
            return [part.error_code for topic in answer.topics for part in topic.partitions]
        produced = decoded(chunks, write.version, ProduceResponse)  # type: ignore[arg-type]
        return [part.error_code for topic in produced.responses for part in topic.partition_responses]

    def _answered(self, write: Write, codes: list[int]) -> None:
        self._remember(write.producer)
        for name, code in zip(write.names, codes, strict=True):
            if code:
                self.broken.add(write.producer.id)
            else:
                self.acknowledged += 1
                assert name in self.ever.get(write.identity, ()), (
                    write.producer.id,
                    write.identity,
                    name,
                    "is not part of it",
                )

    def heal(self) -> None:
        """End all faults and all open transactions."""
        for name in DATA:
            if not self.led[name]:
                self._lead(name, True)
        self.brokers.set_coordinator(self.coordinator)
        self._drain()
        assert not self.writes, "somebody waits for ever"
        for producer in self.producers:
            if producer.state.state is TransactionState.ONGOING:
                self.brokers.coordinator.broker.transactions.states.abort(producer.id, self.brokers.coordinator.now)
                self.brokers.coordinator.settle()
        self._drain()
        for name in (*DATA, OFFSETS):
            partition = self.brokers.leader.broker.partitions[name]
            assert not partition.has_open_transactions(), (name, partition.log.producers.open_transactions())
        assert self.brokers.take_requests() == []
        assert self.brokers.leader.broker.timers.next_due() is None, "nothing is left to be done"

    def _drain(self) -> None:
        for _ in range(8):
            while self.given_up:
                self.execute_late()
            self.take_requests()
            for effect in self.pending:
                self.answers.append((effect, self._execute(effect)))
            self.pending.clear()
            while self.answers:
                self.deliver_response()
            self.marking += self.brokers.coordinator.broker.take_markers()
            while self.marking:
                self._mark(self.marking.pop())
            self.brokers.coordinator.pass_time(1000)
            self.brokers.coordinator.settle()
            self.brokers.pass_time(1000)
            self._collect_responses()
