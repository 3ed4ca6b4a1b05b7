"""Requests of a transactional producer to its coordinator, in both versions of the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import INT16_MAX, INT32_MAX, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.coordinator_lookup import Coordinator, KeyType
from odradek.client.cluster.describe import check
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import ClientError, Unsupported, response_error
from odradek.client.consumer.group_offsets import NO_MEMBER, Committed, Membership, by_topic, check_committed
from odradek.client.producer.idempotence import Identity, Sequences
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

T = TypeVar("T")

NO_PRODUCER = Identity()
TWO_PHASE_VERSION, RENEWING_VERSION = 6, 3
FENCING_VERSION = 3
ADD_PARTITIONS_VERSION_MAX = 3  # Later versions are for brokers.

# By the use of an epoch per transaction. Later versions of TxnOffsetCommit use topic ids.
PRODUCE_VERSION_MAX = {False: 11, True: INT16_MAX}
END_VERSION_MAX = {False: 4, True: 5}
COMMIT_VERSION_MAX = {False: 4, True: 5}


class TransactionRequests:
    """The requests of one transactional id, with retries of retriable errors, and its transaction's state."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int, *, two_phase: bool) -> None:
        self.transactional_id = transactional_id
        self.identity = NO_PRODUCER
        self.has_epochs = False
        self.can_renew = False  # KIP-360, Kafka 2.5.
        self._cluster = cluster
        self._timeout_ms = INT32_MAX if two_phase else timeout_ms
        self._two_phase = two_phase
        self._coordinator = Coordinator(cluster, KeyType.TRANSACTION, transactional_id)
        self._groups: dict[str, Coordinator] = {}
        self._announced: set[TopicPartition] = set()
        self._announced_groups: set[str] = set()
        self.is_begun = False  # True once the coordinator may know of the transaction.

    # The producer.

    def init(self, *, keep_prepared: bool = False) -> Identity | None:
        """Fence earlier producers; return a prepared transaction that was found and is to be kept."""
        response = self._init(NO_PRODUCER, keep_prepared)
        ongoing = Identity(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
        self.is_begun = ongoing != NO_PRODUCER
        return ongoing if self.is_begun else None

    def renew(self) -> None:
        """Get the next epoch of this producer (KIP-360); raise PRODUCER_FENCED if there is a newer producer."""
        self._init(self.identity, False)

    def _init(self, current: Identity, keep_prepared: bool) -> InitProducerIdResponse:
        def send_init_producer_id(connection: Connection) -> InitProducerIdResponse:
            version = connection.version(InitProducerIdRequest)
            if self._two_phase and version < TWO_PHASE_VERSION:
                raise Unsupported(f"{connection.where} does not support two-phase commit")
            self.can_renew = version >= RENEWING_VERSION
            if current != NO_PRODUCER and not self.can_renew:
                # Without the identity, the broker would treat this producer as the newest one and fence the current
                # one.
                raise Unsupported(f"{connection.where} cannot bump the producer epoch: it is older than Kafka 2.5")
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=current.producer_id,
                producer_epoch=current.epoch,
                enable2_pc=self._two_phase,
                keep_prepared_txn=keep_prepared,
            )
            response = connection.call(request, InitProducerIdResponse, version=version)
            check(response.error_code, self._name, None)
            self.has_epochs = connection.features.get("transaction.version", 0) >= 2
            return response

        response = self._coordinator.call(send_init_producer_id)
        self.identity = Identity(response.producer_id, response.producer_epoch)
        self._forget()
        return response

    @property
    def _name(self) -> str:
        return f"transactional id {self.transactional_id}"

    def _forget(self) -> None:
        self._announced, self._announced_groups, self.is_begun = set(), set(), False

    # Within a transaction.

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Add each partition to the transaction once, if writing to it does not add it."""
        missing = [each for each in partitions if each not in self._announced]
        if missing and not self.has_epochs:
            self._coordinator.call(lambda connection: self._add_partitions(connection, missing))
        self._announced.update(missing)
        self.is_begun = self.is_begun or bool(missing)

    def _add_partitions(self, connection: Connection, partitions: list[TopicPartition]) -> None:
        version = min(connection.version(AddPartitionsToTxnRequest), ADD_PARTITIONS_VERSION_MAX)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[each.partition for each in those])
                for topic, those in by_topic(partitions).items()
            ],
        )
        response = connection.call(request, AddPartitionsToTxnResponse, version=version)
        results = [each for topic in response.results_by_topic_v3_and_below for each in topic.results_by_partition]
        codes = [each.partition_error_code for each in results if each.partition_error_code != ErrorCode.NONE]
        # One invalid partition gives the others OPERATION_NOT_ATTEMPTED, which is not informative.
        codes.sort(key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED)
        if codes:
            raise response_error(codes[0], self._name)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed], membership: Membership) -> None:
        if not offsets:
            return
        if not self.has_epochs and group not in self._announced_groups:
            self._coordinator.call(lambda connection: self._add_group(connection, group))
        self._announced_groups.add(group)
        self.is_begun = True
        coordinator = self._groups.setdefault(group, Coordinator(self._cluster, KeyType.GROUP, group))
        coordinator.call(lambda connection: self._commit_offsets(connection, group, offsets, membership))

    def _add_group(self, connection: Connection, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=group,
        )
        check(connection.call(request, AddOffsetsToTxnResponse).error_code, self._name, None)

    def _commit_offsets(
        self, connection: Connection, group: str, offsets: Mapping[TopicPartition, Committed], membership: Membership
    ) -> None:
        version = min(connection.version(TxnOffsetCommitRequest), COMMIT_VERSION_MAX[self.has_epochs])
        if membership != NO_MEMBER and version < FENCING_VERSION:
            raise Unsupported(f"{connection.where} cannot fence removed group members: it is older than Kafka 2.5")
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            generation_id_or_member_epoch=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic, partitions=[_partition_request(each, offsets[each]) for each in those]
                )
                for topic, those in by_topic(offsets).items()
            ],
        )
        check_committed(group, connection.call(request, TxnOffsetCommitResponse, version=version))

    # End of the transaction.

    def end_transaction(self, *, commit: bool) -> None:
        """End the transaction; send no request if the coordinator does not know of it."""
        if self.is_begun:
            response = self._coordinator.call(lambda connection: self._end(connection, commit))
            if response.producer_id >= 0:
                self.identity = Identity(response.producer_id, response.producer_epoch)
        self._forget()

    def _end(self, connection: Connection, commit: bool) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=commit,
        )
        version = min(connection.version(EndTxnRequest), END_VERSION_MAX[self.has_epochs])
        response = connection.call(request, EndTxnResponse, version=version)
        check(response.error_code, self._name, None)
        return response


def _partition_request(partition: TopicPartition, committed: Committed) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=partition.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        committed_metadata=committed.metadata,
    )


class TransactionSequences(Sequences):
    """The sequence numbers of a transaction's batches.

    They are never renewed within a transaction, which is aborted instead.
    """

    def __init__(self, requests: TransactionRequests) -> None:
        super().__init__(requests.identity, lambda: requests.identity)
        self.has_gap = False  # Numbers were assigned to batches that may not be written.
        self._requests = requests
        self.transactional_id = requests.transactional_id

    @property
    def produce_version_max(self) -> int:
        return PRODUCE_VERSION_MAX[self._requests.has_epochs]

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        self._requests.announce(partitions)

    def may_renew(self, error: ClientError) -> bool:
        return False

    def renew(self, partition: TopicPartition) -> None:
        self.has_gap = True

    def restart(self, identity: Identity) -> None:
        super().restart(identity)
        self.has_gap = False
