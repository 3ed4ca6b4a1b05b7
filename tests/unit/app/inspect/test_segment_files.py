"""Facts about segments derived from their files, compared with the log that wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.app.inspect.segment_files import offset_of_newest, segments_of
from odradek.base.units import LeaderEpoch, TimestampMs
from odradek.log.files.disk import RealDisk
from odradek.log.files.log_config import LogConfig
from odradek.log.log.log import Log
from odradek.log.log.retention import delete_old_segments
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch
from support.logs import T0, put

HOUR_MS = 3_600_000


def make(directory: Path, **config: int | bool) -> Log:
    directory.mkdir()
    return Log.open(RealDisk(), str(directory), LogConfig(**{"index_interval_bytes": 200, **config}), T0)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


@pytest.mark.parametrize("preallocate", [False, True])
def test_sizes_offsets_and_timestamps_match_the_log(path: Path, preallocate: bool) -> None:
    log = make(path, segment_bytes=1000, preallocate=preallocate)
    for number in range(40):
        put(log, b"x" * 30, b"y" * 30, at=T0 + number * HOUR_MS)
    found = segments_of(path)
    assert len(found) == len(log.segments) > 3
    assert [one.is_active for one in found] == [False] * (len(found) - 1) + [True]
    for one, segment in zip(found, log.segments, strict=True):
        assert (one.base_offset, one.size) == (segment.base_offset, segment.size)
        assert one.newest == segment.largest()[0] and one.has_timestamps
        assert one.first == T0 + one.base_offset // 2 * HOUR_MS
    assert [one.end_offset for one in found] == [*(one.base_offset for one in log.segments[1:]), log.end_offset]


def test_empty_segment_is_described(path: Path) -> None:
    make(path)
    (one,) = segments_of(path)
    assert (one.size, one.base_offset, one.end_offset, one.first, one.has_timestamps) == (0, 0, 0, -1, False)
    written = path / "00000000000000000000.log"
    assert one.newest == written.stat().st_mtime_ns // 1_000_000


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_newest_record_is_found_by_its_timestamp(path: Path, codec: Codec) -> None:
    """Timestamps are set by producers and need not increase."""
    log = make(path)
    for batch in ([1, 2], [3, 99, 4], [5, 6]):
        raw = encode_batch([(None, b"v", (), T0 + number) for number in batch], codec)
        log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), TimestampMs(T0))
    (one,) = segments_of(path)
    assert one.newest == T0 + 99
    assert offset_of_newest(one) == 3


def test_torn_end_is_ignored(path: Path) -> None:
    log = make(path)
    put(log, b"a", at=T0)
    size = log.size
    with Path(log.segments[0].path).open("ab") as file:
        file.write(b"\1" * 30)
    (one,) = segments_of(path)
    assert (one.size, one.end_offset) == (size, 1)


def test_missing_and_invalid_indexes_are_tolerated(path: Path) -> None:
    log = make(path, segment_bytes=1000)
    for number in range(20):
        put(log, b"x" * 100, at=T0 + number)
    expected = segments_of(path)
    for file in path.glob("*.timeindex"):
        file.unlink()
    for file in path.glob("*.index"):
        file.write_bytes(b"\0\0\0\1\0\0\0\7")
    assert segments_of(path) == expected


def test_deleted_segments_are_not_listed(path: Path) -> None:
    log = make(path, segment_bytes=1000, retention_bytes=1500)
    for number in range(40):
        put(log, b"x" * 100, at=T0 + number)
    delete_old_segments(log, T0, log.end_offset)
    log.reaper.reap(T0)
    assert list(path.glob("*.log.deleted"))
    assert [one.base_offset for one in segments_of(path)] == [one.base_offset for one in log.segments]
