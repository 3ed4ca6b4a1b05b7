"""The workload of Jepsen for Kafka while the brokers of a cluster are killed in turn; the checker finds nothing."""

from __future__ import annotations

import signal
from itertools import cycle
from pathlib import Path

import pytest
from test_jepsen import TOPICS, check_history, workload
from workload.brokers import create_topics
from workload.nemesis import kill_for
from workload.settings import BROKER_SETTINGS

from support.serving_cluster import ServingCluster
from support.waiting import until

BETWEEN_SECONDS = (0.7, 2.0)


class OneAfterTheOther:
    """Kills the brokers in turn; `odradek serve --brokers` starts each again."""

    def __init__(self, cluster: ServingCluster) -> None:
        self._cluster = cluster
        self._next = cycle(range(1, cluster.count + 1))
        self._ready = 0

    @property
    def address(self) -> str:
        return self._cluster.address

    def kill(self) -> None:
        self._ready = len(self._cluster.lines)
        self._cluster.signal(next(self._next), signal.SIGKILL)

    def start(self) -> None:
        until(lambda: len(self._cluster.lines) > self._ready)


def crash(folder: Path, seconds: float, seed: int) -> None:
    history = folder / "history.jsonl"
    with ServingCluster(folder, configs=BROKER_SETTINGS) as cluster:
        create_topics(cluster.address, TOPICS)
        with workload(cluster.address, history, seconds, seed):
            kills = kill_for(seconds, OneAfterTheOther(cluster), BETWEEN_SECONDS, seed)
    check_history(history, kills, seconds)
    assert "Traceback" not in cluster.errors()


def test_brokers_that_are_killed_keep_what_kafka_promises(tmp_path: Path) -> None:
    crash(tmp_path, 12, 16)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_brokers_that_are_killed_for_long(tmp_path: Path, seed: int) -> None:
    crash(tmp_path, 60, seed)
