"""Single records, given as hand-made bytes: valid ones are decoded, malformed ones refused."""

from __future__ import annotations

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import LeaderEpoch, Offset, TimestampMs
from odradek.record.builder import encode_batch, encode_record, seal_batch, write_varint
from odradek.record.compression import Codec
from odradek.record.record_batch import HEADER_BYTES, Batch
from odradek.record.records import Record, decode, iter_records


def batch_of(payload: bytes, count: int = 1, codec: Codec = Codec.NONE) -> Batch:
    data = bytearray(HEADER_BYTES) + payload
    return Batch.trusted(
        seal_batch(data, codec, count=count, base_timestamp=TimestampMs(100), max_timestamp=TimestampMs(100))
    )


# length, attributes, timestamp delta 1, offset delta 0, key "k", value null, one header "h" without a value.
GOOD = bytes([20, 0, 2, 0, 2, ord("k"), 1, 2, 2, ord("h"), 1])


def test_handmade_record_is_decoded() -> None:
    assert decode(batch_of(GOOD)) == [Record(Offset(0), TimestampMs(101), b"k", None, (("h", None),))]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x14",
        GOOD[:-1],
        GOOD + b"\0",
        GOOD + GOOD,
        b"\x00" + GOOD[1:],
        b"\x12" + GOOD[1:],
        b"\x16" + GOOD[1:] + b"\0",
        b"\x13" + GOOD[1:],  # A negative length.
        b"\xff" * 11,
        bytes([20, 0, 2, 0, 100, ord("k"), 1, 2, 2, ord("h"), 1]),  # A key beyond the end.
        bytes([20, 0, 2, 0, 2, ord("k"), 1, 1, 2, ord("h"), 1]),  # A negative count of headers.
        bytes([20, 0, 2, 0, 2, ord("k"), 1, 126, 2, ord("h"), 1]),  # More headers than bytes.
        bytes([20, 0, 2, 0, 2, ord("k"), 1, 2, 1, ord("h"), 1]),  # A header without a key.
        bytes([32, 0, 2, 0, 2, ord("k"), 1, 2, 2, ord("h"), 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1]),
    ],
)
def test_malformed_records_are_refused_as_corrupt(payload: bytes) -> None:
    with pytest.raises(Refused) as caught:
        decode(batch_of(payload))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_records_before_a_malformed_one_are_returned() -> None:
    reader = iter_records(batch_of(GOOD + b"\xff", count=2))
    assert next(reader).key == b"k"
    with pytest.raises(Refused):
        next(reader)


def test_invalid_utf8_in_header_keys_is_replaced() -> None:
    payload = bytearray(GOOD)
    payload[9] = 0xFF
    assert decode(batch_of(bytes(payload)))[0].headers == (("�", None),)


def test_batch_emptied_by_compaction_has_no_records() -> None:
    assert decode(batch_of(b"", count=0)) == []


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (63, "7e"), (-64, "7f"), (64, "8001"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f")],
)
def test_varints_are_zigzag_encoded(value: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == encoded


def test_batch_without_records_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])


def test_control_batch_is_encoded() -> None:
    marker = encode_batch(
        [(b"\0\0\0\1", b"\0\0\0\0\0\0", (), 5)], is_transactional=True, is_control=True, leader_epoch=LeaderEpoch(3)
    )
    batch = Batch.verified(marker)
    assert (batch.is_control, batch.is_transactional, batch.leader_epoch, batch.base_sequence) == (True, True, 3, -1)


def test_encode_record_takes_buffers() -> None:
    out = bytearray()
    encode_record(out, 0, 1, memoryview(b"k"), None, headers=[("h", None)])
    assert out == GOOD
