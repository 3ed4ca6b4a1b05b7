"""ZooKeeper outages beyond the session timeout, under brokers with three replicas and their clients."""

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


def check_progress_for(case: Case, seconds: float) -> None:
    """Check that leaders continue and answer acks=all."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        case.wait_for_progress()


@pytest.mark.parametrize("seconds", AWAY_SECONDS)
def test_leaders_continue_while_zookeeper_is_paused(tmp_path: Path, seconds: int) -> None:
    with under_load(tmp_path, 41) as case:
        ensemble = case.cluster.ensemble
        os.kill(ensemble.pid, signal.SIGSTOP)
        try:
            check_progress_for(case, seconds)
        finally:
            os.kill(ensemble.pid, signal.SIGCONT)


@pytest.mark.parametrize("seconds", AWAY_SECONDS)
def test_leaders_continue_while_zookeeper_restarts(tmp_path: Path, seconds: int) -> None:
    with under_load(tmp_path, 42) as case:
        cluster, topic = case.cluster, "waits"
        cluster.create_topic(topic)
        states = cluster.states()
        cluster.ensemble.kill()
        check_progress_for(case, seconds)
        # The ISR cannot change in this time: records that a follower in it lacks are not acknowledged.
        case.network.cut(cluster.hosts[1], cluster.hosts[2])
        assert "acknowledged" not in cluster.sent_in_vain(1, topic, [0])
        cluster.ensemble.start()
        assert cluster.states().keys() >= states.keys()
        until(lambda: 2 not in cluster.state(topic, 0).isr)
        assert cluster.state(topic, 0).leader == 1
        assert "acknowledged" in cluster.sent_in_vain(1, topic, [0])


@pytest.mark.parametrize("times", EXPIRIES)
def test_sessions_of_controllers_end_repeatedly(tmp_path: Path, times: int) -> None:
    """Each controller in turn loses its session as soon as it is elected."""
    with under_load(tmp_path, 43) as case:
        cluster = case.cluster
        for _ in range(times):
            controller = cluster.controller()
            case.network.cut(cluster.hosts[controller], cluster.keeper)
            until(lambda: controller not in cluster.registered())  # noqa: B023  # It is called here alone.
            case.network.heal()
            until(lambda: cluster.registered() == set(BROKERS) and cluster.controller() in BROKERS)
            case.wait_for_progress()
