"""Idempotent producers of the replicated cluster: several batches in flight on one connection, as librdkafka has them.

    new batches ──> pending, in their order ──> the leader's connection ──┬─> acknowledged, the oldest first
                       ^                                                  │
                       └── refused, or no answer: the same sequences ─────┘

What does not follow was perhaps sent behind what was refused, and is sent again.  But if all before a batch were
acknowledged when it was sent, the leader has lost one of those, or does not know its producer: for librdkafka that is
fatal, and here it fails the history.  Not if who says so was deposed and has not heard it: a client may hear of the
leader before from one broker, have its answers from the one after, and ask the one before.
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
# What a retry may help against; others say that something acknowledged is gone.
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
    """A batch that is not acknowledged, or not before all of those before it."""

    def __init__(self, values: Sequence[bytes], sequence: int, records: bytearray) -> None:
        self.values = values
        self.sequence = sequence
        self.records = records
        self.is_in_flight = self.is_acknowledged = False
        self.was_first = False  # All before it were acknowledged when it was sent.


class IdempotentProducer:
    """A producer that writes to one partition until its topic is gone, whatever happens to its brokers."""

    def __init__(self, clients: SimReplicaClients, producer_id: ProducerId) -> None:
        self._clients = clients
        self._id = producer_id
        self._sequence = 0
        self._in_flight_max = clients.random.choice((1, 3, 5, 5))
        self._waits_for_all = clients.random.random() < 0.5  # Before it sends anything again.
        self._pipe: Pipe | None = None
        self._pending: deque[Numbered] = deque()
        self.at: tuple[Uuid, TopicPartition] | None = None
        self.acknowledged: list[bytes] = []
        self._later()

    def _later(self) -> None:
        self._clients.cluster.clients.after(self._clients.random.randrange(1, PAUSE_US), self._go_on)

    def _go_on(self) -> None:
        """Sends what has to be sent again, else something new."""
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
        """Returns the connection to who seems to lead; None while it waits for answers from elsewhere."""
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
        """True if some are to be sent again, and others have no answer yet."""
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
        pipe.ask(RequestBuilder.of(request, ProduceResponse, self._clients.produce_version), answered)

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
            self._begin_anew()
        else:
            assert error in RETRIABLE or at not in clients.partitions(), f"{error}"

    def _was_deposed(self, broker: BrokerId, partition: TopicPartition) -> bool:
        """True if another leads, or the broker itself in an epoch that it has not heard of."""
        cluster = self._clients.cluster
        state, replica = cluster.state(*partition), cluster.members[broker].broker.partitions.get(partition)
        known = None if replica is None else replica.info.leader_epoch
        return state is None or (state.leader, state.leader_epoch) != (broker, known)

    def _begin_anew(self) -> None:
        """Takes another id: the second batch was written without the first, which had been refused.

        A leader that knows nothing of a producer takes any sequence, as in Apache Kafka.
        """
        self._id = ProducerId(self._id + IDS)
        self._sequence = 0
        self._pending.clear()

    def check(self) -> None:
        """What was acknowledged is there once, in its order, and nothing is there twice."""
        assert self.at is not None
        cluster, partition = self._clients.cluster, self.at[1]
        state = cluster.state(*partition)
        if state is None or state.leader not in cluster.members:
            return
        ours = b" of %d" % self._id
        found = [value for value in cluster.members[state.leader].contents(partition).values() if value.endswith(ours)]
        kept = found[: len(self.acknowledged)]  # What has no answer may be there, too.
        assert kept == self.acknowledged, f"{partition} has {found}, acknowledged were {self.acknowledged}"
        assert len({*found}) == len(found), f"{partition} has twice what was written once: {found}"
