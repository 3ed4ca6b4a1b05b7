"""Compression formats byte by byte, variants written by other clients, and decompression bombs."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from hashlib import sha256
from mmap import mmap
from types import SimpleNamespace

import cramjam
import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import DECOMPRESSION_UNCHECKED_BYTES
from odradek.record import compression
from odradek.record.compression import Codec, compress, decompress

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"to be or not to be, that is the question " * 5000
MIB = 1 << 20


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"a", TEXT, bytes(range(256)) * 300], ids=["empty", "one", "text", "bytes"])
@pytest.mark.parametrize("level", [None, 1, 9])
def test_round_trip(codec: Codec, data: bytes, level: int | None) -> None:
    packed = compress(codec, memoryview(data), level)
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(bytearray(packed)), len(data)) == data


def test_framing_matches_kafkas_java_client() -> None:
    assert compress(Codec.GZIP, TEXT)[:3] == b"\x1f\x8b\x08"
    assert compress(Codec.SNAPPY, TEXT)[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    # Version 1, independent blocks of 64 KiB, no checksum of blocks or content, no content size.
    assert compress(Codec.LZ4, TEXT)[:7] == bytes.fromhex("04224d18604082")
    assert compress(Codec.ZSTD, TEXT)[:4] == bytes.fromhex("28b52ffd")


def test_lz4_stores_incompressible_data_uncompressed() -> None:
    noise = b"".join(sha256(bytes([i])).digest() for i in range(10))[:300]
    packed = compress(Codec.LZ4, noise)
    assert packed == bytes.fromhex("04224d18604082") + (300 | 1 << 31).to_bytes(4, "little") + noise + bytes(4)


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.GZIP, gzip.compress(TEXT)),
        (Codec.GZIP, gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),  # librdkafka, and other clients in C and Go.
        (Codec.SNAPPY, compress(Codec.SNAPPY, TEXT[:1000]) + compress(Codec.SNAPPY, TEXT[1000:])),
        (Codec.LZ4, bytes(cramjam.lz4.compress(TEXT))),  # Linked blocks with checksums.
        (Codec.ZSTD, bytes(cramjam.zstd.compress(TEXT, 19))),
    ],
    ids=["gzip", "two gzip members", "bare snappy", "two xerial streams", "lz4 with checksums", "zstd 19"],
)
def test_framings_of_other_clients_are_decompressed(codec: Codec, packed: bytes) -> None:
    assert decompress(codec, packed) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_input_is_refused_as_corrupt(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for broken in (b"", b"x", packed[:-1], packed[: len(packed) // 2], packed[:5], b"\xff" * 50, packed + b"junk!"):
        with pytest.raises(Refused) as caught:
            decompress(codec, broken)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
def test_output_larger_than_the_bound_is_refused(codec: Codec) -> None:
    with pytest.raises(Refused, match="more than"):
        decompress(codec, compress(codec, TEXT), len(TEXT) - 1)


BOMBS: dict[Codec, bytes] = {codec: compress(codec, bytes(64 * MIB)) for codec in CODECS}


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_bomb_uses_no_more_memory_than_the_bound(codec: Codec) -> None:
    bound = 4 * MIB
    tracemalloc.start()
    try:
        with pytest.raises(Refused) as caught:
            decompress(codec, BOMBS[codec], bound)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert peak <= 2 * bound + MIB, f"{peak} bytes"


def test_compression_ratio_is_limited_above_a_harmless_size() -> None:
    assert len(decompress(Codec.ZSTD, compress(Codec.ZSTD, bytes(DECOMPRESSION_UNCHECKED_BYTES)))) == 16 * MIB
    with pytest.raises(Refused, match="more than 16777216"):
        decompress(Codec.ZSTD, BOMBS[Codec.ZSTD])


def test_declared_size_allocates_no_memory() -> None:
    """A snappy block and a zstd frame header that each declare a size of about 4 GiB."""
    with pytest.raises(Refused, match="cannot decompress to the declared"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"abc")
    with pytest.raises(Refused):
        decompress(Codec.ZSTD, bytes.fromhex("28b52ffda0") + (0xFFFFFFF0).to_bytes(4, "little") + b"\x01\x00\x00")


def test_uncompressed_data_is_not_copied() -> None:
    data = bytearray(b"abc")
    view = decompress(Codec.NONE, data)
    data[0] = ord("x")
    assert bytes(view) == b"xbc"


class Counted:
    """A zlib decompressor that counts its input and leftover bytes, since it copies both."""

    bytes = 0

    def __init__(self, wbits: int) -> None:
        self._real = zlib.decompressobj(wbits)

    def decompress(self, data: bytes | memoryview, max_length: int) -> bytes:
        Counted.bytes += len(data)
        output = self._real.decompress(data, max_length)
        Counted.bytes += len(self._real.unused_data)
        return output

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


@pytest.mark.parametrize("member_bytes", [0, 1, 300, 70_000])
def test_gzip_work_is_linear_for_any_member_size(member_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "zlib", SimpleNamespace(**vars(zlib) | {"decompressobj": Counted}))
    member = gzip.compress(random.Random(1).randbytes(member_bytes))
    work = []
    for members in (100, 1_000):
        Counted.bytes = 0
        assert len(decompress(Codec.GZIP, member * members, 100 * MIB)) == members * member_bytes
        work.append(Counted.bytes)
    smallest_window = 256
    assert work[1] <= 1_000 * (4 * len(member) + 2 * smallest_window) + 2 * 64 * 1024
    assert work[1] <= 11 * work[0]


@pytest.mark.parametrize("size", [1, 100_000, 5 * MIB, 16 * MIB])
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_growing_the_buffer_costs_a_small_multiple_of_the_output(
    codec: Codec, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = compress(codec, bytes(size))
    rooms: list[int] = []
    space = compression._space

    def counted(room: int) -> bytearray | mmap:
        rooms.append(room)
        return space(room)

    monkeypatch.setattr(compression, "_space", counted)
    assert decompress(codec, packed) == bytes(size)
    tried_in_vain = rooms[:-1]
    assert sum(tried_in_vain) <= 1.4 * size


def test_large_output_is_memory_mapped() -> None:
    """Large buffers are mapped pages, which are returned to the system; an allocator would keep them."""
    for codec in CODECS:
        assert isinstance(decompress(codec, compress(codec, bytes(8 * MIB))).obj, mmap), codec
