"""Page-cache residency: cached data is read immediately; for other data the reader learns what to load."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.units import Offset
from odradek.log.files.disk import EMPTY_SLICE, FileSlice, RealDisk, RealFile
from odradek.log.files.log_config import LogConfig
from odradek.log.files.page_cache import (
    AHEAD_BYTES,
    LOADED_BYTES_MIN,
    PAGE_BYTES,
    CachedFile,
    NotCached,
    is_absent,
    is_cached,
)
from odradek.log.log.durability import close_log
from odradek.log.log.log import Log
from support.logs import T0, put

pytestmark = pytest.mark.disk

DISK = RealDisk()
SIZE, MIB = 1_000_000, 1 << 20
LOADS_MAX = 6


def create_file(path: str, data: bytes) -> RealFile:
    file = DISK.create(path)
    assert isinstance(file, RealFile)
    file.write(0, data)
    return file


def drop_pages(file: RealFile) -> None:
    """Drop the file's pages; skip the test if the file system keeps none or all of them in the page cache."""
    file.sync()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if is_cached(file.fileno(), 0, file.size()):
        pytest.skip("the page cache keeps the file")


def drop(directory: Path) -> None:
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_written_data_is_cached_and_cold_pages_are_loaded(tmp_path: Path) -> None:
    file = create_file(f"{tmp_path}/f", b"x" * SIZE)
    assert is_cached(file.fileno(), 0, SIZE)
    drop_pages(file)
    assert FileSlice(file, 0, SIZE).read() == b"x" * SIZE
    assert is_cached(file.fileno(), 0, SIZE)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no tmpfs at /dev/shm")
def test_files_of_unknown_residency_are_treated_as_cached() -> None:
    path = f"/dev/shm/odradek-test-{os.getpid()}"
    file = create_file(path, b"content")
    DISK.unlink(path)
    assert is_cached(file.fileno(), 0, 7)
    assert CachedFile(file).pread(3, 10) == b"tent"


def test_missing_pages_are_loaded_and_then_read(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(SIZE)
    file = create_file(f"{tmp_path}/f", data)
    cached = CachedFile(file)
    assert cached.pread(10, 100) == data[10:110]
    drop_pages(file)
    with pytest.raises(NotCached, match=f"8 bytes at 500000 of {tmp_path}/f are not in the page cache") as missing:
        cached.pread(500_000, 8)
    missing.value.load()
    assert cached.pread(500_000, 8) == data[500_000:500_008]


def begin(file: RealFile, position: int) -> None:
    with pytest.raises(NotCached) as missing:
        CachedFile(file).pread(position, 8)
    missing.value.load()


def test_only_sequential_reads_get_read_ahead(tmp_path: Path) -> None:
    file = create_file(f"{tmp_path}/f", bytes(16 * MIB))
    drop_pages(file)
    if not is_absent(file.fileno(), 0, 16 * MIB):
        pytest.skip("the system can't say")
    for position in (5 * MIB, 12 * MIB):
        begin(file, position)
        assert is_cached(file.fileno(), position, LOADED_BYTES_MIN)
        assert is_absent(file.fileno(), position - 1, 1)
        assert is_absent(file.fileno(), position + LOADED_BYTES_MIN, 1)
    begin(file, 5 * MIB + LOADED_BYTES_MIN)
    read = 5 * MIB + 2 * LOADED_BYTES_MIN
    assert not is_absent(file.fileno(), read, AHEAD_BYTES)
    assert is_absent(file.fileno(), read + AHEAD_BYTES, 1), "what the disk's read_ahead_kb says is far too much"
    begin(file, 15 * MIB)


def test_residency_check_starts_no_read(tmp_path: Path) -> None:
    """With a full disk queue the start of a read waits for a place in it."""
    file = create_file(f"{tmp_path}/f", bytes(SIZE))
    assert not is_absent(file.fileno(), 0, SIZE)
    drop(tmp_path)
    if not is_absent(file.fileno(), 0, SIZE):
        pytest.skip("the page cache keeps the file, or can't say")
    for position in range(0, SIZE, 10 * PAGE_BYTES):
        with pytest.raises(NotCached):
            CachedFile(file).pread(position, 8)
        assert not is_cached(file.fileno(), position, 8)
        assert is_absent(file.fileno(), position, 8)


def test_large_copy_starts_no_read(tmp_path: Path) -> None:
    data = random.Random(4).randbytes(SIZE)
    file = create_file(f"{tmp_path}/f", data)
    space = memoryview(bytearray(SIZE))
    assert FileSlice(file, 10, SIZE - 10).read_cached(space) == SIZE - 10
    assert space[: SIZE - 10] == data[10:]
    drop(tmp_path)
    if not is_absent(file.fileno(), 0, SIZE):
        pytest.skip("the page cache keeps the file, or can't say")
    assert FileSlice(file, 0, SIZE).read_cached(space) == 0
    assert all(is_absent(file.fileno(), at, 1) for at in range(0, SIZE, PAGE_BYTES))


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Path]:
    """Mount an overlay, the file system of a container, and yield its path."""
    lower, upper, work, merged = (tmp_path / name for name in ("lower", "upper", "work", "merged"))
    for folder in (lower, upper, work, merged):
        folder.mkdir()
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mounted = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o", options, merged], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no overlay can be mounted here: {mounted.stderr.strip()}")
    try:
        yield merged
    finally:
        subprocess.run(["umount", "--lazy", merged], check=True)


