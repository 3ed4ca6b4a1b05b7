"""Transactional producers that read, process and write, and successors that take over from them.

A processor reads one topic from its group's committed offsets, and commits its offsets with its writes. It assigns
itself all partitions: only its transactional id ensures that there is a single active instance.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from sim.history import Committed, Fetched, Seen, Transaction, Value
from sim.simclients import Environment
from sim.simclock import SimNode
from sim.simfetching import SimFetcher
from sim.simsteps import Steps, TransactionFailed
from sim.simtransactions import PAUSED_US, TAKEOVER_US, SimTransactor

WAIT_MS = 200


class SimProcessor(SimTransactor):
    """A processor: each value read from `source` belongs to one of its committed transactions."""

    def __init__(
        self,
        name: str,
        node: SimNode,
        environment: Environment,
        topic: TopicName,
        transactional_id: str,
        *,
        source: TopicName | None = None,
    ) -> None:
        super().__init__(name, node, environment, topic, transactional_id)
        self._source = source  # None: it only sends.
        self._group = f"{transactional_id}-group"
        self._fetcher = SimFetcher(self, self._read, self._refused, read_committed=True)
        self._transaction: Transaction | None = None
        self._commits: list[Committed] = []

    def begun(self) -> Steps[None]:
        """Return to the group's committed offsets, once any open transaction has ended."""
        if self._source is None:
            return
        yield from self.find_all([self._source])
        yield from self.find_coordinator(self._group, 0)
        yield from self._find_positions(self._source)

    def _find_positions(self, source: TopicName) -> Steps[None]:
        indexes = [partition.partition for partition in self.environment.partitions(source)]
        topics = [OffsetFetchRequestTopic(name=source, partition_indexes=indexes)]
        request = OffsetFetchRequest(group_id=self._group, topics=topics, require_stable=True)
        invoked_us = self.environment.clock.now_us
        response, code = yield from self.request_with_retries(request, 7, OffsetFetchResponse, _fetch_error)
        assert code is ErrorCode.NONE, f"{self.name} is not told its offsets: {code.name}"
        positions: dict[TopicPartition, int] = {}
        for part in response.topics[0].partitions:
            partition, offset = TopicPartition(source, part.partition_index), part.committed_offset
            now_us = self.environment.clock.now_us
            self.history.fetched.append(Fetched(self._group, partition, offset, invoked_us, now_us))
            positions[partition] = max(offset, 0)
        self.add_event("from", " ".join(f"{partition}@{offset}" for partition, offset in positions.items()))
        self._fetcher.assign(positions)

    def fill(self, transaction: Transaction) -> Steps[None]:
        if self._source is not None:
            transaction.group = self._group
            transaction.positions = dict(self._fetcher.positions)
            self._transaction = transaction
            yield lambda then: self._fetcher.fetch(then, WAIT_MS)
        yield from super().fill(transaction)
        if transaction.read:
            yield from self._send_offsets(transaction)

    def _read(self, partition: TopicPartition, offset: int, value: Value) -> None:
        assert self._transaction is not None, "only in a transaction it reads"
        now_us = self.environment.clock.now_us
        self._transaction.read.append(Seen(self.name, self._fetcher.era, now_us, partition, offset, value))
        self.add_event("read", f"{partition}@{offset} {value}")

    def _refused(self, partition: TopicPartition, code: ErrorCode) -> None:
        assert code != ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} had {self._fetcher.positions[partition]} committed"
        self.add_event("refused", f"{partition} {code.name}")

    # Offsets.

    def _send_offsets(self, transaction: Transaction) -> Steps[None]:
        """Commit the read offsets as part of the transaction; raise TransactionFailed."""
        producer_id, epoch = self.identity.producer
        if not self.has_epochs:
            adds = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=self._group,
            )
            _, code = yield from self.request_with_retries(
                adds, 3, AddOffsetsToTxnResponse, lambda response: response.error_code
            )
            if code is not ErrorCode.NONE:
                raise TransactionFailed(code)
        version = 5 if self.has_epochs else 3
        _, code = yield from self.request_with_retries(self._offsets(), version, TxnOffsetCommitResponse, _commit_error)
        if code is not ErrorCode.NONE:
            raise TransactionFailed(code)

    def _offsets(self) -> TxnOffsetCommitRequest:
        producer_id, epoch = self.identity.producer
        parts = [
            TxnOffsetCommitRequestPartition(
                partition_index=partition.partition, committed_offset=offset, committed_metadata=None
            )
            for partition, offset in self._fetcher.positions.items()
        ]
        assert self._source is not None, "it has read from there"
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self._group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self._source, partitions=parts)],
        )

    def on_commit_requested(self, transaction: Transaction) -> None:
        now_us, positions = self.environment.clock.now_us, self._fetcher.positions if transaction.read else {}
        self._commits = [Committed(self._group, self.name, one, offset, now_us) for one, offset in positions.items()]
        self.history.commits += self._commits

    def ended(self, transaction: Transaction) -> None:
        """Note the commit; after an abort, reread the transaction's input."""
        if transaction.is_committed:
            for commit in self._commits:
                commit.acknowledged_us = self.environment.clock.now_us
        elif transaction.group is not None:
            self._fetcher.assign(transaction.positions)


class SimSuccessor(SimProcessor):
    """Another instance, which takes over from the first while that one is paused."""

    _predecessor: SimTransactor

    def take_over_from(self, predecessor: SimTransactor) -> SimSuccessor:
        """Set the first instance; return the successor itself."""
        self._predecessor = predecessor
        return self

    def begin(self) -> None:
        self.node.after(self.random.randrange(*TAKEOVER_US), self._take_over)

    def drain(self) -> None:
        super().drain()
        if self._steps is None:
            self.end()

    def _take_over(self) -> None:
        if self.is_draining:
            return
        predecessor = self._predecessor
        self.add_event("takes", f"over from {predecessor.name}")
        predecessor.is_succeeded = True
        predecessor.node.pause()
        self.node.clock.after(self.random.randrange(*PAUSED_US), predecessor.node.resume)
        super().begin()


def _fetch_error(answer: OffsetFetchResponse) -> int:
    codes = (part.error_code for topic in answer.topics for part in topic.partitions)
    return answer.error_code or next((code for code in codes if code), 0)


def _commit_error(answer: TxnOffsetCommitResponse) -> int:
    codes = (part.error_code for topic in answer.topics for part in topic.partitions)
    return next((code for code in codes if code), 0)
