"""Produce requests of an idempotent producer, whose sequence numbers go on from request to request.

A batch's checksum covers its sequence number.  A CRC is linear: how a change of bits changes it depends on which bits
and where they are, not on the rest, and the changes of several bits add up (XOR).  So that is computed once for each
bit, and then a request costs the load a microsecond, however large it is.  The load without sequences does the same
work, so that the broker's part is what differs.
"""

from __future__ import annotations

from struct import Struct

import frames
from control import Producer

from odradek.record.crc import crc32c
from odradek.record.record_batch import CHECKSUMMED_FROM, CRC_POSITION, TRANSACTIONAL

SEQUENCES = 1 << 31  # After 2147483647 comes 0.
NO_PRODUCER = Producer(-1, -1)
NO_SEQUENCE = (1 << 32) - 1
_PRODUCER = Struct(">qhI")  # Id, epoch, first sequence number.
_PRODUCER_POSITION = 43
_SEQUENCE_POSITION = 53
_ATTRIBUTES_POSITION = 21
_U32 = Struct(">I")


def of_producer(records: bytes, producer: Producer, sequence: int, *, is_transactional: bool = False) -> bytearray:
    """The batch as this producer would have made it."""
    batch = bytearray(records)
    batch[_ATTRIBUTES_POSITION + 1] |= TRANSACTIONAL if is_transactional else 0
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer.id, producer.epoch, sequence)
    _U32.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CHECKSUMMED_FROM:]))
    return batch


class Checksums:
    """The checksum of one batch with any sequence number."""

    def __init__(self, records: bytes, producer: Producer) -> None:
        self._base = _checksum(of_producer(records, producer, 0))
        bits = [_checksum(of_producer(records, producer, 1 << bit)) ^ self._base for bit in range(32)]
        self._bytes = [_sums(bits[at : at + 8]) for at in range(0, 32, 8)]

    def of(self, sequence: int) -> int:
        low, second, third, high = self._bytes
        return (
            self._base
            ^ low[sequence & 255]
            ^ second[sequence >> 8 & 255]
            ^ third[sequence >> 16 & 255]
            ^ high[sequence >> 24]
        )


def _checksum(batch: bytearray) -> int:
    checksum: int = _U32.unpack_from(batch, CRC_POSITION)[0]
    return checksum


def _sums(bits: list[int]) -> list[int]:
    """Of every choice of these bits."""
    sums = [0]
    for bit in bits:
        sums += [bit ^ other for other in sums]
    return sums


class Sequenced:
    """A ring, as load_produce has it, of one request that is patched; without a producer, always to the same."""

    count = 1

    def __init__(
        self,
        topic: str,
        acks: int,
        batch: frames.Batches,
        producer: Producer | None,
        window: int,
        *,
        partition: int = 0,
    ) -> None:
        identity = producer or NO_PRODUCER
        first = bytes(of_producer(batch.data, identity, 0 if producer else NO_SEQUENCE))
        frame = frames.produce(topic, partition, acks, first)
        self.frame_bytes = len(frame)
        self._buffer = bytearray(frame * window)
        self._batch_at = frame.index(first[:CHECKSUMMED_FROM])
        self._records = batch.records if producer else 0
        self._none = 0 if producer else NO_SEQUENCE
        self._checksums = Checksums(batch.data, identity)

    def slice(self, at: int, count: int) -> memoryview:
        """Valid until the next call."""
        position, buffer, checksums = self._batch_at, self._buffer, self._checksums
        for number in range(at, at + count):
            sequence = number * self._records % SEQUENCES | self._none
            _U32.pack_into(buffer, position + CRC_POSITION, checksums.of(sequence))
            _U32.pack_into(buffer, position + _SEQUENCE_POSITION, sequence)
            position += self.frame_bytes
        return memoryview(buffer)[: count * self.frame_bytes]
