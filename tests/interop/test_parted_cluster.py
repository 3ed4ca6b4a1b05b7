"""Brokers cut off in a network that loses what is sent: the checker finds nothing, and who was deposed says nothing.

Each test has the clients of `workload` go on meanwhile: idempotent producers with acks=all, groups, transactions.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka_zookeeper import OLD_KAFKA
from parted_cluster import BROKERS, BUSY, VAIN, under_load
from test_jepsen import TOPICS

from support.network_namespaces import reason_to_skip
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip())]


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
        admin = AdminClient({"bootstrap.servers": cluster.brokers[zombie].address, "log_level": 0})
        made = admin.create_topics([NewTopic("of-the-zombie", 3, 3)], request_timeout=5)["of-the-zombie"]
        with pytest.raises(KafkaException):
            made.result(SECONDS_MAX)
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
