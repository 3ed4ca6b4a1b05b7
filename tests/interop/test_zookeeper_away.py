"""ZooKeeper is away for longer than sessions last, under brokers with three replicas and their clients."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from kafka_zookeeper import OLD_KAFKA
from parted_cluster import BROKERS, Case, under_load

from support.network_namespaces import reason_to_skip
from support.waiting import until

pytestmark = [
    *OLD_KAFKA,
    pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip()),
    pytest.mark.own_peer("kills brokers on a ZooKeeper of its own"),
]

AWAY_SECONDS = [6, pytest.param(60, marks=pytest.mark.soak)]
EXPIRIES = [3, pytest.param(12, marks=pytest.mark.soak)]


def goes_on_for(case: Case, seconds: float) -> None:
    """Whoever led goes on, and answers acks=all."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        case.goes_on()


@pytest.mark.parametrize("seconds", AWAY_SECONDS)
def test_zookeeper_stands_still(tmp_path: Path, seconds: int) -> None:
    with under_load(tmp_path, 41) as case:
        ensemble = case.cluster.ensemble
        os.kill(ensemble.pid, signal.SIGSTOP)
        try:
            goes_on_for(case, seconds)
        finally:
            os.kill(ensemble.pid, signal.SIGCONT)


@pytest.mark.parametrize("seconds", AWAY_SECONDS)
def test_zookeeper_is_killed_and_started_on_its_data(tmp_path: Path, seconds: int) -> None:
    with under_load(tmp_path, 42) as case:
        cluster, topic = case.cluster, "waits"
        cluster.create_topic(topic)
        states = cluster.states()
        cluster.ensemble.kill()
        goes_on_for(case, seconds)
        # The ISR can't change meanwhile: what a follower in it does not have is not acknowledged.
        case.network.cut(cluster.hosts[1], cluster.hosts[2])
        assert "acknowledged" not in cluster.sent_in_vain(1, topic, [0])
        cluster.ensemble.start()
        assert cluster.states().keys() >= states.keys()
        until(lambda: 2 not in cluster.state(topic, 0).isr)
        assert cluster.state(topic, 0).leader == 1
        assert "acknowledged" in cluster.sent_in_vain(1, topic, [0])


@pytest.mark.parametrize("times", EXPIRIES)
def test_a_session_ends_again_and_again(tmp_path: Path, times: int) -> None:
    """Of each controller in turn, as soon as it is one."""
    with under_load(tmp_path, 43) as case:
        cluster = case.cluster
        for _ in range(times):
            controller = cluster.controller()
            case.network.cut(cluster.hosts[controller], cluster.keeper)
            until(lambda: controller not in cluster.registered())  # noqa: B023  # It is called here alone.
            case.network.heal()
            until(lambda: cluster.registered() == set(BROKERS) and cluster.controller() in BROKERS)
            case.goes_on()
