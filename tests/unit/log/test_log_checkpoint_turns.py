"""Checkpoints on threads next to those on the loop, and file times that go back."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from odradek.base.units import BrokerId, Offset, TimestampMs, TopicName, TopicPartition
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import RealDisk
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import HIGH_WATERMARKS
from odradek.log.removal.reaper import Reaper
from odradek.log.segment.checkpoints import read_offsets

pytestmark = pytest.mark.slow

NOW = TimestampMs(1_700_000_000_000)
TOPIC = TopicPartition(TopicName("t"), 0)


def open_directory(path: Path, turns: AbstractContextManager[object]) -> LogDirectory:
    return open_log_directory(
        RealDisk(),
        str(path),
        NOW,
        broker_id=BrokerId(1),
        cluster_id="cluster",
        config_of=lambda _: LogConfig(),
        turns=turns,
    )


def test_checkpoints_take_turns(tmp_path: Path) -> None:
    """Both write the same files; the newer one remains."""
    directory = open_directory(tmp_path, threading.Lock())
    failures: list[BaseException] = []
    for number in range(300):
        directory.create(TOPIC, None, LogConfig(), NOW)
        chore = directory.begin_checkpoint({TOPIC: Offset(number)})
        assert chore is not None

        def run(chore: object = chore) -> None:
            try:
                chore.run()  # type: ignore[attr-defined]
            except OSError as failed:
                failures.append(failed)

        thread = threading.Thread(target=run)
        thread.start()
        directory.checkpoints.high_watermarks[TOPIC] = Offset(number + 1000)
        directory.checkpoints.write_now()
        thread.join()
        assert not failures
        assert read_offsets(RealDisk(), f"{tmp_path}/{HIGH_WATERMARKS}") == {TOPIC: number + 1000}
        directory.delete(TOPIC, TimestampMs(NOW + number))
    directory.close(NOW)


def test_a_clock_set_back_does_not_keep_files_longer(tmp_path: Path) -> None:
    reaper, path = Reaper(RealDisk()), tmp_path / "gone"
    path.touch()
    reaper.add_file(str(path), TimestampMs(NOW + 1000))
    assert reaper.reap(NOW) == 0
    hour_ms = 3_600_000
    assert reaper.reap(TimestampMs(NOW - hour_ms)) == 0
    assert reaper.reap(TimestampMs(NOW - hour_ms + 999)) == 0
    assert reaper.reap(TimestampMs(NOW - hour_ms + 1000)) == 1
    assert not path.exists()
