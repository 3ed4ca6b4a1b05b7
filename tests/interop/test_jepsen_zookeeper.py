"""Jepsen's workload for Kafka on a ZooKeeper ensemble, while brokers and ZooKeeper are killed in turn."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

import pytest
from clients.registry import parameter
from kafka_zookeeper import OLD_KAFKA, ZooKeeper
from test_cluster_zookeeper import BROKERS, broker
from test_jepsen import TOPICS, check_history, workload
from workload.brokers import create_topics
from workload.nemesis import kill_for
from workload.programs import PROGRAMS, built
from workload.settings import BROKER_SETTINGS, STATE_REPLICAS, GroupProtocol

from support.serving import Serving

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("kills brokers on a ZooKeeper of its own")]

BETWEEN_SECONDS = (0.7, 2.0)
NEWEST: GroupProtocol = "classic"  # No feature is finalized on an ensemble.


class OneAfterTheOther:
    """A schedule that kills ZooKeeper once, between brokers in turn."""

    def __init__(self, brokers: dict[int, Serving], ensemble: ZooKeeper) -> None:
        self._brokers = brokers
        self._ensemble = ensemble
        self._next = cycle(BROKERS)
        self._kills = 0
        self._killed: Serving | ZooKeeper = ensemble

    @property
    def address(self) -> str:
        return ",".join(one.address for one in self._brokers.values())

    def kill(self) -> None:
        self._kills += 1
        if self._kills == 2:
            self._killed = self._ensemble
            self._ensemble.kill()
        else:
            self._killed = killed = self._brokers[next(self._next)]
            killed.kill()

    def start(self) -> None:
        self._killed.start()


def crash(folder: Path, seconds: float, seed: int, client: str = "librdkafka", *, replicas: int = 1) -> None:
    history = folder / "history.jsonl"
    program = built(client) if client in PROGRAMS else []
    with ExitStack() as stack:
        ensemble = stack.enter_context(ZooKeeper(folder / "zookeeper"))
        connect = f"127.0.0.1:{ensemble.port}/odradek"
        settings = BROKER_SETTINGS | dict.fromkeys(STATE_REPLICAS, str(replicas))
        made = {number: broker(folder, number, connect, settings) for number in BROKERS}
        brokers = {number: stack.enter_context(one) for number, one in made.items()}
        nemesis = OneAfterTheOther(brokers, ensemble)
        create_topics(nemesis.address, TOPICS, replicas)
        with workload(nemesis.address, history, seconds, seed, program, newest=NEWEST):
            kills = kill_for(seconds, nemesis, BETWEEN_SECONDS, seed)
    check_history(history, kills, seconds)
    for one in brokers.values():
        assert "Traceback" not in one.errors()
        assert "broker -1 " not in one.errors(), "nobody is asked who is not known"


def test_killed_brokers_and_zookeeper_cause_no_anomaly(tmp_path: Path) -> None:
    crash(tmp_path, 12, 21)


def test_killed_replicas_cause_no_anomaly(tmp_path: Path) -> None:
    crash(tmp_path, 12, 23, replicas=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_killed_replicas_for_long_cause_no_anomaly(tmp_path: Path, seed: int) -> None:
    crash(tmp_path, 60, seed, replicas=3)


@pytest.mark.parametrize("client", [parameter("java-4.4.0")])
def test_java_clients_see_no_anomaly(tmp_path: Path, client: str) -> None:
    crash(tmp_path, 12, 22, client, replicas=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_killed_brokers_and_zookeeper_for_long_cause_no_anomaly(tmp_path: Path, seed: int) -> None:
    crash(tmp_path, 60, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("client", [parameter(name) for name in PROGRAMS])
def test_other_clients_for_long_see_no_anomaly(tmp_path: Path, client: str, seed: int) -> None:
    crash(tmp_path, 60, seed, client)
