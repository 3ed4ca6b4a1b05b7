"""The four codecs of record batches, with bounded output.

A batch of one megabyte can claim gigabytes. Memory is therefore used only as bytes are decoded, never beyond the bound.
The total work of decoding and copying is a small multiple of input and output, regardless of the number of members,
blocks or frames. The framings match Kafka's Java client:

│ gzip   │ RFC 1952, members back to back                                                │
│ snappy │ blocks in xerial (snappy-java) framing; bare blocks of other clients are read │
│ lz4    │ a frame of independent 64 KiB blocks, with no checksum except the header's    │
│ zstd   │ frames, RFC 8878                                                              │
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from mmap import mmap
from struct import Struct
from typing import TypeAlias

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import BATCH_DECOMPRESSED_BYTES_MAX, DECOMPRESSION_RATIO_MAX, DECOMPRESSION_UNCHECKED_BYTES
from odradek.base.units import INT32_MAX, KIB, MIB

Buffer: TypeAlias = bytes | bytearray | memoryview


class Codec(IntEnum):
    """Compression codec, in bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Expands(Refused):
    """Error for data that decodes to more than its bound."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress any bytes-like data without copying it; `level` defaults to the codec's own."""
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: Buffer, bytes_max: int = BATCH_DECOMPRESSED_BYTES_MAX) -> memoryview:
    """Return the decoded `data`, without a copy for Codec.NONE.

    Raise Refused(CORRUPT_MESSAGE) for broken input. Raise Expands, a subclass, for more than bytes_max, or, beyond a
    harmless size, for a ratio that no honest data reaches.
    """
    if codec is Codec.NONE:
        return memoryview(data)
    ratio_bytes_max = max(DECOMPRESSION_UNCHECKED_BYTES, len(data) * DECOMPRESSION_RATIO_MAX)
    return _DECOMPRESSORS[codec](data, min(bytes_max, ratio_bytes_max))


def _corrupt(codec: Codec, why: object) -> Refused:
    return Refused(ErrorCode.CORRUPT_MESSAGE, f"{codec.name.lower()}: {why}")


def _too_large(codec: Codec, bytes_max: int) -> Expands:
    return Expands(ErrorCode.CORRUPT_MESSAGE, f"{codec.name.lower()}: decompresses to more than {bytes_max} bytes")


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


# The first window of a member is small, and the following ones double. zlib copies the input left over after the end of
# a member, so the copy costs no more than the member itself.
_GZIP_WINDOW_BYTES_MIN = 256
_GZIP_WINDOW_BYTES_MAX = 64 * KIB
_GZIP_PIECE_BYTES = 256 * KIB


def _gzip_decompress(data: Buffer, bytes_max: int) -> memoryview:
    view, output = memoryview(data), _Output(Codec.GZIP, bytes_max)
    position = _gzip_member(view, 0, output, _GZIP_WINDOW_BYTES_MAX)
    while position < len(view):
        position = _gzip_member(view, position, output, _GZIP_WINDOW_BYTES_MIN)
    return output.view()


def _gzip_member(view: memoryview, position: int, output: _Output, window: int) -> int:
    """Decode the member that begins at `position` and return its end."""
    member = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        while not member.eof:
            packed: Buffer = view[position : position + window]
            if not packed:
                raise _corrupt(Codec.GZIP, "truncated")
            position += len(packed)
            while packed and not member.eof:
                output.add(member.decompress(packed, _GZIP_PIECE_BYTES))
                packed = member.unconsumed_tail
            window = min(2 * window, _GZIP_WINDOW_BYTES_MAX)
    except zlib.error as error:
        raise _corrupt(Codec.GZIP, error) from None
    return position - len(member.unused_data)


# snappy-java: magic, version, lowest compatible version, then blocks of (i32 length, bare snappy).
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * KIB
_XERIAL_LENGTH = Struct(">i")
# The densest snappy element produces 64 bytes from 3. A larger claim is rejected before memory is allocated.
_SNAPPY_RATIO_MAX = 22


