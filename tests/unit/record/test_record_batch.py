"""Batches as views. The expected error codes are Apache Kafka 4.3.0's responses to these bytes in Produce requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.crc import crc32c
from odradek.record.record_batch import HEADER, HEADER_BYTES, Batch, BatchHeader, iter_batches
from odradek.record.records import decode

ROWS = [(b"k", b"value", (), 1000 + i) for i in range(3)]
FIELDS = [
    "base_offset",
    "length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "records_count",
]


def good() -> bytearray:
    return encode_batch(ROWS)


def altered(**changes: int) -> bytearray:
    """Return a valid batch with changed header fields and an updated checksum."""
    batch = good()
    fields = dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True)) | changes
    HEADER.pack_into(batch, 0, *fields.values())
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4)
    return batch


def flipped(position: int) -> bytearray:
    batch = good()
    batch[position] ^= 1
    return batch


CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
REFUSED: dict[str, tuple[Callable[[], bytes | bytearray], ErrorCode]] = {
    "nothing": (lambda: b"", INVALID),
    "a flipped bit in the records": (lambda: flipped(70), CORRUPT),
    "a flipped bit in the checksum": (lambda: flipped(17), CORRUPT),
    "cut by one byte": (lambda: good()[:-1], INVALID),
    "cut in the header": (lambda: good()[:40], INVALID),
    "cut before the magic": (lambda: good()[:13], INVALID),
    "two batches": (lambda: good() + good(), INVALID),
    "a length beyond the end": (lambda: altered(length=len(good()) - 12 + 5), INVALID),
    "a length of 2 GiB": (lambda: altered(length=2**31 - 1), INVALID),
    "a length too short": (lambda: altered(length=len(good()) - 12 - 5), CORRUPT),
    "a length of 10": (lambda: altered(length=10), CORRUPT),
    "a length of 20": (lambda: altered(length=20), CORRUPT),
    "a negative length": (lambda: altered(length=-1000), CORRUPT),
    "format 0": (lambda: altered(magic=0), INVALID),
    "format 1": (lambda: altered(magic=1), INVALID),
    "format 3": (lambda: altered(magic=3), CORRUPT),
    "format -1": (lambda: altered(magic=-1), CORRUPT),
    "control records": (lambda: altered(attributes=0x20), INVALID),
    "no records": (lambda: altered(records_count=0), INVALID),
    "no records and no offsets": (lambda: altered(records_count=0, last_offset_delta=-1), INVALID),
    "more offsets than records": (lambda: altered(last_offset_delta=5), INVALID),
    "more records than offsets": (lambda: altered(records_count=5), INVALID),
    "a negative count": (lambda: altered(records_count=-3, last_offset_delta=-4), INVALID),
    "a base offset": (lambda: altered(base_offset=5), INVALID),
    "a negative base offset": (lambda: altered(base_offset=-1), INVALID),
    "a producer id without a sequence": (lambda: altered(producer_id=5, producer_epoch=0), INVALID),
    # Here Kafka fails with UNKNOWN_SERVER_ERROR.
    "an unknown codec": (lambda: altered(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_batch_is_refused_with_kafkas_error_code(name: str) -> None:
    make, code = REFUSED[name]
    with pytest.raises(Refused) as caught:
        Batch.checked(make())
    assert caught.value.code == code


@pytest.mark.parametrize(
    "change",
    [
        {"attributes": 0x08},  # Log append time claimed by the producer.
        {"attributes": 0x40},
        {"attributes": 0x4080},  # Bits without a meaning.
        {"max_timestamp": 5},
        {"base_timestamp": -5},
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": 7},
    ],
)
def test_unusual_batch_is_accepted_as_by_kafka(change: dict[str, int]) -> None:
    assert Batch.checked(altered(**change)).records_count == 3


def test_truncated_second_batch_is_ignored() -> None:
    assert Batch.checked(good() + good()[:30]).view == good()
    assert Batch.checked(good() + b"12345").view == good()


def test_header_fields_are_read() -> None:
    batch = Batch.checked(
        encode_batch(
            ROWS,
            Codec.LZ4,
            producer_id=ProducerId(77),
            producer_epoch=ProducerEpoch(3),
            base_sequence=2**31 - 2,
            is_transactional=True,
        )
    )
    assert (batch.codec, batch.is_transactional, batch.is_control, batch.is_log_append_time) == (
        Codec.LZ4,
        True,
        False,
        False,
    )
    assert (batch.base_timestamp, batch.max_timestamp, batch.last_offset, batch.next_offset) == (1000, 1002, 2, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.records_count) == (77, 3, 2**31 - 2, 3)
    assert batch.last_sequence == 0, "sequences wrap to 0"
    assert batch.size == len(batch.view) == HEADER_BYTES + len(batch.payload)


def test_stamping_in_place_keeps_the_checksum_valid() -> None:
    data = good()
    batch = Batch.checked(memoryview(data))
    batch.stamp(Offset(2**40), LeaderEpoch(9))
    assert batch.is_intact and Batch.verified(data).base_offset == batch.base_offset == 2**40
    assert Batch.verified(data).leader_epoch == batch.leader_epoch == 9
    assert [record.offset for record in decode(Batch.verified(data))] == [2**40, 2**40 + 1, 2**40 + 2]


def test_log_append_time_replaces_record_timestamps_until_undone() -> None:
    data = good()
    batch = Batch.checked(data)
    batch.stamp_log_append_time(TimestampMs(5_000_000))
    again = Batch.verified(data)
    assert again.is_log_append_time and again.max_timestamp == 5_000_000
    assert {record.timestamp for record in decode(again)} == {5_000_000}
    again.stamp_create_time()
    restored = Batch.verified(data)
    assert not restored.is_log_append_time
    assert [record.timestamp for record in decode(restored)] == [1000, 1001, 1002]


def test_delete_horizon_is_stored_in_the_base_timestamp() -> None:
    assert Batch.verified(altered(attributes=0x40, base_timestamp=42)).delete_horizon == 42
    assert Batch.verified(good()).delete_horizon is None


def test_iter_batches_yields_complete_batches() -> None:
    first, second = encode_batch(ROWS), encode_batch(ROWS[:1], base_offset=Offset(3))
    run = first + second
    assert [batch.base_offset for batch in iter_batches(run)] == [0, 3]
    for cut in range(len(run)):
        assert [batch.view for batch in iter_batches(run[:cut])] == ([first] if cut >= len(first) else [])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"length": -20}, CORRUPT),
        ({"length": 48}, CORRUPT),
        ({"magic": 1}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    ],
)
def test_iter_batches_refuses_an_invalid_batch(changes: dict[str, int], code: ErrorCode) -> None:
    with pytest.raises(Refused) as caught:
        list(iter_batches(good() + altered(**changes)))
    assert caught.value.code == code


def test_header_is_read_at_any_position() -> None:
    header = BatchHeader(b"12345" + good()[:HEADER_BYTES], 5)
    assert (header.size, header.records_count) == (len(good()), 3)


def test_unknown_codec_of_a_stored_batch_is_reported() -> None:
    with pytest.raises(Refused, match="codec 6"):
        _ = Batch.trusted(altered(attributes=6)).codec
