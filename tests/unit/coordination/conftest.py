"""Fixtures with a store for each implementation of Tree, and a real ZooKeeper from the jars in PySpark's wheel."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from odradek.coordination.tree import Tree, WatchEvent
from sim.simclock import Action, SimClock, Timer
from sim.simtree import SimTreeServer
from support.ports import free_port
from unit.coordination.trees import open_tree

SCRIPT = Path(__file__).with_name("trees.py")
CHROOTS = itertools.count()


class Store:
    """The data of one tree; `open` creates a session."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._opened: list[Tree] = []

    def open(self, timeout_ms: int = 18_000) -> Tree:
        tree = open_tree(self.address, timeout_ms)
        self._opened.append(tree)
        return tree

    def process(self, command: str, *arguments: str, timeout_ms: int = 18_000) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        line = [sys.executable, str(SCRIPT), command, self.address, str(timeout_ms), *arguments]
        return subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment)

    def close(self) -> None:
        for tree in self._opened:
            tree.close()


class PromptClock(SimClock):
    """A simulated clock that does not wait: scheduled actions run as soon as no other action is running, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._is_idle = True

    def at(self, time_us: int, action: Action) -> Timer:
        timer = super().at(time_us, action)
        if self._is_idle:
            self._is_idle = False
            self.run_idle()
            self._is_idle = True
        return timer


class SimStore(Store):
    """The simulated tree, which is limited to this process and not thread-safe."""

    def __init__(self) -> None:
        super().__init__("sim")
        self._server = SimTreeServer(PromptClock(), lambda: 0)

    def open(self, timeout_ms: int = 18_000) -> Tree:
        tree = self._server.open(timeout_ms)
        self._opened.append(tree)
        return tree

    def process(self, command: str, *arguments: str, timeout_ms: int = 18_000) -> subprocess.Popen[str]:
        pytest.skip("The simulated tree lies in one process.")


class Seen:
    """A watch that records its events."""

    def __init__(self) -> None:
        self._events: SimpleQueue[WatchEvent] = SimpleQueue()

    def __call__(self, event: WatchEvent) -> None:
        self._events.put(event)

    def take(self, count: int = 1) -> list[WatchEvent]:
        return [self._events.get(timeout=120) for _ in range(count)]

    def nothing(self, tree: Tree) -> bool:
        """Return True if no event is pending: watches are called in order, so a new one is called last."""
        marker = Seen()
        path = tree.create("/marker-", sequential=True)
        tree.get(path, marker)
        tree.set(path, b"now")
        marker.take()
        tree.delete(path)
        try:
            self._events.get_nowait()
        except Empty:
            return True
        return False


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a ZooKeeper server for these tests, and return its host:port."""
    spark = importlib.util.find_spec("pyspark")
    java = shutil.which("java")
    if spark is None or spark.origin is None or importlib.util.find_spec("kazoo") is None or java is None:
        pytest.skip("A real ZooKeeper needs java, kazoo, and PySpark for its jars.")
    folder = tmp_path_factory.mktemp("zookeeper")
    port = free_port()
    (folder / "zoo.cfg").write_text(
        f"dataDir={folder}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=100\n"
        "minSessionTimeout=200\nadmin.enableServer=false\nmaxClientCnxns=0\n"
    )
    jars = Path(spark.origin).parent / "jars"
    server = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    # By default, each transaction is synced before its response, which takes minutes on a busy disk.
    options = ["-Xmx128m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"]
    line = [java, *options, "-cp", f"{jars}/*", server, "zoo.cfg"]
    with (folder / "log").open("wb") as log, subprocess.Popen(line, cwd=folder, stdout=log, stderr=log) as process:
        try:
            wait_for(port, process, folder / "log")
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(b"srvr")
                if connection.recv(1 << 16).startswith(b"Zookeeper version"):  # It listens before it serves.
                    return
        except OSError:
            assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(f"ZooKeeper is not up after 30 s:\n{log.read_text()}")


@pytest.fixture(params=["sqlite", "sim", pytest.param("zookeeper", marks=pytest.mark.java)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        opened = Store(f"sqlite:{tmp_path / 'tree.sqlite'}")
    elif request.param == "sim":
        opened = SimStore()
    else:
        hosts = request.getfixturevalue("zookeeper")
        root = f"/test{next(CHROOTS)}"
        tree = open_tree(f"zookeeper:{hosts}")
        tree.create(root)
        tree.close()
        opened = Store(f"zookeeper:{hosts}{root}")
    yield opened
    opened.close()


@pytest.fixture
def tree(store: Store) -> Tree:
    return store.open()
