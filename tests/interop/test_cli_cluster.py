"""`odradek cluster status` with an Odradek broker, and with an Apache Kafka cluster one of whose brokers restarts."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_zookeeper import OLD_KAFKA, V3, OldKafka, ZooKeeper

from odradek.app.commands.cluster_command import DEGRADED, UNAVAILABLE
from odradek.app.main import main
from odradek.testing import Broker, Cluster
from support.asking import created
from support.raw_client import RawClient
from support.terminals import own
from support.waiting import SECONDS_MAX, until

LATE_RECORDS = 3_000


def status_of(address: str, capfd: pytest.CaptureFixture[str]) -> Any:
    """Return the JSON output, with the exit status as `status`."""
    capfd.readouterr()
    status = main(["cluster", "status", "-b", address, "--json"])
    return {**json.loads(capfd.readouterr().out), "status": status}


def shown(address: str, capfd: pytest.CaptureFixture[str], status: int = 0) -> list[str]:
    capfd.readouterr()
    assert main(["cluster", "status", "-b", address]) == status
    return capfd.readouterr().out.splitlines()


def doctor(address: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, str]]]:
    """Return the exit status and the findings of the doctor."""
    capfd.readouterr()
    status = main(["doctor", address, "--json", "--timeout", "60"])
    return status, json.loads(capfd.readouterr().out)["findings"]


def test_status_of_an_odradek_broker(capfd: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        first = shown(broker.bootstrap_servers, capfd)
        assert first[0].endswith(f"1 broker, controller {status_of(broker.bootstrap_servers, capfd)['controller']}")
        assert first[-1] == "no topics"
        with RawClient(int(broker.bootstrap_servers.rpartition(":")[2])) as client:
            created(client, "t", partitions=3)
        assert shown(broker.bootstrap_servers, capfd)[-1].startswith("3 partitions, each with a leader")
        (one,) = status_of(broker.bootstrap_servers, capfd)["brokers"]
        assert (one["alive"], one["address"], one["leads"], one["replicas"]) == (True, broker.bootstrap_servers, 3, 3)
        assert one["offline_log_dirs"] == []


def test_status_of_replicas_that_are_behind(capfd: pytest.CaptureFixture[str]) -> None:
    """Clients reach the brokers but their leader does not; in the end only one is left."""
    late = 100
    with Cluster(default_replication_factor=3, min_insync_replicas=2, replica_lag_time_max_ms=1_000) as cluster:
        leader = cluster.controller.id  # The leader must reach the controller to shrink the ISR.
        address = cluster[leader].address  # A broker that is cut off reports the former state.
        first, second = (broker.id for broker in cluster if broker.id != leader)
        admin = AdminClient({"bootstrap.servers": cluster.address})
        topic = NewTopic("orders", 1, replica_assignment=[[leader, first, second]])
        admin.create_topics([topic])["orders"].result(SECONDS_MAX)
        cluster.await_in_sync()
        assert status_of(address, capfd)["status"] == 0
        cluster.partition(leader, second)
        producer = Producer({"bootstrap.servers": cluster.address, "acks": "1"})

        def written() -> None:
            for _ in range(late):
                producer.produce("orders", b"late", partition=0)
            assert producer.flush(SECONDS_MAX) == 0

        def isr() -> list[int]:
            return [broker for one in status_of(address, capfd)["partitions"] for broker in one["isr"]]

        written()
        until(lambda: isr() == [leader, first])
        ((at_min),) = status_of(address, capfd)["partitions"]
        assert (at_min["state"], at_min["min_insync_replicas"]) == ("at min ISR", 2)
        assert at_min["lags"] == {str(second): late}
        assert at_min["why"] == f"broker {second} is {late} records behind"
        assert "0 of 1 partition offline, 1 under-replicated, 1 at min ISR" in shown(address, capfd, DEGRADED)
        assert doctor(address, capfd)[0] == 0, "a client would work"
        cluster.partition(leader, first)
        written()
        until(lambda: isr() == [leader])
        ((under_min),) = status_of(address, capfd)["partitions"]
        assert (under_min["state"], under_min["lags"]) == ("under min ISR", {str(first): late, str(second): 2 * late})
        assert status_of(address, capfd)["status"] == UNAVAILABLE
        status, findings = doctor(address, capfd)
        assert status == 1
        (found,) = (one for one in findings if one["check"] == "topics")
        assert found["says"] == "1 partition under min ISR, which reject acks=all: orders-0"
        cluster.heal()
        cluster.await_in_sync()
        until(lambda: status_of(address, capfd)["status"] == 0)


def test_status_without_a_reachable_broker(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "status", "-b", "127.0.0.1:1"]) == 1
    assert own(capfd.readouterr().err).count("\n") == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.own_peer("commands against brokers of Apache Kafka")
class TestKafka:
    pytestmark = OLD_KAFKA

    def test_status_with_a_broker_that_is_down(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
    ) -> None:
        with ZooKeeper(tmp_path) as zookeeper:
            address = f"127.0.0.1:{zookeeper.port}"
            with (
                OldKafka(tmp_path / "1", V3, {"broker.id": "1"}, zookeeper=address) as one,
                OldKafka(tmp_path / "2", V3, {"broker.id": "2"}, zookeeper=address) as two,
            ):
                admin = AdminClient({"bootstrap.servers": one.address})
                topics = [
                    NewTopic("alone", 2, replica_assignment=[[2], [1]]),
                    NewTopic("both", 1, replica_assignment=[[2, 1]]),
                ]
                for future in admin.create_topics(topics).values():
                    future.result(SECONDS_MAX)
                # Until the brokers learn of the topics, they report no problem.
                until(lambda: [broker["leads"] for broker in status_of(one.address, capfd)["brokers"]] == [1, 2])
                until(lambda: status_of(one.address, capfd)["partitions"] == [])
                two.kill()
                until(lambda: len(status_of(one.address, capfd)["partitions"]) == 2)
                status = status_of(one.address, capfd)
                assert [(each["broker"], each["alive"], each["replicas"]) for each in status["brokers"]] == [
                    (1, True, 2),
                    (2, False, 2),
                ]
                assert [(each["topic"], each["leader"], each["isr"]) for each in status["partitions"]] == [
                    ("alone", -1, [2]),
                    ("both", 1, [1]),
                ]
                assert {each["why"] for each in status["partitions"]} == {"broker 2 is down"}
                assert [each["state"] for each in status["partitions"]] == ["offline", "at min ISR"]
                assert status["status"] == UNAVAILABLE
                summary = "1 of 3 partitions offline, 1 under-replicated, 1 at min ISR"
                assert summary in shown(one.address, capfd, UNAVAILABLE)
                check_doctor_findings(one.address, capfd)
                a_follower_that_is_behind(one, two, capfd)
                until(lambda: status_of(one.address, capfd)["partitions"] == [])
                assert status_of(one.address, capfd)["status"] == 0
                if request.config.getoption("--soak"):
                    topics_while_controllers_change(address, f"{one.address},{two.address}")
                    until(lambda: status_of(one.address, capfd)["partitions"] == [])


def check_doctor_findings(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    status, findings = doctor(address, capfd)
    assert status == 1
    offline, at_min = (one for one in findings if one["check"] == "topics")
    assert offline["says"] == "1 partition without a leader: alone-0"
    assert offline["advice"] == "Start broker 2: no other broker has all records of these partitions."
    assert at_min["says"] == "1 partition at min ISR, with no in-sync replica to spare for acks=all: both-0"
    assert at_min["advice"] == "Start broker 2."


def a_follower_that_is_behind(leader: OldKafka, follower: OldKafka, capfd: pytest.CaptureFixture[str]) -> None:
    """Start the follower with a limited fetch rate until the status shows that it is behind."""
    producer = Producer({"bootstrap.servers": leader.address, "acks": "1"})
    for _ in range(LATE_RECORDS):
        producer.produce("both", bytes(1000), partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    throttle = ("topic", "config", "both"), "follower.replication.throttled.replicas", "*"
    rate = ("broker", "config", "--default"), "follower.replication.throttled.rate", "1000"
    for command, key, value in (throttle, rate):
        assert main([*command, "--set", f"{key}={value}", "-b", leader.address]) == 0
    follower.start()

    def lags() -> list[dict[str, int]]:
        status = status_of(leader.address, capfd)
        if not status["brokers"][1]["alive"]:
            return []
        return [one["lags"] for one in status["partitions"] if one["topic"] == "both" and one["lags"].get("2")]

    until(lambda: bool(lags()))
    status = status_of(leader.address, capfd)
    ((partition),) = status["partitions"]
    assert 0 < partition["lags"]["2"] <= LATE_RECORDS
    assert partition["why"] == f"broker 2 is {partition['lags']['2']:,} records behind"
    assert (partition["state"], partition["min_insync_replicas"]) == ("at min ISR", 1)
    assert status["status"] == DEGRADED
    for command, key, _ in (throttle, rate):
        assert main([*command, "--delete", key, "-b", leader.address]) == 0


def topics_while_controllers_change(zookeeper: str, brokers: str) -> None:
    """Create, grow and delete topics with the command line while the controller changes."""
    kazoo = pytest.importorskip("kazoo.client", reason="ZooKeeper is reached through kazoo.")
    names = [f"passing-{number}" for number in range(4)]
    tree, is_over = kazoo.KazooClient(zookeeper), threading.Event()
    tree.start()

    def depose() -> int:
        count = 0
        while not is_over.wait(0.8):
            if tree.exists("/controller"):
                tree.delete("/controller")
                count += 1
        return count

    with ThreadPoolExecutor(1) as threads:
        deposed = threads.submit(depose)
        try:
            for name in names:
                assert main(["topic", "create", name, "-p", "2", "-r", "2", "-b", brokers]) == 0
                assert main(["topic", "grow", name, "-p", "3", "-b", brokers]) == 0
                assert main(["topic", "delete", name, "-b", brokers]) == 0
        finally:
            is_over.set()
        assert deposed.result() > 0
    tree.stop()
