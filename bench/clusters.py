"""Clusters of three that are measured, as processes: Odradek on its SQLite file and on a ZooKeeper, Apache Kafka 3.9.1.

Brokers are killed, stopped, paused and started one by one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from threading import Thread
from typing import TYPE_CHECKING

import machine
import measure
from brokers import KAFKA_FLAGS, ROOT, as_installed

from odradek.base.units import BrokerId
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import Tree
from odradek.coordination.zookeeper import open_zookeeper
from support.serving import Serving
from support.serving_cluster import ServingCluster

if TYPE_CHECKING:
    from kafka_zookeeper import OldKafka

BROKERS = (1, 2, 3)
SESSION_MS = 10_000
SECONDS_MAX = 300
POLL_SECONDS = 0.05


class Cluster:
    """Three brokers, which may be killed and started one by one."""

    name = ""

    def __init__(self, folder: Path, settings: Mapping[str, str] = {}) -> None:
        self.folder = folder
        self.settings = dict(settings)
        folder.mkdir(parents=True)

    def start(self) -> None:
        """Starts all brokers; returns when all say that they are ready."""
        each(self.start_again, BROKERS)

    def stop(self) -> None:
        raise NotImplementedError

    def kill(self, broker: int) -> None:
        raise NotImplementedError

    def stop_one(self, broker: int) -> None:
        """Returns when a broker has ended after SIGTERM."""
        raise NotImplementedError

    def start_again(self, broker: int) -> None:
        raise NotImplementedError

    def pause(self, broker: int) -> None:
        os.kill(self.pid(broker), SIGSTOP)

    def resume(self, broker: int) -> None:
        os.kill(self.pid(broker), SIGCONT)

    def port(self, broker: int) -> int:
        raise NotImplementedError

    def pid(self, broker: int) -> int:
        raise NotImplementedError

    def cpu_seconds(self) -> float:
        """Returns the processor time of all brokers since they were started."""
        return sum(measure.cpu_seconds(self.pid(broker)) for broker in BROKERS)

    def wait_for_session(self, broker: int) -> None:
        """Returns when the session of a broker that was killed has ended, if that can be seen."""

    def close(self) -> None:
        """Kills what still runs."""


class Local(Cluster):
    """`odradek serve --brokers 3`, whose first process is paused while a broker is to stay away."""

    name = "odradek"

    def __init__(self, folder: Path, settings: Mapping[str, str] = {}) -> None:
        super().__init__(folder, settings)
        self._cluster = ServingCluster(folder, configs=self.settings)
        self._cluster.environment |= environment()

    def start(self) -> None:
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.stop()

    def kill(self, broker: int) -> None:
        self._cluster.signal_first(SIGSTOP)
        self._cluster.signal(broker, SIGKILL)

    def stop_one(self, broker: int) -> None:
        self._cluster.signal_first(SIGSTOP)
        pid = self.pid(broker)
        self._cluster.signal(broker, SIGTERM)
        until(lambda: has_ended(pid))

    def start_again(self, broker: int) -> None:
        ready = len(self._cluster.lines)
        self._cluster.signal_first(SIGCONT)
        until(lambda: len(self._cluster.lines) > ready)

    def port(self, broker: int) -> int:
        return self._cluster.port + broker - 1

    def pid(self, broker: int) -> int:
        return self._cluster.pids()[broker]

    def close(self) -> None:
        if not self._cluster.has_ended:
            self._cluster.signal_first(SIGCONT)
            self._cluster.stop()


class OnZooKeeper(Cluster):
    """Brokers that are started one by one, on a ZooKeeper of their own."""

    def __init__(self, folder: Path, settings: Mapping[str, str] = {}) -> None:
        from kafka_zookeeper import ZooKeeper

        super().__init__(folder, {"zookeeper.session.timeout.ms": str(SESSION_MS), **settings})
        self._zookeeper = ZooKeeper(folder / "zookeeper")
        self._zookeeper.start()
        self.connect = f"127.0.0.1:{self._zookeeper.port}/kafka"
        self._tree: Tree = open_zookeeper(self.connect, makes_chroot=True)
        self._brokers = {number: self.broker(number) for number in BROKERS}

    def broker(self, number: int) -> Serving | OldKafka:
        raise NotImplementedError

    def stop(self) -> None:
        each(lambda broker: self._brokers[broker].stop(), BROKERS)

    def kill(self, broker: int) -> None:
        self._brokers[broker].kill()

    def stop_one(self, broker: int) -> None:
        self._brokers[broker].stop()

    def start_again(self, broker: int) -> None:
        self._brokers[broker].start()

    def port(self, broker: int) -> int:
        return self._brokers[broker].port

    def pid(self, broker: int) -> int:
        return self._brokers[broker].pid

    def wait_for_session(self, broker: int) -> None:
        until(lambda: self._tree.exists(layout.broker(BrokerId(broker))) is None)

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.kill()
        self._tree.close()
        self._zookeeper.kill()


class Odradek(OnZooKeeper):
    name = "odradek-zookeeper"

    def broker(self, number: int) -> Serving:
        directory = self.folder / str(number)
        directory.mkdir()
        settings = {
            "broker.id": str(number),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "zookeeper.connect": self.connect,
            **self.settings,
        }
        broker = Serving(directory, **settings)
        broker.environment |= environment()
        return broker


class Kafka(OnZooKeeper):
    """Apache Kafka 3.9.1, with the heap and the flags of its own kafka-server-start.sh."""

    name = "kafka"

    def broker(self, number: int) -> OldKafka:
        from kafka_zookeeper import V3, OldKafka

        settings = {"broker.id": str(number), **self.settings}
        flags = ["-XX:-UseSerialGC", "-XX:TieredStopAtLevel=4", *KAFKA_FLAGS]  # Tests have others.
        folder = self.folder / str(number)
        return OldKafka(folder, V3, settings, zookeeper=self.connect, awaits_controller=False, options=flags)


CLUSTERS: dict[str, type[Cluster]] = {kind.name: kind for kind in (Local, Odradek, Kafka)}


def environment() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT / "src") if machine.is_interpreted() else as_installed()}


def has_ended(pid: int) -> bool:
    """Tells whether a process is gone, or waits for nothing but its parent."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def each(do: Callable[[int], object], brokers: Iterable[int]) -> None:
    """Does something for several brokers at a time."""
    failures: list[BaseException] = []

    def done(broker: int) -> None:
        try:
            do(broker)
        except BaseException as failure:  # It is the caller's.
            failures.append(failure)

    threads = [Thread(target=done, args=(broker,)) for broker in brokers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("it takes too long")
        time.sleep(POLL_SECONDS)
