"""Idempotent producers of the replicated cluster, with several batches in flight like librdkafka.

    new batches ──> pending, in order ──> the leader's connection ──┬─> acknowledged, the oldest first
                       ^                                            │
                       └── refused or no response: same sequences ──┘

A batch that is out of order may have followed a refused one, and is resent. But if all earlier batches were
acknowledged when it was sent, the leader has lost one of them, or does not know its producer: librdkafka treats that as
fatal, and here it fails the history. The exception is a former leader that does not know it was replaced: a client may
learn of an earlier leader from one broker, receive responses from a later one, and send to the earlier one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from odradek.base.uuids import Uuid
from odradek.net.channels.channel_requests import RequestBuilder
from odradek.record.builder import encode_batch
from odradek.wire.messages.produce import ProduceResponse
from sim.simclock import MILLISECOND_US
from sim.simpipes import Pipe

if TYPE_CHECKING:
    from sim.simreplicaclients import SimReplicaClients

ALL = -1
PRODUCE = 13  # By topic id.
PAUSE_US = 300 * MILLISECOND_US
IDS = 1000  # Between the ids of one producer.
# Retriable errors; any other error means that an acknowledged record is lost.
RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class Numbered:
    """A batch that is not acknowledged, or that follows one not acknowledged."""

    def __init__(self, values: Sequence[bytes], sequence: int, records: bytearray) -> None:
        self.values = values
        self.sequence = sequence
        self.records = records
        self.is_in_flight = self.is_acknowledged = False
        self.was_first = False  # All earlier batches were acknowledged when it was sent.


class IdempotentProducer:
    """A producer that writes to one partition until its topic is deleted, despite all broker failures."""

    def __init__(self, clients: SimReplicaClients, producer_id: ProducerId) -> None:
        self._clients = clients
        self._id = producer_id
        self._sequence = 0
        self._in_flight_max = clients.random.choice((1, 3, 5, 5))
        self._waits_for_all = clients.random.random() < 0.5  # Pause before it resends.
        self._pipe: Pipe | None = None
        self._pending: deque[Numbered] = deque()
        self.at: tuple[Uuid, TopicPartition] | None = None
        self.acknowledged: list[bytes] = []
        self._later()

    def _later(self) -> None:
        self._clients.cluster.clients.after(self._clients.random.randrange(1, PAUSE_US), self._continue)

    def _continue(self) -> None:
        """Resend the batches that need it, or else send a new one."""
        clients = self._clients
        if self.at is None:
            found = [(id, name) for id, name in clients.partitions() if id not in clients.cluster.unsafe]
            self.at = clients.random.choice(found) if found else None
        elif self.at not in clients.partitions():
            return  # The topic is gone.
        if self.at is not None:
            self._send_all()
            self._later()

    def _send_all(self) -> None:
        pipe = self._connected()
        if pipe is None:
            return
        for batch in list(self._pending):
            if not batch.is_in_flight and not batch.is_acknowledged and not pipe.is_closed:
                self._send(pipe, batch)
        while len(self._pending) < self._in_flight_max and not self._clients.are_done:
            self._send(pipe, self._new())
            if self._clients.random.random() < 0.4:
                return

    def _connected(self) -> Pipe | None:
        """Return the connection to the supposed leader; None while responses from another broker are pending."""
        clients = self._clients
        assert self.at is not None
        leader = clients.leader(*self.at)
        pipe = self._pipe
        if pipe is not None and pipe.broker == leader and not pipe.is_closed:
            return None if self._waits_for_all and self._is_behind() else pipe
        if leader is None or (self._waits_for_all and any(batch.is_in_flight for batch in self._pending)):
            return None
        self._pipe = Pipe(clients.cluster.lines, clients.cluster.members[leader])
        return self._pipe

    def _is_behind(self) -> bool:
        """Return True if some batches have to be resent, and others have no response yet."""
        left = [batch.is_in_flight for batch in self._pending if not batch.is_acknowledged]
        return any(left) and not all(left)

    def _new(self) -> Numbered:
        count = self._clients.random.randint(1, 3)
        values = [b"%d of %d" % (self._sequence + number, self._id) for number in range(count)]
        records = encode_batch(
            [(None, value, (), self._clients.time()) for value in values],
            producer_id=self._id,
            producer_epoch=ProducerEpoch(0),
            base_sequence=self._sequence,
        )
        batch = Numbered(values, self._sequence, records)
        self._sequence += count
        self._pending.append(batch)
        return batch

    def _send(self, pipe: Pipe, batch: Numbered) -> None:
        assert self.at is not None
        topic_id, partition = self.at
        batch.is_in_flight = True
        batch.was_first = batch is self._pending[0]

        def answered(response: ProduceResponse | None) -> None:
            batch.is_in_flight = False
            if response is not None:
                (part,) = response.responses[0].partition_responses
                self._take(pipe.broker, batch, ErrorCode(part.error_code), part.base_offset)

        request = self._clients.produce_request(topic_id, partition, batch.records, ALL)
        pipe.send_request(RequestBuilder.of(request, ProduceResponse, self._clients.produce_version), answered)

    def _take(self, broker: BrokerId, batch: Numbered, error: ErrorCode, base_offset: int) -> None:
        clients, at = self._clients, self.at
        assert at is not None
        if error is ErrorCode.NONE:
            clients.is_acknowledged(*at, batch.values, base_offset)
            batch.is_acknowledged = True
            while self._pending and self._pending[0].is_acknowledged:
                self.acknowledged += self._pending.popleft().values
        elif error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if not batch.was_first or batch not in self._pending or at not in clients.partitions():
                return
            if self._was_deposed(broker, at[1]):
                return
            assert not self.acknowledged, f"{at[1]} is led by who does not know what comes before {batch.values}"
            self._restart()
        else:
            assert error in RETRIABLE or at not in clients.partitions(), f"{error}"

    def _was_deposed(self, broker: BrokerId, partition: TopicPartition) -> bool:
        """Return True if another broker leads, or the same one in a newer epoch unknown to it."""
        cluster = self._clients.cluster
        state, replica = cluster.state(*partition), cluster.members[broker].broker.partitions.get(partition)
        known = None if replica is None else replica.info.leader_epoch
        return state is None or (state.leader, state.leader_epoch) != (broker, known)

    def _restart(self) -> None:
        """Request a new producer id: the second batch was written although the first was refused.

        A leader that does not know a producer accepts any sequence, as in Apache Kafka.
        """
        self._id = ProducerId(self._id + IDS)
        self._sequence = 0
        self._pending.clear()

    def check(self) -> None:
        """Check that acknowledged records are present once, in order, and no record is present twice."""
        assert self.at is not None
        cluster, partition = self._clients.cluster, self.at[1]
        state = cluster.state(*partition)
        if state is None or state.leader not in cluster.members:
            return
        ours = b" of %d" % self._id
        found = [value for value in cluster.members[state.leader].contents(partition).values() if value.endswith(ours)]
        kept = found[: len(self.acknowledged)]  # Batches without a response may be present, too.
        assert kept == self.acknowledged, f"{partition} has {found}, acknowledged were {self.acknowledged}"
        assert len({*found}) == len(found), f"{partition} has twice what was written once: {found}"
