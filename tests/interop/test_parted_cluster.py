"""Brokers cut off in a network that loses what is sent: the checker finds nothing, and who was deposed says nothing.

Each test has the clients of `workload` go on meanwhile: idempotent producers with acks=all, groups, transactions.
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


def test_a_leader_that_nobody_reaches(tmp_path: Path) -> None:
    with under_load(tmp_path, 31) as case:
        cluster = case.cluster
        deposed = cluster.state(*BUSY).leader
        led = cluster.led_by(deposed, VAIN)
        case.network.cut(cluster.hosts[deposed])
        assert "acknowledged" not in cluster.sent_in_vain(deposed, VAIN, led)
        cluster.until_deposed(deposed)
        case.goes_on()
        assert "acknowledged" not in cluster.sent_in_vain(deposed, VAIN, led)


def test_a_controller_that_has_lost_zookeeper_alone(tmp_path: Path) -> None:
    """It is reached by all others, which have another controller: what it says changes nothing."""
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
        case.goes_on()
        assert "of-the-zombie" not in cluster.topics()


def test_a_follower_that_has_lost_its_leader_alone(tmp_path: Path) -> None:
    """Both reach the controller: who leads and does not is kept from saying who is in sync, and commits nothing."""
    with under_load(tmp_path, 33, deposes=False) as case:
        cluster = case.cluster
        two = [broker for broker in BROKERS if broker != cluster.controller()]
        busy, state = next(
            (place, state) for place, state in cluster.states().items() if place[0] in TOPICS and state.leader in two
        )
        (follower,) = [broker for broker in two if broker != state.leader]
        case.network.cut(cluster.hosts[state.leader], cluster.hosts[follower])
        until(lambda: follower not in cluster.state(*busy).isr)
        case.goes_on()
        case.network.heal()
        until(lambda: follower in cluster.state(*busy).isr)
        assert cluster.state(*busy).leader_epoch == state.leader_epoch, "nobody else was elected"


def test_a_leader_that_sends_and_does_not_hear(tmp_path: Path) -> None:
    with under_load(tmp_path, 34) as case:
        cluster = case.cluster
        deaf = cluster.state(*BUSY).leader
        led = cluster.led_by(deaf, VAIN)
        case.network.deafen(cluster.hosts[deaf])
        cluster.until_deposed(deaf)
        assert "acknowledged" not in cluster.sent_in_vain(deaf, VAIN, led)
        case.goes_on()
