"""Movers with a changed number of threads: running transfers continue, later ones use the new threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

import pytest

from odradek.net.native.movers import HAS_MOVER, Movers

if not HAS_MOVER:  # pragma: no cover
    pytest.skip("the mover was built without a compiler", allow_module_level=True)

from odradek.net.native.mover import Transfer
from support.moving import Held, nothing, pair, until

pytestmark = pytest.mark.slow


def threads(*before: threading.Thread) -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("odradek-mover")} - set(before)


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_running_transfers_continue_after_a_resize(file: Held) -> None:
    others = threads()
    reported: list[Transfer] = []

    async def work() -> None:
        movers = Movers(asyncio.get_running_loop(), 3)
        with pair() as (ours, theirs), pair() as (second, second_peer), pair() as (third, third_peer):
            old = movers.store(ours.fileno(), file, 0, 6, crc=0, tail_bytes=0, done=reported.append)
            left = movers.store(second.fileno(), file, 100, 6, crc=0, tail_bytes=0, done=reported.append)
            assert old is not None and left is not None
            first_threads = threads(*others)
            theirs.sendall(b"abc")
            until(lambda: movers.moved(old) == 3)
            movers.resize(1)
            assert movers.moved(old) == 3
            new = movers.store(third.fileno(), file, 6, 3, crc=0, tail_bytes=0, done=reported.append)
            assert new is not None
            assert len(threads(*others, *first_threads)) < len(first_threads)
            third_peer.sendall(b"ghi")
            await wait_until(lambda: reported == [new])
            theirs.sendall(b"def")
            await wait_until(lambda: reported == [new, old])
            assert os.pread(file.fileno(), 9, 0) == b"abcdefghi"
            assert first_threads <= threads(*others), "one of theirs has not ended"
            second_peer.sendall(b"jk")
            until(lambda: movers.moved(left) == 2)
            assert movers.cancel(left) == 2
            await wait_until(lambda: not first_threads & threads(*others))
        movers.stop()
        assert not threads(*others)

    asyncio.run(work())
    assert len(reported) == 2


def test_idle_old_mover_ends_immediately(file: Held) -> None:
    others = threads()

    async def work() -> None:
        movers = Movers(asyncio.get_running_loop(), 1)
        with pair() as (ours, _theirs):
            transfer = movers.store(ours.fileno(), file, 0, 1, crc=0, tail_bytes=0, done=nothing)
            assert transfer is not None
            movers.cancel(transfer)
            few = threads(*others)
            movers.resize(3)
            until(lambda: not few & threads())
            movers.store(ours.fileno(), file, 0, 1, crc=0, tail_bytes=0, done=nothing)
            assert len(threads(*others)) > len(few)
            movers.resize(3)
            assert len(threads(*others)) > len(few), "nothing is changed"
            movers.resize(2)  # Its transfer is running.
        movers.stop()
        until(lambda: not threads(*others))
        movers.resize(5)
        with pair() as (ours, _theirs):
            assert movers.store(ours.fileno(), file, 0, 1, crc=0, tail_bytes=0, done=nothing) is None

    asyncio.run(work())
