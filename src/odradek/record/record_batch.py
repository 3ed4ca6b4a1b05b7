"""Record batches of format 2, the unit in which records are sent and stored.

A Batch is a view of its bytes, never a copy. The batch of a produce request passes Batch.checked once and is trusted
afterwards. The log stamps the base offset and the leader epoch in place (both precede the checksummed part) and writes
the same bytes. The records inside stay opaque.

│  0 │ i64 │ base_offset            │
│  8 │ i32 │ bytes after this field │
│ 12 │ i32 │ leader_epoch           │
│ 16 │ i8  │ magic = 2              │
│ 17 │ u32 │ CRC-32C of all below   │
│ 21 │ i16 │ attributes: 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon │
│ 23 │ i32 │ last_offset_delta      │
│ 27 │ i64 │ base_timestamp         │
│ 35 │ i64 │ max_timestamp          │
│ 43 │ i64 │ producer_id            │
│ 51 │ i16 │ producer_epoch         │
│ 53 │ i32 │ base_sequence          │
│ 57 │ i32 │ records_count          │
│ 61 │     │ records, compressed as a whole when a codec is set │
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import RECORDS_PER_BATCH_MAX
from odradek.base.units import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.record.compression import Codec
from odradek.record.crc import Buffer, crc32c

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12  # base_offset and length, which precede the bytes that the length counts.
MAGIC = 2
MAGIC_POSITION = 16
CRC_POSITION = 17
CHECKSUMMED_FROM = 21

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

HEADER = Struct(">qiibIhiqqqhii")
_OFFSET_AND_LENGTH = Struct(">qi")
_LENGTH_MIN = 14  # Minimum of the oldest format: a message without key and value.
_LOG_FIELDS = Struct(">qii")  # Base offset, length and leader epoch.
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_CODECS = tuple(Codec)
_CODECS_END = len(_CODECS)
_unpack_length = Struct(">i").unpack_from

assert HEADER.size == HEADER_BYTES


class BatchHeader:
    """The 61 bytes before the records, read once.

    `size` is the size of the whole batch, which may extend beyond the buffer.
    """

    base_offset: Offset
    batch_length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: TimestampMs
    max_timestamp: TimestampMs
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    records_count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Read the header at `position`, which must have HEADER_BYTES bytes; nothing else is checked."""
        (
            self.base_offset,
            self.batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.records_count,
        ) = HEADER.unpack_from(buffer, position)

    @property
    def size(self) -> int:
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """Return the last sequence, which wraps from 2^31 - 1 to 0; -1 for a batch without one."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> Codec:
        code = self.attributes & CODEC_MASK
        if code >= _CODECS_END:
            raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {code}")
        return _CODECS[code]

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def delete_horizon(self) -> TimestampMs | None:
        """Return the time after which tombstones may be removed, or None.

        A batch with a delete horizon (KIP-534) stores it in place of the base timestamp.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(offsets {self.base_offset}..{self.last_offset}, epoch {self.leader_epoch}, "
            f"{self.records_count} records, {self.size} bytes, attributes {self.attributes:#x})"
        )


