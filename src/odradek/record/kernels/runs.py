"""Runs of whole batches in a part of a log, checked by header and checksum for recovery.

In Python a single batch costs 3 µs, and a segment of a gigabyte may have ten million batches. A run ends before bytes
that are not a whole batch of format 2. log/segment/scan.py examines these bytes; its walk_checked is the readable twin
of this file.

The walk also collects the state of idempotent producers that log/producers/producer_state.py maintains.
"""

from __future__ import annotations

from typing import TypeAlias

try:
    import cython
except ImportError:
    from odradek.record.kernels import _shim as cython

if not cython.compiled:
    from odradek.record.kernels._checksum import checksum, prepare_checksums
    from odradek.record.kernels._copy import wrap64

Bytes: TypeAlias = bytes | bytearray | memoryview

COMPILED = bool(cython.compiled)

INT32_MAX = (1 << 31) - 1
UINT32_SPAN = 1 << 32
LOG_OVERHEAD_BYTES = 12
HEADER_BYTES = 61
MAGIC = 2
TRANSACTIONAL = 0x10
CONTROL = 0x20
KEPT = 5  # Batches of each producer.

prepare_checksums()


class Tally:
    """The batches of one producer in file order: the last ones, and the first one in a transaction."""

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.has_new_epoch = False
        self.first_transactional = -1
        self.timestamp = -1
        self.count = 0
        self.sent = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]

    def add(  # noqa: PLR0917
        self, epoch: int, sequence: int, base_offset: int, delta: int, timestamp: int, is_transactional: bool
    ) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.has_new_epoch = True
            self.count = 0
        if is_transactional and self.first_transactional < 0:
            self.first_transactional = base_offset
        at = self.count % KEPT * 4
        self.sent[at] = (sequence + delta) & INT32_MAX if sequence >= 0 else -1
        self.sent[at + 1] = base_offset + delta
        self.sent[at + 2] = delta
        self.sent[at + 3] = timestamp
        self.timestamp = timestamp
        self.count += 1

    def batches(self) -> tuple[tuple[int, int, int, int], ...]:
        """Return (last sequence, last offset, offset delta, timestamp) of each batch, oldest first."""
        found = []
        for number in range(max(self.count - KEPT, 0), self.count):
            at = number % KEPT * 4
            found.append((self.sent[at], self.sent[at + 1], self.sent[at + 2], self.sent[at + 3]))
        return tuple(found)


class Runs:
    """Walk of a segment from its start; `add_batch` adds batches that were walked by other code.

    A run ends before a batch with a new leader epoch. It has only one batch if an index entry is due, and at the start
    of the segment. A run can therefore be indexed like a single batch. A run ends after a control batch, which is then
    in `control`. `tallies` are by producer and accumulate until the caller clears them.
    """

    def __init__(self, base_offset: int, next_offset: int, latest_epoch: int, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.latest_epoch = latest_epoch
        self.index_interval_bytes = index_interval_bytes
        self.since_index = 0
        self.walked = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.first_offset = 0
        self.first_epoch = 0
        self.run_max_timestamp = 0
        self.tallies: dict[int, Tally] = {}
        self.control: bytes | None = None

    def run(self, chunk: Bytes, start: int) -> int:
        """Return the size of the run that starts at `start`, or 0 if the bytes there are no valid whole batch."""
        self.control = None
        view = memoryview(chunk)
        data = chunk
        end = len(view)
        at = start
        while at + HEADER_BYTES <= end:
            size = int32(data, at + 8)
            if not HEADER_BYTES - LOG_OVERHEAD_BYTES <= size <= end - at - LOG_OVERHEAD_BYTES or data[at + 16] != MAGIC:
                break
            size += LOG_OVERHEAD_BYTES
            offset = int64(data, at)
            delta = int32(data, at + 23)
            if offset < self.next_offset or delta < 0 or offset - self.base_offset > INT32_MAX - delta:
                break
            epoch = int32(data, at + 12)
            is_due = self.walked == 0 or self.since_index > self.index_interval_bytes
            if at > start and (is_due or epoch > self.latest_epoch):
                break
            if number(data, at + 17, 4) != checksum(data, at + 21, size - 21):
                break
            timestamp = int64(data, at + 35)
            if at == start:
                self.first_offset = offset
                self.first_epoch = epoch
                self.run_max_timestamp = timestamp
            self.run_max_timestamp = max(self.run_max_timestamp, timestamp)
            self.add_batch(size, offset + delta, timestamp, epoch)
            producer_id = int64(data, at + 43)
            if producer_id >= 0:
                attributes = data[at + 22]
                if attributes & CONTROL:
                    self.control = bytes(view[at : at + size])
                else:
                    self.tally(
                        producer_id,
                        int16(data, at + 51),
                        int32(data, at + 53),
                        offset,
                        delta,
                        timestamp,
                        (attributes & TRANSACTIONAL) != 0,
                    )
            at += size
            if is_due or self.control is not None:
                break
        return at - start

    def tally(  # noqa: PLR0917
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        base_offset: int,
        delta: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        """Add a batch of an idempotent producer, in file order."""
        tally = self.tallies.get(producer_id)
        if tally is None:
            tally = self.tallies[producer_id] = Tally(producer_id, epoch)
        tally.add(epoch, sequence, base_offset, delta, timestamp, is_transactional)

    def add_batch(self, size: int, last_offset: int, max_timestamp: int, epoch: int) -> None:
        """Add a batch, in file order."""
        if self.since_index > self.index_interval_bytes:
            self.since_index = 0
        self.since_index += size
        self.walked += 1
        self.next_offset = last_offset + 1
        self.latest_epoch = max(self.latest_epoch, epoch)
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset


def number(data: Bytes, at: int, size: int) -> int:
    """Return a big-endian number of at most eight bytes.

    In compiled code, the highest bit of eight bytes is the sign.
    """
    value = 0
    for index in range(at, at + size):
        value = value << 8 | data[index]
    return value


def int16(data: Bytes, at: int) -> int:
    value = number(data, at, 2)
    return value - 65536 if value > 32767 else value


def int32(data: Bytes, at: int) -> int:
    value = number(data, at, 4)
    return value - UINT32_SPAN if value > INT32_MAX else value


def int64(data: Bytes, at: int) -> int:
    return wrap64(number(data, at, 8))
