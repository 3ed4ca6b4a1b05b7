"""Limits of decompression: max.decompressed.message.bytes for each record, and the available memory for a batch."""

from __future__ import annotations

import tracemalloc

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import UNPACKED_BYTES_MAX
from odradek.base.units import INT32_MAX, MIB, TimestampMs
from odradek.record.builder import encode_batch, seal_batch
from odradek.record.compression import Codec, compress
from odradek.record.record_batch import HEADER_BYTES, Batch
from odradek.record.unpack import unpack

PACKING = [codec for codec in Codec if codec is not Codec.NONE]
KEYLESS = 7  # Bytes of a record beside a value of less than 64.


def batch(sizes: list[int], codec: Codec) -> Batch:
    return Batch.checked(encode_batch([(None, bytes(size), [], 5) for size in sizes], codec))


def bomb(codec: Codec, size: int, count: int = 1) -> Batch:
    now = TimestampMs(1)
    packed = bytearray(HEADER_BYTES) + compress(codec, bytes(size))
    return Batch.checked(seal_batch(packed, count=count, base_timestamp=now, max_timestamp=now, attributes=codec))


@pytest.mark.parametrize("codec", PACKING)
def test_record_larger_than_the_bound_is_refused(codec: Codec) -> None:
    largest = 50 + KEYLESS - 1  # Its length is not counted.
    one = batch([10, 50, 3], codec)
    assert len(unpack(one, largest)) == 63 + 3 * KEYLESS
    with pytest.raises(Refused, match=r"a record decompresses to more than .*\(55\)") as caught:
        unpack(one, largest - 1)
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_bound_does_not_apply_without_a_codec() -> None:
    one = batch([50], Codec.NONE)
    assert unpack(one, 1) == one.payload


@pytest.mark.parametrize("codec", PACKING)
def test_bound_applies_to_records_not_to_their_sum(codec: Codec) -> None:
    assert len(unpack(batch([10] * 1_000, codec), 30)) > 10_000


@pytest.mark.parametrize("codec", PACKING)
def test_decompression_bomb_uses_no_more_memory_than_the_bound(codec: Codec) -> None:
    one = bomb(codec, 8 * MIB)
    unpack(one, INT32_MAX)  # Triggers the imports.
    tracemalloc.start()
    with pytest.raises(Refused) as caught:
        unpack(one, 10_000)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert taken < MIB


@pytest.mark.parametrize("codec", PACKING)
def test_size_of_a_batch_is_bounded_regardless_of_the_config(codec: Codec) -> None:
    with pytest.raises(Refused, match="decompresses to more than") as caught:
        unpack(bomb(codec, UNPACKED_BYTES_MAX + 1, count=1_000_000), INT32_MAX)
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", PACKING)
def test_undecompressable_batch_is_refused_as_corrupt(codec: Codec) -> None:
    now = TimestampMs(1)
    data = bytearray(HEADER_BYTES) + b"\xff" * 30
    broken = Batch.checked(seal_batch(data, count=1, base_timestamp=now, max_timestamp=now, attributes=codec))
    with pytest.raises(Refused) as caught:
        unpack(broken, INT32_MAX)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_batch_emptied_by_compaction_is_decompressed_to_nothing() -> None:
    emptied = batch([1], Codec.ZSTD)
    emptied.records_count = 0
    assert not unpack(emptied, 1)