class Batch(BatchHeader):
    """One whole batch; `view` contains exactly its bytes."""

    view: memoryview

    @classmethod
    def trusted(cls, buffer: Buffer) -> Batch:
        """Return a batch without any checks, for bytes checked before, such as those of our own log."""
        batch = cls(buffer)
        batch.view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
        return batch

    @classmethod
    def verified(cls, buffer: Buffer) -> Batch:
        """Check the format and checksum of a batch from another leader or from disk.

        The restrictions on producers are not checked. Raise Refused(CORRUPT_MESSAGE), or INVALID_RECORD for a format
        before 2.
        """
        size = len(buffer)
        if size < HEADER_BYTES:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes are fewer than a batch header")
        batch = cls(buffer)
        batch.view = view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
        if batch.magic != MAGIC:
            raise _wrong_magic(batch.magic)
        if batch.batch_length != size - LOG_OVERHEAD_BYTES:
            raise Refused(
                ErrorCode.CORRUPT_MESSAGE, f"the batch length {batch.size} does not match the received {size} bytes"
            )
        if crc32c(view[CHECKSUMMED_FROM:]) != batch.crc:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the checksum does not match the stored {batch.crc:#010x}")
        return batch

    @classmethod
    def checked(cls, buffer: Buffer) -> Batch:
        """Check the bytes that a produce request sends for a partition: exactly one valid batch.

        Raise Refused with the code of Apache Kafka 4.3.0: CORRUPT_MESSAGE for damage; INVALID_RECORD for invalid
        contents of an undamaged batch, and for no batch or several. A truncated batch after the first is ignored, as in
        Kafka. Only an unknown codec differs: Kafka fails with UNKNOWN_SERVER_ERROR, this broker returns
        UNSUPPORTED_COMPRESSION_TYPE. The records stay unread; record/validation.py reads them.
        """
        if len(buffer) < HEADER_BYTES or _unpack_length(buffer, 8)[0] != len(buffer) - LOG_OVERHEAD_BYTES:
            buffer = _only_batch(memoryview(buffer))
        batch = cls.verified(buffer)
        if not batch.is_from_producer:
            raise _refusal(batch)
        return batch

    @classmethod
    def announced(cls, front: memoryview, size: int) -> Batch | None:
        """Return a batch of `size` bytes from its front alone, or None if `checked` might reject it.

        `view` is the front. The checksum is not verified yet.
        """
        if len(front) < HEADER_BYTES:
            return None
        batch = cls.trusted(front)
        return batch if batch.magic == MAGIC and batch.size == size and batch.is_from_producer else None

    @property
    def is_from_producer(self) -> bool:
        """Return whether the header contains only values that a producer may send."""
        count = self.records_count
        return (
            count == self.last_offset_delta + 1
            and 0 < count <= RECORDS_PER_BATCH_MAX
            and not self.base_offset
            and not self.attributes & CONTROL
            and self.attributes & CODEC_MASK < _CODECS_END
            and (self.producer_id < 0 or self.base_sequence >= 0)
        )

    @property
    def payload(self) -> memoryview:
        """Return the records, still compressed if `codec` is set."""
        return self.view[HEADER_BYTES:]

    def stamp(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """Stamp the base offset and leader epoch of the leader in place; the checksum covers neither."""
        _LOG_FIELDS.pack_into(self.view, 0, base_offset, self.batch_length, leader_epoch)
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch

    def stamp_log_append_time(self, now: TimestampMs) -> None:
        """Stamp `now` as log append time, for message.timestamp.type=LogAppendTime.

        The time of every record is then max_timestamp. This requires a new checksum.
        """
        self._stamp_attributes(self.attributes | LOG_APPEND_TIME, now)

    def stamp_create_time(self) -> None:
        """Clear a producer's log append time flag, as Kafka does if message.timestamp.type is CreateTime."""
        if self.is_log_append_time:
            self._stamp_attributes(self.attributes & ~LOG_APPEND_TIME, self.max_timestamp)

    def stamp_max_timestamp(self, newest: TimestampMs) -> None:
        """Correct a max timestamp that the producer set wrongly, as Kafka does."""
        if self.max_timestamp != newest:
            self._stamp_attributes(self.attributes, newest)

    def _stamp_attributes(self, attributes: int, max_timestamp: TimestampMs) -> None:
        self.attributes = attributes
        self.max_timestamp = max_timestamp
        _ATTRIBUTES.pack_into(self.view, 21, attributes)
        _MAX_TIMESTAMP.pack_into(self.view, 35, max_timestamp)
        self.crc = crc32c(self.view[CHECKSUMMED_FROM:])
        _CRC.pack_into(self.view, CRC_POSITION, self.crc)

    @property
    def is_intact(self) -> bool:
        """Return whether the checksum is right; in a log scan, False means a torn write and is nobody's fault."""
        return crc32c(self.view[CHECKSUMMED_FROM:]) == self.crc


def iter_batches(buffer: Buffer) -> Iterator[Batch]:
    """Yield the whole batches of fetched or stored bytes, unverified, without a truncated last batch.

    Raise Refused: CORRUPT_MESSAGE for an impossible length, UNSUPPORTED_FOR_MESSAGE_FORMAT for a format before 2.
    """
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    position, end = 0, len(view)
    while position + MAGIC_POSITION < end:
        _, length = _OFFSET_AND_LENGTH.unpack_from(view, position)
        if view[position + MAGIC_POSITION] != MAGIC:
            detail = f"unsupported magic {view[position + MAGIC_POSITION]} at byte {position}: only 2 is supported"
            raise Refused(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, detail)
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the batch length {length} at byte {position} is too small")
        following = position + LOG_OVERHEAD_BYTES + length
        if following > end:
            return
        yield Batch.trusted(view[position:following])
        position = following


def _only_batch(view: memoryview) -> memoryview:
    """Return the bytes of the first batch if the sizes do not match; raise Refused as Kafka's reader does."""
    size = _whole_batch_size(view)
    if size is None:
        raise Refused(ErrorCode.INVALID_RECORD, f"no complete batch in {len(view)} bytes")
    if view[MAGIC_POSITION] != MAGIC:
        raise _wrong_magic(view[MAGIC_POSITION])
    if _whole_batch_size(view[size:]) is not None:
        raise Refused(ErrorCode.INVALID_RECORD, "more than one batch for a partition")
    return view[:size]


def _whole_batch_size(view: memoryview) -> int | None:
    """Return the size of the first batch or message in the view, or None if it is truncated."""
    if len(view) < LOG_OVERHEAD_BYTES:
        return None
    length: int = _OFFSET_AND_LENGTH.unpack_from(view)[1]
    if length < _LENGTH_MIN:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the batch length {length} is too small")
    if len(view) <= MAGIC_POSITION:
        return None
    if view[MAGIC_POSITION] > MAGIC:
        raise _wrong_magic(view[MAGIC_POSITION])
    size = length + LOG_OVERHEAD_BYTES
    return size if size <= len(view) else None


def _wrong_magic(magic: int) -> Refused:
    if magic in (0, 1):
        return Refused(ErrorCode.INVALID_RECORD, f"unsupported magic {magic}: only 2 is supported")
    return Refused(ErrorCode.CORRUPT_MESSAGE, f"magic {magic}")


def _refusal(batch: Batch) -> Refused:
    """Return the refusal for the check that failed.

    This is a separate function so that good batches pass a single expression.
    """
    count, codec = batch.records_count, batch.attributes & CODEC_MASK
    if codec >= _CODECS_END:
        return Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {codec}")
    if batch.base_offset:
        detail = f"the base offset of a produced batch must be 0, not {batch.base_offset}"
    elif batch.is_control:
        detail = "producers must not write control records"
    elif count != batch.last_offset_delta + 1:
        detail = f"the record count {count} does not match the last offset delta {batch.last_offset_delta}"
    elif not 0 < count <= RECORDS_PER_BATCH_MAX:
        detail = f"invalid record count {count}"
    else:
        detail = f"producer {batch.producer_id} sent invalid sequence {batch.base_sequence}"
    return Refused(ErrorCode.INVALID_RECORD, detail)
