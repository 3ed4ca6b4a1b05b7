"""The interpreted twin of _checksum.pxd, which computes the checksum of record batches in C."""

from __future__ import annotations

from typing import TypeAlias

from fastcrc.crc32 import iscsi as crc32c

Bytes: TypeAlias = bytes | bytearray | memoryview


def prepare_checksums() -> None:
    """Prepare the tables that the C implementation needs; call this before any checksum."""


def checksum(data: Bytes, start: int, size: int) -> int:
    """Return the CRC-32C of data[start : start + size]; the caller has checked both bounds."""
    return crc32c(memoryview(data)[start : start + size])
