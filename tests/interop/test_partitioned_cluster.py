"""Brokers isolated by a network that drops packets: no anomaly, and deposed brokers acknowledge nothing.

The clients of `workload` run all along: idempotent producers with acks=all, groups, transactions.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_zookeeper import OLD_KAFKA
from parted_cluster import BROKERS, BUSY, PORT, VAIN, under_load
from test_jepsen import TOPICS

from odradek.base.errors import ErrorCode
from support.asking import create
from support.network_namespaces import reason_to_skip
from support.raw_client import RawClient
from support.waiting import until

pytestmark = [
    *OLD_KAFKA,
    pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip()),
    pytest.mark.own_peer("kills brokers on a ZooKeeper of its own"),
]


def test_an_isolated_leader_acknowledges_nothing(tmp_path: Path) -> None:
    with under_load(tmp_path, 31) as case:
        cluster = case.cluster
        deposed = cluster.state(*BUSY).leader
        led = cluster.led_by(deposed, VAIN)
        case.network.cut(cluster.hosts[deposed])
        assert "acknowledged" not in cluster.sent_in_vain(deposed, VAIN, led)
        cluster.until_deposed(deposed)
        case.wait_for_progress()
        assert "acknowledged" not in cluster.sent_in_vain(deposed, VAIN, led)


def test_a_controller_without_zookeeper_changes_nothing(tmp_path: Path) -> None:
    """All brokers reach it, and follow another controller by then: its requests change nothing."""
    with under_load(tmp_path, 32) as case:
        cluster = case.cluster
        zombie = cluster.controller()
        led = cluster.led_by(zombie, VAIN)
        case.network.cut(cluster.hosts[zombie], cluster.keeper)
        until(lambda: cluster.controller() not in (-1, zombie))
        cluster.until_deposed(zombie)
        assert "acknowledged" not in cluster.sent_in_vain(zombie, VAIN, led)
        with RawClient(PORT, host=cluster.hosts[zombie].address) as client:
            assert create(client, "of-the-zombie") != [ErrorCode.NONE]
        case.wait_for_progress()
        assert "of-the-zombie" not in cluster.topics()


def test_a_follower_cut_off_from_its_leader_alone(tmp_path: Path) -> None:
    """Both still reach the controller: the leader removes the follower from the ISR, and no leader is elected."""
    with under_load(tmp_path, 33, deposes=False) as case:
        cluster = case.cluster
        two = [broker for broker in BROKERS if broker != cluster.controller()]
        busy, state = next(
            (place, state) for place, state in cluster.states().items() if place[0] in TOPICS and state.leader in two
        )
        (follower,) = [broker for broker in two if broker != state.leader]
        case.network.cut(cluster.hosts[state.leader], cluster.hosts[follower])
        until(lambda: follower not in cluster.state(*busy).isr)
        case.wait_for_progress()
        case.network.heal()
        until(lambda: follower in cluster.state(*busy).isr)
        assert cluster.state(*busy).leader_epoch == state.leader_epoch, "nobody else was elected"


def test_a_leader_that_receives_nothing_acknowledges_nothing(tmp_path: Path) -> None:
    with under_load(tmp_path, 34) as case:
        cluster = case.cluster
        deaf = cluster.state(*BUSY).leader
        led = cluster.led_by(deaf, VAIN)
        case.network.deafen(cluster.hosts[deaf])
        cluster.until_deposed(deaf)
        assert "acknowledged" not in cluster.sent_in_vain(deaf, VAIN, led)
        case.wait_for_progress()