def _snappy_compress(data: Buffer, level: int | None) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    output = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = memoryview(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        output += _XERIAL_LENGTH.pack(len(block))
        output += block
    return bytes(output)


def _snappy_decompress(data: Buffer, bytes_max: int) -> memoryview:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
        output = _Output(Codec.SNAPPY, bytes_max)
        position = 0
        while position < len(view):
            position = _xerial_block(view, position, output)
        return output.view()
    return memoryview(_snappy_block(view, bytes_max))


def _xerial_block(view: memoryview, position: int, output: _Output) -> int:
    """Decode the block or skip the header at `position`, and return the position of the next.

    Streams may be concatenated, so a header may follow a block.
    """
    if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
        return position + len(_XERIAL_HEADER)
    start = position + _XERIAL_LENGTH.size
    if start > len(view):
        raise _corrupt(Codec.SNAPPY, "truncated")
    (length,) = _XERIAL_LENGTH.unpack_from(view, position)
    if not 0 < length <= len(view) - start:
        raise _corrupt(Codec.SNAPPY, f"a block of {length} bytes exceeds the remaining {len(view) - start} bytes")
    output.add(_snappy_block(view[start : start + length], output.room))
    return int(start + length)


def _snappy_block(block: memoryview, bytes_max: int) -> bytearray | mmap:
    from cramjam import DecompressionError, snappy

    if not block:
        raise _corrupt(Codec.SNAPPY, "no data")
    try:
        size = snappy.decompress_raw_len(block)
        if size > len(block) * _SNAPPY_RATIO_MAX:
            raise _corrupt(Codec.SNAPPY, f"{len(block)} bytes cannot decompress to the declared {size}")
        if size > bytes_max:
            raise _too_large(Codec.SNAPPY, bytes_max)
        output = _space(size)
        written = snappy.decompress_raw_into(block, output) if size else 0
    except DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from None
    if written != size:
        raise _corrupt(Codec.SNAPPY, f"decompresses to {written} bytes instead of the declared {size}")
    return output


# Magic, FLG (version 1, independent blocks), BD (64 KiB blocks), header checksum. Frames are written by hand because
# cramjam adds a checksum to every block, which Kafka never does.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES = 64 * KIB
_LZ4_LENGTH = Struct("<I")
_LZ4_STORED = 1 << 31


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    """Compress `data` as an lz4 frame; cramjam ignores `level` for lz4."""
    from cramjam import lz4

    view = memoryview(data)
    output = bytearray(_LZ4_HEADER)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        block = view[start : start + _LZ4_BLOCK_BYTES]
        packed = memoryview(lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            output += _LZ4_LENGTH.pack(len(packed))
            output += packed
        else:
            output += _LZ4_LENGTH.pack(len(block) | _LZ4_STORED)
            output += block
    output += bytes(_LZ4_LENGTH.size)  # The end mark.
    return bytes(output)


def _lz4_decompress(data: Buffer, bytes_max: int) -> memoryview:
    from cramjam import lz4

    return _decompress_growing(Codec.LZ4, lz4.decompress_into, data, bytes_max)


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    from cramjam import zstd

    return bytes(memoryview(zstd.compress(data, level)))


def _zstd_decompress(data: Buffer, bytes_max: int) -> memoryview:
    from cramjam import zstd

    return _decompress_growing(Codec.ZSTD, zstd.decompress_into, data, bytes_max)


_FIRST_GUESS_BYTES_MIN = 16 * KIB
_FIRST_GUESS_RATIO = 4
_GROWTH = 4
# cramjam reports a full output buffer only by this text. A round-trip test fails if the text changes.
_OUTPUT_FULL = "failed to write whole buffer"


def _decompress_growing(
    codec: Codec, decompress_into: Callable[[Buffer, bytearray | mmap], int], data: Buffer, bytes_max: int
) -> memoryview:
    """Decode into a buffer that grows on demand, so that a claimed size allocates nothing.

    Each attempt except the last decodes at most the size of its buffer: all of them together less than 2.4 times the
    output.
    """
    from cramjam import DecompressionError

    if not data:
        raise _corrupt(codec, "no data")
    size = min(max(len(data) * _FIRST_GUESS_RATIO, _FIRST_GUESS_BYTES_MIN), bytes_max)
    while True:
        output = _space(size)
        try:
            return memoryview(output)[: decompress_into(data, output)]
        except DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise _corrupt(codec, error) from None
        if size >= bytes_max:
            raise _too_large(codec, bytes_max)
        size = _next_size(size, bytes_max)


def _next_size(size: int, bytes_max: int) -> int:
    """Return the next size to try: the maximum at once if pages come from the system.

    Only pages that are written then use memory.
    """
    size *= _GROWTH
    return min(size, bytes_max) if size <= _ALLOCATED_BYTES_MAX else bytes_max


# Larger buffers come directly from the system and return there, because the allocator keeps much of what is freed.
# Smaller buffers are reused by readers of successive batches: decoding 1 MiB into new pages takes three times as long.
_ALLOCATED_BYTES_MAX = 4 * MIB


def _space(size: int) -> bytearray | mmap:
    return bytearray(size) if size <= _ALLOCATED_BYTES_MAX else mmap(-1, size)


class _Output:
    """Output decoded piece by piece, of at most `bytes_max` bytes."""

    __slots__ = ("_bytes_max", "_codec", "_pages", "_size", "_small")

    def __init__(self, codec: Codec, bytes_max: int) -> None:
        self._codec = codec
        self._bytes_max = bytes_max
        self._size = 0
        self._small = bytearray()
        self._pages: mmap | None = None  # Holds all of the output once it is large.

    @property
    def room(self) -> int:
        return self._bytes_max - self._size

    def add(self, piece: Buffer | mmap) -> None:
        """Append a piece; raise Expands if it does not fit."""
        size = self._size + len(piece)
        if size > self._bytes_max:
            raise _too_large(self._codec, self._bytes_max)
        if self._pages is None and size > _ALLOCATED_BYTES_MAX:
            # Only the pages that are written use memory.
            self._pages = mmap(-1, self._bytes_max)
            self._pages[: self._size] = self._small
            self._small.clear()
        if self._pages is None:
            self._small += piece
        else:
            self._pages[self._size : size] = piece
        self._size = size

    def view(self) -> memoryview:
        if self._pages is None:
            return memoryview(self._small)
        return memoryview(self._pages)[: self._size]


_COMPRESSORS: dict[Codec, Callable[[Buffer, int | None], bytes]] = {
    Codec.GZIP: _gzip_compress,
    Codec.SNAPPY: _snappy_compress,
    Codec.LZ4: _lz4_compress,
    Codec.ZSTD: _zstd_compress,
}
_DECOMPRESSORS: dict[Codec, Callable[[Buffer, int], memoryview]] = {
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.LZ4: _lz4_decompress,
    Codec.ZSTD: _zstd_decompress,
}
assert BATCH_DECOMPRESSED_BYTES_MAX <= INT32_MAX, "Arrow's offsets are 32-bit"
