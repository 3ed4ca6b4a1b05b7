"""Tiers of the tests, and their permitted operations.

    (none)             in memory: no connection, no process; files are in memory, too, unless it is marked `disk`
    waits              connects, starts processes, or waits for time to pass; implied for tests/interop
    own_peer(reason)   starts its own Apache Kafka or ZooKeeper, for this reason; runs with --nightly
    nightly            hardly ever broken by a change; runs with --nightly
    share(n)           one in n of its parameters runs, chosen by the hash of src; all run with --nightly
    soak               takes hours; runs with --soak

A test without a marker that connects or starts a process fails, so that the fast tier stays fast.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from support.seeds import is_nightly, shared

WAITING = "waits"
_FORBIDDEN = ("socket.bind", "socket.connect", "subprocess.Popen", "os.fork", "os.posix_spawn", "os.system")
_LEFT_OUT = {"nightly": ("nightly", "own_peer"), "soak": ("soak",)}
_LATE = [tier for tiers in _LEFT_OUT.values() for tier in tiers]


def is_interop(path: Path) -> bool:
    """Return whether a test file is about whole processes."""
    return "interop" in path.parts


def mark_tiers(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of tests/interop as waiting, and skip the tiers that the command line does not name."""
    for item in items:
        if is_interop(item.path):
            item.add_marker(WAITING)
        for marker in item.iter_markers("own_peer"):
            assert marker.args and isinstance(marker.args[0], str), f"{item.nodeid}: own_peer needs its reason"
    if not is_nightly():
        _leave_out_shares(items)
    for option, tiers in _LEFT_OUT.items():
        if config.getoption("--soak") or config.getoption(f"--{option}"):
            continue
        skip = pytest.mark.skip(reason=f"runs with --{option}")
        for item in items:
            if any(tier in item.keywords for tier in tiers):
                item.add_marker(skip)


def _leave_out_shares(items: list[pytest.Item]) -> None:
    """Skip all but a share of the parameters of each marked test; the share depends on the source tree."""
    skip = pytest.mark.skip(reason="runs with --nightly, or for other sources")
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("share") is not None and not any(tier in item.keywords for tier in _LATE):
            tests[item.nodeid.partition("[")[0]].append(item)
    for name, parameters in tests.items():
        marker = parameters[0].get_closest_marker("share")
        assert marker is not None
        chosen = set(shared(name, [item.nodeid for item in parameters], *marker.args))
        for item in parameters:
            if item.nodeid not in chosen:
                item.add_marker(skip)


class MemoryOnly:
    """The pytest plugin that fails an unmarked test which connects or starts a process.

    Audit hooks can't be removed: there is one for the life of the process, which does nothing between tests.
    """

    def __init__(self) -> None:
        self._is_watching = False
        self._seen: list[str] = []
        sys.addaudithook(self._on_audited)

    def _on_audited(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._is_watching or event not in _FORBIDDEN:
            return
        if threading.current_thread() is threading.main_thread():  # Threads of earlier tests may still run.
            self._seen.append(f"{event}{arguments[1:2]}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        self._seen.clear()
        self._is_watching = item.get_closest_marker(WAITING) is None
        try:
            yield
        finally:
            self._is_watching = False
        if self._seen:
            pytest.fail(f"not in memory: {self._seen[0]}; mark the test `{WAITING}`", pytrace=False)
