"""Idempotence: numbered batches, which the broker writes once even if they are sent repeatedly.

A partition's batches contain the producer's id and epoch and the sequence of their first record (KIP-98). The numbers
are set when a batch is sent for the first time. The checksum covers them and is recomputed, which takes 20 µs for half
a megabyte. A retry sends the same bytes.

│ 17 │ u32 │ CRC-32C of all below                   │
│ 21 │ i16 │ attributes, with the transactional bit │
│ 43 │ i64 │ producer id                            │
│ 51 │ i16 │ producer epoch                         │
│ 53 │ i32 │ base sequence                          │
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.base.units import INT16_MAX, INT32_MAX, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.describe import check
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import ClientError, ErrorResponse, Unsupported
from odradek.record.crc import crc32c
from odradek.record.record_batch import CHECKSUMMED_FROM, CRC_POSITION, TRANSACTIONAL, BatchHeader
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

Buffer = bytes | bytearray | memoryview

_CRC = Struct(">I")
_ATTRIBUTES, _ATTRIBUTES_POSITION = Struct(">h"), 21
_PRODUCER, _PRODUCER_POSITION = Struct(">qhi"), 43

# The broker does not know these numbers: its state of this producer was removed or truncated, or never existed.
RENEWABLE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class Identity(NamedTuple):
    """A producer's id and epoch; its text form is that of prepared transactions in Kafka's clients."""

    producer_id: int = -1
    epoch: int = -1

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Identity:
        """Parse the text form, or raise ValueError."""
        producer_id, _, epoch = text.partition(":")
        return cls(int(producer_id), int(epoch))


@dataclass(slots=True)
class _PartitionSequence:
    """The sequence state of one partition; its identity may be newer than another partition's."""

    identity: Identity
    next: int = 0


class Sequences:
    """The sequence numbers of one producer's batches.

    One batch of a partition may be unanswered at a time. `next_identity` returns the next one after the epochs of one
    are used up; it may raise ClientError.
    """

    transactional_id: str | None = None

    def __init__(self, identity: Identity, next_identity: Callable[[], Identity]) -> None:
        self.identity = identity
        self._next_identity = next_identity
        self._partitions: dict[TopicPartition, _PartitionSequence] = {}

    @property
    def produce_version_max(self) -> int:
        """Return the newest version of Produce to use; later ones may add a batch to a transaction."""
        return INT16_MAX

    def assign_numbers(self, partition: TopicPartition, batch: Buffer) -> Buffer:
        """Return the batch with the partition's next numbers, modified in place if it is writable."""
        numbering = self._partitions.get(partition)
        if numbering is None:
            numbering = self._partitions[partition] = _PartitionSequence(self.identity)
        elif numbering.identity.epoch > INT16_MAX:
            numbering = self._partitions[partition] = _PartitionSequence(self._next_identity())
        numbers = stamp(batch, numbering.identity, numbering.next, is_transactional=self.transactional_id is not None)
        numbering.next = (numbering.next + BatchHeader(batch).records_count) & INT32_MAX
        return numbers

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Prepare for sending to these partitions; raise an error that prevents it."""

    def may_renew(self, error: ClientError) -> bool:
        """Return whether the batch is not written and can be sent with new numbers."""
        return isinstance(error, ErrorResponse) and error.code in RENEWABLE

    def renew(self, partition: TopicPartition) -> None:
        """Restart at 0 with the next epoch, which fences earlier batches, as Kafka's clients do (KIP-360).

        This also happens after giving up on a batch that may or may not have been written.
        """
        numbering = self._partitions.get(partition)
        if numbering is not None:
            numbering.identity = numbering.identity._replace(epoch=numbering.identity.epoch + 1)
            numbering.next = 0

    def rewind(self, partition: TopicPartition, batch: Buffer) -> None:
        """Reuse the numbers of a batch that was finally rejected for its replacement."""
        self._partitions[partition].next = BatchHeader(batch).base_sequence

    def restart(self, identity: Identity) -> None:
        """Restart all partitions at 0 with this identity."""
        self.identity = identity
        self._partitions.clear()


def stamp(batch: Buffer, identity: Identity, sequence: int, *, is_transactional: bool = False) -> Buffer:
    """Write a producer's numbers into a batch of format 2; return a copy if it is read-only."""
    if isinstance(batch, bytes) or (isinstance(batch, memoryview) and batch.readonly):
        batch = bytearray(batch)
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_POSITION)
    attributes = attributes | TRANSACTIONAL if is_transactional else attributes & ~TRANSACTIONAL
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_POSITION, attributes)
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, *identity, sequence)
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CHECKSUMMED_FROM:]))
    return batch


def idempotent(cluster: Cluster) -> Sequences | None:
    """Get a producer id from any broker; return None if brokers assign none, or none to this client."""

    def send_init_producer_id(connection: Connection) -> Identity:
        response = connection.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT32_MAX), InitProducerIdResponse
        )
        check(response.error_code, "producer id", None)
        return Identity(response.producer_id, response.producer_epoch)

    def identity() -> Identity:
        return cluster.call_any(send_init_producer_id)

    try:
        return Sequences(identity(), identity)
    except Unsupported:
        return None
    except ErrorResponse as error:
        if error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return None
        raise
