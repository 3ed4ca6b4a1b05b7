"""The interpreted twin of _checksum.pxd, which has the checksum of record batches in C."""

from __future__ import annotations

from typing import TypeAlias

from fastcrc.crc32 import iscsi as crc32c

Bytes: TypeAlias = bytes | bytearray | memoryview


def prepare_checksums() -> None:
    """To be called before any checksum; C makes its tables."""


def checksum(data: Bytes, start: int, size: int) -> int:
    """Returns the CRC-32C of data[start : start + size]; the caller has checked both ends."""
    return crc32c(memoryview(data)[start : start + size])
