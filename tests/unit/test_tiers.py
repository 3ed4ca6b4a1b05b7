"""Enforcement that tests without a marker stay in memory."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from support.seeds import shared
from support.tiers import MemoryOnly


def listen() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))


def connect_pair() -> None:
    for one in socket.socketpair():
        one.close()


def start_process() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def watch_call(item: pytest.Item, test: Callable[[], None]) -> None:
    """Run `test` as the call of an item without a marker."""
    call = MemoryOnly().pytest_runtest_call(item)
    next(call)
    test()
    with pytest.raises(StopIteration):
        next(call)


@pytest.mark.waits
@pytest.mark.parametrize("test", [listen, start_process])
def test_unmarked_test_that_leaves_memory_fails(test: Callable[[], None], request: pytest.FixtureRequest) -> None:
    unmarked = pytest.Function.from_parent(request.node.parent, name="unmarked", callobj=test)
    with pytest.raises(pytest.fail.Exception, match="not in memory"):
        watch_call(unmarked, test)
    unmarked.add_marker("waits")
    watch_call(unmarked, test)


def test_socket_pair_counts_as_memory(request: pytest.FixtureRequest) -> None:
    unmarked = pytest.Function.from_parent(request.node.parent, name="unmarked", callobj=lambda: None)
    watch_call(unmarked, connect_pair)


def test_share_of_the_parameters_is_specific_to_the_test_and_never_empty() -> None:
    every = [f"test_a[{number}]" for number in range(10)]
    chosen = shared("test_a", every, 4)
    assert len(chosen) == 3 and set(chosen) < set(every)
    assert chosen == shared("test_a", every[::-1], 4), "their order decides nothing"
    assert len(shared("test_a", every[:1], 4)) == 1
    assert len({tuple(shared(f"test_{number}", every, 4)) for number in range(10)}) > 1
