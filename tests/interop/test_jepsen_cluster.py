"""Jepsen's workload for Kafka while the brokers of a cluster are killed in turn; the checker finds no anomaly."""

from __future__ import annotations

import signal
from itertools import cycle
from pathlib import Path

import pytest
from clients.registry import parameter
from confluent_kafka.admin import AdminClient
from test_jepsen import TOPICS, check_history, workload
from workload.brokers import create_topics
from workload.nemesis import kill_for
from workload.programs import PROGRAMS, built
from workload.settings import BROKER_SETTINGS, STATE_REPLICAS

from support.serving_cluster import ServingCluster
from support.waiting import SECONDS_MAX, until

BETWEEN_SECONDS = (0.7, 2.0)
CONTROLLER, FIRST_PROCESS = "controller", "first process"


class OneAfterTheOther:
    """A schedule that kills a broker, the controller, the first process, and the other brokers in turn.

    `odradek serve --brokers` restarts a broker; the schedule restarts the first process.
    """

    def __init__(self, cluster: ServingCluster) -> None:
        self._cluster = cluster
        self._next = cycle([1, CONTROLLER, FIRST_PROCESS, *range(2, cluster.count + 1)])
        self._ready = 0
        self._admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})

    @property
    def address(self) -> str:
        return self._cluster.address

    def kill(self) -> None:
        self._ready = len(self._cluster.lines)
        match next(self._next):
            case "first process":
                self._cluster.kill_all()
            case "controller":
                self._cluster.signal(self._controller(), signal.SIGKILL)
            case int(broker):
                self._cluster.signal(broker, signal.SIGKILL)

    def start(self) -> None:
        if self._cluster.has_ended:
            self._cluster.start()
        else:
            until(lambda: len(self._cluster.lines) > self._ready)

    def _controller(self) -> int:
        found = -1

        def is_known() -> bool:
            nonlocal found
            found = self._admin.list_topics(timeout=SECONDS_MAX).controller_id
            return found in self._cluster.pids()

        until(is_known)
        return found


def crash(folder: Path, seconds: float, seed: int, client: str = "librdkafka", *, replicas: int = 1) -> None:
    history = folder / "history.jsonl"
    program = built(client) if client in PROGRAMS else []
    with ServingCluster(folder, configs=BROKER_SETTINGS | dict.fromkeys(STATE_REPLICAS, str(replicas))) as cluster:
        create_topics(cluster.address, TOPICS, replicas)
        with workload(cluster.address, history, seconds, seed, program):
            kills = kill_for(seconds, OneAfterTheOther(cluster), BETWEEN_SECONDS, seed)
    check_history(history, kills, seconds)
    assert "Traceback" not in cluster.errors()
    assert "broker -1 " not in cluster.errors(), "nobody is asked who is not known"


def test_killed_brokers_cause_no_anomaly(tmp_path: Path) -> None:
    crash(tmp_path, 12, 16)


def test_killed_replicas_cause_no_anomaly(tmp_path: Path) -> None:
    crash(tmp_path, 12, 18, replicas=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_killed_replicas_for_long_cause_no_anomaly(tmp_path: Path, seed: int) -> None:
    crash(tmp_path, 60, seed, replicas=3)


@pytest.mark.share(2)
@pytest.mark.parametrize("client", [parameter(name) for name in ("java-4.4.0", "franz-go")])
def test_other_clients_see_no_anomaly(tmp_path: Path, client: str) -> None:
    crash(tmp_path, 12, 17, client, replicas=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_killed_brokers_for_long_cause_no_anomaly(tmp_path: Path, seed: int) -> None:
    crash(tmp_path, 60, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("client", [parameter(name) for name in PROGRAMS])
def test_other_clients_for_long_see_no_anomaly(tmp_path: Path, client: str, seed: int) -> None:
    crash(tmp_path, 60, seed, client)
