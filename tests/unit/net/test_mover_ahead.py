"""Read-ahead for sequential readers: a little, in pieces, and none for random access."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.log.files.page_cache import AHEAD_BYTES, is_absent
from odradek.net.native.movers import HAS_MOVER

if not HAS_MOVER:  # pragma: no cover
    pytest.skip("the mover was built without a compiler", allow_module_level=True)

from support.moving import Held, Moving, nothing, pair, read, until

pytestmark = pytest.mark.disk

MIB = 1 << 20
FILE_BYTES = 16 * MIB


@pytest.fixture
def file(tmp_path: Path) -> Held:
    """Return a file that is not in the page cache."""
    held = Held(tmp_path / "file")
    os.pwrite(held.fileno(), os.urandom(FILE_BYTES), 0)
    os.fsync(held.fileno())
    os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if not is_absent(held.fileno(), 0, FILE_BYTES):
        pytest.skip("the system can't say what the page cache has of this file system")
    return held


@pytest.fixture
def mover() -> Iterator[Moving]:
    moving = Moving()
    yield moving
    moving.end()


def send(mover: Moving, file: Held, position: int, size: int) -> None:
    with pair() as (ours, theirs):
        assert mover.send(ours.fileno(), b"", file, position, size, b"", False, nothing)
        got = bytearray()
        read(theirs, size, got)
        mover.wait()
    assert got == os.pread(file.fileno(), size, position)


def has(file: Held, position: int) -> bool:
    return not is_absent(file.fileno(), position, 1)


def test_sequential_reader_gets_bounded_read_ahead(mover: Moving, file: Held) -> None:
    for position in range(0, FILE_BYTES, MIB):
        assert position == 0 or has(file, position)
        send(mover, file, position, MIB)
        known = position + AHEAD_BYTES  # At the latest, when the last piece was started.
        until(lambda known=known: has(file, min(known, FILE_BYTES) - 1))  # type: ignore[misc]
        beyond = position + MIB + AHEAD_BYTES
        assert beyond >= FILE_BYTES or not has(file, beyond), "what the disk's read_ahead_kb says is far too much"


def test_random_access_gets_no_read_ahead(mover: Moving, file: Held) -> None:
    for position in (9 * MIB, 3 * MIB, 13 * MIB):
        send(mover, file, position, MIB)
        assert not has(file, position - 1)
        assert not has(file, position + MIB)


def test_read_ahead_stops_at_the_end_of_the_file(mover: Moving, file: Held) -> None:
    end = FILE_BYTES - 100
    os.ftruncate(file.fileno(), end)
    send(mover, file, 15 * MIB, MIB - 100)
    os.posix_fadvise(file.fileno(), 15 * MIB, 0, os.POSIX_FADV_DONTNEED)
    send(mover, file, 14 * MIB, MIB)
    send(mover, file, 15 * MIB, MIB - 100)
