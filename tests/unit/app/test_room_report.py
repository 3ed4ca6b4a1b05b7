"""The report about disk space at startup."""

from __future__ import annotations

import pytest

from odradek.app.serve.data_dirs import report_room
from odradek.base.units import GIB, MIB
from odradek.log.files.volume import UNKNOWN, Volume


@pytest.mark.parametrize(
    ("volume", "text"),
    [
        (Volume(100 * GIB, 0), "is full (0 B of 100.0 GiB free)"),
        (Volume(100 * GIB, 1 * MIB - 1), "is full"),
        (Volume(100 * GIB, 1 * GIB - 1), "is almost full (1024.0 MiB of 100.0 GiB free)"),
        (Volume(20 * GIB, 400 * MIB), "is almost full"),
        (Volume(100 * GIB, 1 * GIB), ""),
        (Volume(24 * MIB, 15 * MIB), "is almost full (15.0 MiB of 24.0 MiB free)"),
        (Volume(24 * MIB, 16 * MIB), ""),
        (Volume(20 * GIB, 420 * MIB), ""),
        (UNKNOWN, ""),
    ],
)
def test_low_disk_space_is_reported(volume: Volume, text: str, caplog: pytest.LogCaptureFixture) -> None:
    report_room("/data", volume)
    if text:
        assert f"the disk of /data {text}" in caplog.text
        assert "lower retention.ms or retention.bytes" in caplog.text
    else:
        assert not caplog.text
