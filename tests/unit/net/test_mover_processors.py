"""Which thread sends: the one for the processor that the peer's bytes come from, unless it has much more to do."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from odradek.net import processors
from odradek.net.movers import HAS_MOVER

if not HAS_MOVER:  # pragma: no cover
    pytest.skip("the mover was built without a compiler", allow_module_level=True)

from support.moving import THREADS, Held, Moving, nothing, tcp_pair

if len(processors.usable()) < 2:  # pragma: no cover
    pytest.skip("there is one processor", allow_module_level=True)

HERE, THERE = sorted(processors.usable())[:2]
GROUPS = [{HERE}, {THERE}]
OF_HERE, OF_THERE = THREADS, THREADS + 1


def ask_from(processor: int, theirs: socket.socket) -> None:
    def ask() -> None:
        assert processors.keep_to({processor})
        theirs.sendall(b"?")

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()


@pytest.fixture
def file(tmp_path: Path) -> Held:
    held = Held(tmp_path / "file")
    os.pwrite(held.fileno(), bytes(1000), 0)
    return held


@pytest.mark.parametrize(("processor", "thread"), [(HERE, OF_HERE), (THERE, OF_THERE)])
def test_who_asks_from_a_processor_is_answered_by_its_thread(file: Held, processor: int, thread: int) -> None:
    mover = Moving(GROUPS, running=[thread])
    with tcp_pair() as (ours, theirs):
        ask_from(processor, theirs)
        begun = mover.send(ours.fileno(), b"", file, 0, 1000, b"", False, nothing)
        assert mover.wait() == [begun]
    mover.end()


def test_a_thread_that_has_much_to_do_leaves_some_to_the_others(file: Held) -> None:
    mover = Moving(GROUPS, running=[OF_THERE])
    pairs = [tcp_pair() for _ in range(6)]
    for one in pairs:
        ours, theirs = one.__enter__()
        ask_from(HERE, theirs)
        assert mover.send(ours.fileno(), b"", file, 0, 1000, b"", False, nothing)
    assert len(mover.wait()) == 1, "the others wait for a thread that does not run"
    for one in pairs:
        one.__exit__(None, None, None)
    mover.end()


def test_a_peer_from_nowhere_is_answered_all_the_same(file: Held) -> None:
    mover = Moving([{1022}, {1023, 5000}])
    with tcp_pair() as (ours, theirs):
        ask_from(HERE, theirs)
        begun = mover.send(ours.fileno(), b"", file, 0, 1000, b"", False, nothing)
        assert mover.wait() == [begun]
    mover.end()


def test_groups_share_the_processors_out() -> None:
    usable = processors.usable()
    assert processors.groups(1) == []
    for count in (2, 3, 64):
        groups = processors.groups(count)
        assert len(groups) == min(count, len(usable))
        assert set().union(*groups) == usable
        assert sum(map(len, groups)) == len(usable)


def test_a_thread_keeps_to_what_it_is_told() -> None:
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
