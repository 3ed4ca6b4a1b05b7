"""Jepsen's workload for Kafka while brokers are killed, paused or out of disk space; the checker finds no anomaly.

All topics have three replicas. A broker is paused until its session has ended, and has no space until others lead.

librdkafka 2.16 in Python is left out: once in three minutes, all threads of its process blocked when a producer was
closed after a fatal transaction error.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

import pytest
from clients.registry import parameter
from confluent_kafka.admin import AdminClient
from kafka_zookeeper import OLD_KAFKA, ZooKeeper
from test_cluster_zookeeper import BROKERS, broker
from test_jepsen import TOPICS, check_history, workload
from test_jepsen_zookeeper import BETWEEN_SECONDS, NEWEST
from workload.brokers import create_topics
from workload.nemesis import kill_for
from workload.programs import PROGRAMS, built
from workload.settings import BROKER_SETTINGS, STATE_REPLICAS

from odradek.coordination import tree_layout as layout
from odradek.coordination.zookeeper import open_zookeeper
from support.faults import Faults, Operations
from support.serving import Serving
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("kills brokers on a ZooKeeper of its own")]

REPLICAS = 3
CONFIGS = BROKER_SETTINGS | dict.fromkeys(STATE_REPLICAS, str(REPLICAS)) | {"replica.lag.time.max.ms": "2000"}


class BadDays:
    """A schedule in which each broker has one fault of each kind before any has a second one."""

    def __init__(self, brokers: dict[int, Serving], faults: dict[int, Faults], connect: str) -> None:
        self._brokers = brokers
        self._faults = faults
        self._connect = connect
        self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        kinds = (self._killed, self._paused, self._full)
        days = [(kinds[(first + number) % 3], number) for first in range(3) for number in BROKERS]
        self._next = cycle(days)
        self._end: Callable[[], object] = lambda: None
        self.kinds: set[str] = set()

    @property
    def address(self) -> str:
        return ",".join(one.address for one in self._brokers.values())

    def kill(self) -> None:
        kind, number = next(self._next)
        self.kinds.add(kind.__name__)
        self._end = kind(number)

    def start(self) -> None:
        self._end()

    def _killed(self, number: int) -> Callable[[], object]:
        self._brokers[number].kill()
        return self._brokers[number].start

    def _paused(self, number: int) -> Callable[[], object]:
        pid = self._brokers[number].pid
        os.kill(pid, signal.SIGSTOP)
        until(lambda: not self._is_registered(number))
        return lambda: os.kill(pid, signal.SIGCONT)

    def _full(self, number: int) -> Callable[[], object]:
        self._faults[number].fail(Operations.WRITES, "/data/", errno.ENOSPC)
        until(lambda: not self._leads(number))
        return self._faults[number].repair

    def _is_registered(self, number: int) -> bool:
        tree = open_zookeeper(self._connect)
        try:
            return tree.exists(layout.broker(number)) is not None
        finally:
            tree.close()

    def _leads(self, number: int) -> bool:
        topics = self._admin.list_topics(timeout=SECONDS_MAX).topics
        return any(one.leader == number for name in TOPICS for one in topics[name].partitions.values())


def suffer(folder: Path, seconds: float, seed: int, client: str) -> None:
    history = folder / "history.jsonl"
    program = built(client)
    with ExitStack() as stack:
        ensemble = stack.enter_context(ZooKeeper(folder / "zookeeper"))
        connect = f"127.0.0.1:{ensemble.port}/odradek"
        made = {number: broker(folder, number, connect, CONFIGS) for number in BROKERS}
        faults = {number: Faults(one.directory) for number, one in made.items()}
        for number, one in made.items():
            one.environment = faults[number].environment
        brokers = {number: stack.enter_context(one) for number, one in made.items()}
        nemesis = BadDays(brokers, faults, connect)
        create_topics(nemesis.address, TOPICS, REPLICAS)
        with workload(nemesis.address, history, seconds, seed, program, newest=NEWEST):
            days = kill_for(seconds, nemesis, BETWEEN_SECONDS, seed)
    check_history(history, days, seconds)
    assert len(nemesis.kinds) == min(days, 3)
    for one in brokers.values():
        assert "Traceback" not in one.errors()


@pytest.mark.parametrize("client", [parameter(name) for name in ("java-4.4.0", "franz-go")])
def test_bad_days_cause_no_anomaly(tmp_path: Path, client: str) -> None:
    suffer(tmp_path, 16, 31, client)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("client", [parameter(name) for name in PROGRAMS])
def test_bad_days_for_long_cause_no_anomaly(tmp_path: Path, client: str, seed: int) -> None:
    suffer(tmp_path, 90, seed, client)
