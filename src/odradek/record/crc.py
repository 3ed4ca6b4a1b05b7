"""CRC-32C (Castagnoli), the checksum of a record batch, by the processor's own instructions.

It is the catalogue's CRC-32/ISCSI.  fastcrc takes any buffer without a copy; google-crc32c, which more people use,
takes bytes only, so that each batch would be copied for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from fastcrc.crc32 import iscsi

Buffer: TypeAlias = bytes | bytearray | memoryview

# The package crc32c takes any buffer, too, but is under the LGPL, and its import spends 50 ms in importlib.metadata.
crc32c: Callable[[Buffer], int] = iscsi
