"""A test without a marker that leaves memory fails."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from support.tiers import MemoryOnly


def listen() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))


def connect_pair() -> None:
    for one in socket.socketpair():
        one.close()


def start_process() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def watched(item: pytest.Item, test: Callable[[], None]) -> None:
    """Run `test` as the call of an item that has no marker."""
    call = MemoryOnly().pytest_runtest_call(item)
    next(call)
    test()
    with pytest.raises(StopIteration):
        next(call)


@pytest.mark.waits
@pytest.mark.parametrize("test", [listen, start_process])
def test_it_fails_if_it_leaves_memory(test: Callable[[], None], request: pytest.FixtureRequest) -> None:
    unmarked = pytest.Function.from_parent(request.node.parent, name="unmarked", callobj=test)
    with pytest.raises(pytest.fail.Exception, match="not in memory"):
        watched(unmarked, test)
    unmarked.add_marker("waits")
    watched(unmarked, test)


def test_a_pair_of_sockets_is_memory(request: pytest.FixtureRequest) -> None:
    unmarked = pytest.Function.from_parent(request.node.parent, name="unmarked", callobj=lambda: None)
    watched(unmarked, connect_pair)
