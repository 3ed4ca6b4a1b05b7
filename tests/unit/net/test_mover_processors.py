"""Choice of the sending thread: the one of the processor that receives the peer's data.

If that thread has much more work, or the loop runs there, an unpinned thread sends.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.net.native import processors
from odradek.net.native.movers import HAS_MOVER

if not HAS_MOVER:  # pragma: no cover
    pytest.skip("the mover was built without a compiler", allow_module_level=True)

from support.moving import THREADS, Held, Moving, nothing, tcp_pair

pytestmark = pytest.mark.waits

if len(processors.usable()) < 2:  # pragma: no cover
    pytest.skip("there is one processor", allow_module_level=True)

HERE, THERE = sorted(processors.usable())[:2]
GROUPS = [{HERE}, {THERE}]
OF_NONE, OF_HERE, OF_THERE = 0, THREADS, THREADS + 1


def on(processor: int, work: Callable[[], object]) -> None:
    def keep_and_work() -> None:
        assert processors.keep_to({processor})
        done.append(work())

    done: list[object] = []
    working = threading.Thread(target=keep_and_work)
    working.start()
    working.join()
    assert done, "it failed"


def send_request_from(processor: int, theirs: socket.socket) -> None:
    on(processor, lambda: theirs.sendall(b"?"))


def send_from(processor: int, mover: Moving, ours: socket.socket, file: Held) -> None:
    on(processor, lambda: mover.send(ours.fileno(), b"", file, 0, 1000, b"", False, nothing))


@pytest.fixture
def file(tmp_path: Path) -> Held:
    held = Held(tmp_path / "file")
    os.pwrite(held.fileno(), bytes(1000), 0)
    return held


@pytest.mark.parametrize(
    ("processor", "loops", "thread"),
    [(HERE, THERE, OF_HERE), (THERE, HERE, OF_THERE), (HERE, HERE, OF_NONE), (THERE, THERE, OF_NONE)],
)
def test_thread_of_the_peers_processor_sends_unless_the_loop_is_there(
    file: Held, processor: int, loops: int, thread: int
) -> None:
    mover = Moving(GROUPS, running=[thread])
    with tcp_pair() as (ours, theirs):
        send_request_from(processor, theirs)
        send_from(loops, mover, ours, file)
        mover.wait()
    mover.end()


def test_busy_thread_leaves_transfers_to_others(file: Held) -> None:
    mover = Moving(GROUPS, running=[OF_THERE])
    pairs = [tcp_pair() for _ in range(6)]
    for one in pairs:
        ours, theirs = one.__enter__()
        send_request_from(HERE, theirs)
        send_from(THERE, mover, ours, file)
    assert len(mover.wait()) == 1, "the others wait for a thread that does not run"
    for one in pairs:
        one.__exit__(None, None, None)
    mover.end()


def test_peer_of_an_unknown_processor_is_served(file: Held) -> None:
    mover = Moving([{1022}, {1023, 5000}])
    with tcp_pair() as (ours, theirs):
        send_request_from(HERE, theirs)
        begun = mover.send(ours.fileno(), b"", file, 0, 1000, b"", False, nothing)
        assert mover.wait() == [begun]
    mover.end()


def test_groups_partition_the_processors() -> None:
    usable = processors.usable()
    assert processors.groups(1) == []
    for count in (2, 3, 64):
        groups = processors.groups(count)
        assert len(groups) == min(count, len(usable))
        assert set().union(*groups) == usable
        assert sum(map(len, groups)) == len(usable)


def test_thread_is_pinned_to_its_processors() -> None:
    kept: list[set[int]] = []

    def keep() -> None:
        assert processors.keep_to({THERE})
        kept.append(processors.usable())
        assert not processors.keep_to({1023}), "there is no such processor"
        assert not processors.keep_to(set())
        kept.append(processors.usable())

    keeping = threading.Thread(target=keep)
    keeping.start()
    keeping.join()
    assert kept == [{THERE}, {THERE}]
    assert HERE in processors.usable(), "it is the thread's affair alone"
