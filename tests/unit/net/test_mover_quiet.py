"""Quiet transfers of the mover: a successful end wakes no thread, and is reported eventually."""

from __future__ import annotations

import asyncio
import os

import pytest

from odradek.net.native.movers import HAS_MOVER, Movers

if not HAS_MOVER:  # pragma: no cover
    pytest.skip("the mover was built without a compiler", allow_module_level=True)

from support.moving import SECONDS_MAX, THREADS, Held, Moving, beside, nothing, pair, read

pytestmark = pytest.mark.slow

MIB = 1 << 20


def test_successful_quiet_transfer_wakes_no_thread(mover: Moving, file: Held) -> None:
    os.pwrite(file.fileno(), bytes(MIB), 0)
    with pair() as (ours, theirs):
        quiet = mover.send(ours.fileno(), b"", file, 0, 1000, b"", True, nothing)
        assert quiet is not None
        mover.until_moved(quiet, 1000)
        assert not mover.has_news(0.05)
        assert mover.check_ended(quiet)
        assert (quiet.moved, quiet.error, quiet.done) == (1000, 0, None)
        assert not mover.has_news(0)
        read(theirs, 1000, bytearray())

        transfer = mover.send(ours.fileno(), b"", file, 0, MIB, b"", True, nothing)
        assert transfer is not None
        assert not mover.check_ended(transfer)  # From here on the test waits for it.
        with beside(lambda: read(theirs, MIB, bytearray())):
            assert mover.wait() == [transfer]


def test_query_does_not_wait_for_the_sending_thread(mover: Moving, file: Held) -> None:
    os.pwrite(file.fileno(), bytes(MIB), 0)
    with pair() as (ours, theirs):
        ours.setblocking(True)  # The thread stays in its call until all is read.
        quiet = mover.send(ours.fileno(), b"", file, 0, MIB, b"", True, nothing)
        assert quiet is not None
        theirs.recv(1)  # The thread is in its call.
        assert not mover.check_ended(quiet)
        assert not mover.has_news(0.05)
        read(theirs, MIB - 1, bytearray())
        assert mover.wait() == [quiet]


def test_quiet_transfer_is_reported_with_the_next_ordinary_one(mover: Moving, file: Held) -> None:
    os.pwrite(file.fileno(), bytes(MIB), 0)
    with pair() as (ours, _theirs), pair() as (others, _third):
        quiet = mover.send(ours.fileno(), b"", file, 0, 1000, b"", True, nothing)
        assert quiet is not None
        mover.until_moved(quiet, 1000)
        assert not mover.has_news(0.05)
        loud = mover.send(others.fileno(), b"", file, 0, 1000, b"", False, nothing)
        assert mover.wait(2) == [quiet, loud]


def test_failed_quiet_transfer_is_reported(mover: Moving, file: Held) -> None:
    os.pwrite(file.fileno(), bytes(1000), 0)
    with pair() as (ours, _theirs):
        quiet = mover.send(ours.fileno(), b"", file, 0, 1001, b"", True, nothing)
        assert mover.wait() == [quiet]
        assert quiet is not None
        assert quiet.is_files_error


def test_quiet_transfer_is_reported_to_the_loop_eventually(file: Held) -> None:
    os.pwrite(file.fileno(), bytes(1000), 0)

    async def work() -> None:
        movers = Movers(asyncio.get_running_loop(), THREADS)
        ended = asyncio.Event()
        with pair() as (ours, _theirs):
            movers.send(ours.fileno(), b"", file, 0, 1000, is_quiet=True, done=lambda _: ended.set())
            await asyncio.wait_for(ended.wait(), SECONDS_MAX)
        movers.stop()

    asyncio.run(work())
