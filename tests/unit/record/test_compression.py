"""Framings byte by byte, the other framings that clients send, and bombs."""

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


def test_framings_are_those_of_kafkas_java_client() -> None:
    assert compress(Codec.GZIP, TEXT)[:3] == b"\x1f\x8b\x08"
    assert compress(Codec.SNAPPY, TEXT)[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    # Version 1, independent blocks of 64 KiB, no checksum of blocks or content, no content size.
    assert compress(Codec.LZ4, TEXT)[:7] == bytes.fromhex("04224d18604082")
    assert compress(Codec.ZSTD, TEXT)[:4] == bytes.fromhex("28b52ffd")


def test_lz4_keeps_what_does_not_shrink_as_it_is() -> None:
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
def test_other_framings_are_read(codec: Codec, packed: bytes) -> None:
    assert decompress(codec, packed) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_broken_input_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for broken in (b"", b"x", packed[:-1], packed[: len(packed) // 2], packed[:5], b"\xff" * 50, packed + b"junk!"):
        with pytest.raises(Refused) as caught:
            decompress(codec, broken)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_too_much_is_refused(codec: Codec) -> None:
    with pytest.raises(Refused, match="more than"):
        decompress(codec, compress(codec, TEXT), len(TEXT) - 1)


BOMBS: dict[Codec, bytes] = {codec: compress(codec, bytes(64 * MIB)) for codec in CODECS}


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_gets_no_more_memory_than_its_bound(codec: Codec) -> None:
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


def test_beyond_a_harmless_size_the_ratio_counts() -> None:
    assert len(decompress(Codec.ZSTD, compress(Codec.ZSTD, bytes(DECOMPRESSION_UNCHECKED_BYTES)))) == 16 * MIB
    with pytest.raises(Refused, match="more than 16777216"):
        decompress(Codec.ZSTD, BOMBS[Codec.ZSTD])


def test_a_promised_size_buys_nothing() -> None:
    """4 GiB claimed by the first bytes of a snappy block, and a frame of zstd that says so in its header."""
    with pytest.raises(Refused, match="cannot decompress to the declared"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"abc")
    with pytest.raises(Refused):
        decompress(Codec.ZSTD, bytes.fromhex("28b52ffda0") + (0xFFFFFFF0).to_bytes(4, "little") + b"\x01\x00\x00")


def test_no_codec_is_no_copy() -> None:
    data = bytearray(b"abc")
    view = decompress(Codec.NONE, data)
    data[0] = ord("x")
    assert bytes(view) == b"xbc"


class Counted:
    """zlib's decompressor, with all bytes that go into it or are left over counted: those are what it copies."""

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
def test_gzip_work_grows_with_the_input_whatever_the_members_are(
    member_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_trying_larger_buffers_costs_a_small_multiple_of_the_output(
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


def test_what_is_large_does_not_stay_with_the_allocator() -> None:
    """Pages of the system for it: an allocator keeps them."""
    for codec in CODECS:
        assert isinstance(decompress(codec, compress(codec, bytes(8 * MIB))).obj, mmap), codec
