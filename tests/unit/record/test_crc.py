from __future__ import annotations

import subprocess
import sys

from odradek.record.crc import crc32c


def test_check_value_of_the_castagnoli_polynomial() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_any_buffer_will_do() -> None:
    assert crc32c(bytearray(b"abc")) == crc32c(memoryview(b"xabcx")[1:4]) == crc32c(b"abc")


def test_loading_it_does_not_load_what_its_package_loads() -> None:
    """importlib.metadata costs a third of the time in which a broker should be up."""
    program = "import sys, odradek.record.batch; sys.exit('importlib.metadata' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=False).returncode
        == 0
    )
