"""All clients of a cluster with coordinators: transactional producers, read-committed consumers, and committers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import TypeVar

from odradek.base.units import MIB, BrokerId, Offset, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.partition.positions import READ_COMMITTED
from odradek.record.end_transaction_marker import end_marker
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import decode
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from sim.simclock import MILLISECOND_US
from sim.simcommitters import Committer
from sim.simcoordinated import ACCOUNTS, CoordinatedCluster
from sim.simreplicaclients import FETCH, SimReplicaClients
from sim.simtransactors import PARTITIONS, STATE, Transaction, Transactor

T = TypeVar("T")

READ_US = 200 * MILLISECOND_US


class TransactionClients(SimReplicaClients):
    """The clients; they remember their responses, and all values ever seen as committed."""

    cluster: CoordinatedCluster

    def begin(self) -> None:
        super().begin()
        self.owners: dict[str, Transactor] = {}
        self._epochs: dict[str, tuple[int, int]] = {}
        self._transactions: list[Transaction] = []
        self._by_value: dict[bytes, Transaction] = {}
        self._seen: dict[TopicPartition, set[bytes]] = {one: set() for one in PARTITIONS}
        self._values = itertools.count()
        for name in ("one", "two"):
            Transactor(self, name)
        self.committer = Committer(self)
        self.cluster.clients.after(READ_US, self._read)

    def _find_partitions(self) -> list[tuple[Uuid, TopicPartition]]:
        """Return the partitions that clients without transactions write to."""
        return [(topic_id, one) for topic_id, one in super()._find_partitions() if one.topic.startswith("topic-")]

    def fence(self) -> None:
        """Let another process take over a transactional id, unknown to the previous one."""
        if not self.are_done:
            Transactor(self, self.random.choice(("one", "two")))

    def on_takeover(self, transactional_id: str, owner: Transactor, producer_id: int, epoch: int) -> None:
        """Record the owner of the id: the producer with the greatest epoch, which must be unique."""
        producer, known = (producer_id, epoch), self._epochs.get(transactional_id, (-1, -1))
        assert producer != known, f"{transactional_id} gets {producer} twice"
        if producer > known:
            self._epochs[transactional_id] = producer
            self.owners[transactional_id] = owner

    def new_value(self, transaction: Transaction) -> bytes:
        value = b"%d in a transaction" % next(self._values)
        if not transaction.values:
            self._transactions.append(transaction)
        self._by_value[value] = transaction
        return value

    def send_request(
        self, broker: BrokerId, message: object, kind: type[T], version: int, then: Callable[[T | None], None]
    ) -> None:
        self._send_request(broker, message, kind, version, then)

    # Read-committed consumers.

    def _read(self) -> None:
        """Let a client read committed records from some offset on."""
        if self.are_done:
            return
        partition = self.random.choice(PARTITIONS)
        topic_id = self.cluster.assignment(ACCOUNTS).topic_id
        leader = self.leader(topic_id, partition)
        if leader is not None:
            offset = self.random.randrange(4 * len(self._transactions) + 1)
            partitions = [FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=MIB)]
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=MIB,
                isolation_level=READ_COMMITTED,
                topics=[FetchTopic(topic_id=topic_id, partitions=partitions)],
                forgotten_topics_data=[],
            )
            self._send_request(leader, request, FetchResponse, FETCH, lambda answer: self._was_read(partition, answer))
        self.cluster.clients.after(self.random.randrange(1, READ_US), self._read)

    def _was_read(self, partition: TopicPartition, answer: FetchResponse | None) -> None:
        for topic in answer.responses if answer is not None else ():
            for part in topic.partitions:
                assert isinstance(part.records, bytes | bytearray | memoryview | None)
                aborted = [(one.producer_id, one.first_offset) for one in part.aborted_transactions or ()]
                for value in committed(memoryview(part.records or b""), aborted):
                    assert self._by_value[value].is_commit_requested, (
                        f"{partition} shows {value!r}, which nobody committed"
                    )
                    self._seen[partition].add(value)

    # Invariants without activity.

    def check(self) -> None:
        """Check that committed transactions are complete, and no aborted record is visible."""
        super().check()
        found = {one: self._committed_in(one) for one in PARTITIONS}
        for partition, values in found.items():
            if values is not None:
                lost = self._seen[partition] - values
                assert not lost, f"{partition} has shown {lost} as committed"
        for transaction in self._transactions:
            seen = {value in found[one] for one, value in transaction.values.items() if found[one] is not None}  # type: ignore[operator]
            assert len(seen) < 2, f"of {transaction.values} only some are there"
            if transaction.is_committed is not None:
                assert seen <= {transaction.is_committed}, f"{transaction.values}: {seen}, {transaction.is_committed}"

    def _committed_in(self, partition: TopicPartition) -> set[bytes] | None:
        """Return a read-committed consumer's view of a whole partition; None while it is unknown."""
        cluster = self.cluster
        state, transactions = cluster.state(*partition), cluster.state(*STATE)
        least = cluster.configs.int("min.insync.replicas")
        if state is None or transactions is None or min(len(state.isr), len(transactions.isr)) < least:
            return None
        if state.leader not in cluster.members or transactions.leader not in cluster.members:
            return None
        here = cluster.members[state.leader].broker.partitions[partition]
        stable, end = here.last_stable_offset, here.log.end_offset
        assert stable == end, f"{partition} has a transaction open at {stable} of {end}"
        values, offset = set[bytes](), Offset(0)
        while offset < stable:
            read = here.read(offset, MIB, at_least_one=True, read_committed=True)
            data = memoryview(read.records.read())
            values.update(committed(data, [(one.producer_id, one.first_offset) for one in read.aborted]))
            offset = Offset(max(batch.next_offset for batch in iter_batches(data)))
        return values


def committed(records: memoryview, aborted: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the values that a read-committed consumer keeps (KIP-98)."""
    left, open_producers = sorted(aborted, key=itemgetter(1)), set[int]()
    for batch in iter_batches(records):
        while left and left[0][1] <= batch.last_offset:
            open_producers.add(left.pop(0)[0])
        marker = end_marker(Batch.trusted(batch.view)) if batch.is_control else None
        if marker is not None and not marker.is_commit:
            open_producers.discard(batch.producer_id)
        if not batch.is_control and batch.producer_id not in open_producers:
            yield from (record.value or b"" for record in decode(batch))