def test_cached_data_in_an_overlay_is_read_immediately(overlay: Path) -> None:
    """cachestat counts no pages there, and every read of every fetch would go to a thread."""
    file = create_file(f"{overlay}/f", b"x" * SIZE)
    assert not is_absent(file.fileno(), 0, SIZE)
    assert is_cached(file.fileno(), 0, SIZE)
    assert CachedFile(file).pread(10, 3) == b"xxx"


def test_no_page_is_absent_beyond_the_end_of_a_file(tmp_path: Path) -> None:
    file = create_file(f"{tmp_path}/f", b"x" * (PAGE_BYTES + 1))
    for size in (1, PAGE_BYTES, 2 * PAGE_BYTES, 100 * PAGE_BYTES):
        assert not is_absent(file.fileno(), 0, size)
        assert not is_absent(file.fileno(), PAGE_BYTES, size)
        assert not is_absent(file.fileno(), 50 * PAGE_BYTES, size)


def test_partly_cached_read_is_not_cut_short(tmp_path: Path) -> None:
    data = random.Random(2).randbytes(SIZE)
    file = create_file(f"{tmp_path}/f", data)
    file.sync()
    half = SIZE // 2 // 4096 * 4096
    os.posix_fadvise(file.fileno(), half, 0, os.POSIX_FADV_DONTNEED)
    if is_cached(file.fileno(), half, SIZE - half):
        pytest.skip("the page cache keeps the file")
    with pytest.raises(NotCached) as missing:
        CachedFile(file).pread(0, SIZE)
    missing.value.load()
    assert CachedFile(file).pread(0, SIZE) == data


def test_only_the_end_of_a_file_cuts_a_read_short(tmp_path: Path) -> None:
    file = create_file(f"{tmp_path}/f", b"x" * 10)
    assert CachedFile(file).pread(4, 100) == b"x" * 6
    assert CachedFile(file).pread(10, 100) == b""


def test_an_index_is_loaded_as_a_whole(tmp_path: Path) -> None:
    file = create_file(f"{tmp_path}/f", bytes(SIZE))
    drop_pages(file)
    with pytest.raises(NotCached) as missing:
        CachedFile(file, whole=True).pread(900_000, 8)
    missing.value.load()
    assert is_cached(file.fileno(), 0, SIZE)


def test_special_file_is_read() -> None:
    assert CachedFile(EMPTY_SLICE.file).pread(0, 10) == b""


@pytest.mark.parametrize("seed", range(5))
def test_cold_log_gives_the_same_slices_after_loads(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    config = LogConfig(segment_bytes=300_000, index_interval_bytes=512)
    log = Log.open(DISK, str(tmp_path), config, T0)
    for _ in range(800):
        put(log, *[draw.randbytes(draw.choice((10, 200, 3_000))) for _ in range(draw.randrange(1, 4))])
    close_log(log, T0)
    opened, other = (Log.open(DISK, str(tmp_path), config, T0, clean_shutdown=True) for _ in range(2))
    waits = 0
    for _ in range(50):
        offset, bytes_max = Offset(draw.randrange(log.end_offset)), draw.choice((1, 5_000, 100_000))
        drop(tmp_path)
        for _ in range(LOADS_MAX):
            try:
                found = opened.read(offset, bytes_max, opened.end_offset, cached=True)
                break
            except NotCached as missing:
                waits += 1
                missing.load()
        else:
            pytest.fail("it was loaded again and again")
        expected = other.read(offset, bytes_max, other.end_offset)
        assert (found.file.path, found.position, found.size) == (expected.file.path, expected.position, expected.size)
    if not waits:
        pytest.skip("the page cache keeps the files")
