from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest

from odradek.record.crc import crc32c

KIB = 1 << 10


def bit_by_bit(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def test_crc32c_has_the_castagnoli_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("size", [*range(70), 127, 128, 129, 255, 256, 257, KIB, 4 * KIB + 1, 64 * KIB + 7])
def test_crc32c_is_right_for_every_code_path(size: int) -> None:
    data = Random(size).randbytes(size)
    assert crc32c(data) == bit_by_bit(data)


def test_crc32c_accepts_any_buffer() -> None:
    expected = crc32c(b"abc")
    for whole in (b"xabcx", bytearray(b"xabcx")):
        assert crc32c(whole[1:4]) == crc32c(memoryview(whole)[1:4]) == expected


@pytest.mark.waits
def test_import_does_not_load_importlib_metadata() -> None:
    """importlib.metadata costs a third of the time in which a broker should start."""
    program = "import sys, odradek.record.record_batch; sys.exit('importlib.metadata' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=False).returncode
        == 0
    )
