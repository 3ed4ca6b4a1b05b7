"""CRC-32C (Castagnoli), the checksum of a record batch, computed with CPU instructions.

The CRC catalogue calls it CRC-32/ISCSI. fastcrc accepts any buffer without a copy. The more widely used google-crc32c
accepts only bytes and would need a copy of each batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from fastcrc.crc32 import iscsi

Buffer: TypeAlias = bytes | bytearray | memoryview

# The crc32c package also accepts any buffer, but it is LGPL, and its import spends 50 ms in importlib.metadata.
crc32c: Callable[[Buffer], int] = iscsi
