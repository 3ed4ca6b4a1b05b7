"""`odradek cluster status` of a broker of ours, and of a cluster of Apache Kafka whose second broker comes and goes."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_zookeeper import OLD_KAFKA, V3, OldKafka, ZooKeeper

from odradek.app.main import main
from odradek.testing import Broker
from support.asking import created
from support.raw_client import RawClient
from support.terminals import own
from support.waiting import SECONDS_MAX, until


def told(address: str, capfd: pytest.CaptureFixture[str]) -> Any:
    capfd.readouterr()
    assert main(["cluster", "status", "-b", address, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def shown(address: str, capfd: pytest.CaptureFixture[str]) -> list[str]:
    capfd.readouterr()
    assert main(["cluster", "status", "-b", address]) == 0
    return capfd.readouterr().out.splitlines()


def test_a_broker_of_ours(capfd: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        first = shown(broker.bootstrap_servers, capfd)
        assert first[0].endswith(f"1 broker, controller {told(broker.bootstrap_servers, capfd)['controller']}")
        assert first[-1] == "no topics"
        with RawClient(int(broker.bootstrap_servers.rpartition(":")[2])) as client:
            created(client, "t", partitions=3)
        assert shown(broker.bootstrap_servers, capfd)[-1].startswith("3 partitions, each with a leader")
        (one,) = told(broker.bootstrap_servers, capfd)["brokers"]
        assert (one["alive"], one["address"], one["leads"], one["replicas"]) == (True, broker.bootstrap_servers, 3, 3)
        assert one["offline_log_dirs"] == []


def test_nobody_is_there(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "status", "-b", "127.0.0.1:1"]) == 1
    assert own(capfd.readouterr().err).count("\n") == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestKafka:
    pytestmark = OLD_KAFKA

    def test_a_broker_that_is_down(
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
                until(lambda: told(one.address, capfd)["partitions"] == [])
                assert [broker["leads"] for broker in told(one.address, capfd)["brokers"]] == [1, 2]
                two.kill()
                until(lambda: len(told(one.address, capfd)["partitions"]) == 2)
                status = told(one.address, capfd)
                assert [(each["broker"], each["alive"], each["replicas"]) for each in status["brokers"]] == [
                    (1, True, 2),
                    (2, False, 2),
                ]
                assert [(each["topic"], each["leader"], each["isr"]) for each in status["partitions"]] == [
                    ("alone", -1, [2]),
                    ("both", 1, [1]),
                ]
                assert {each["why"] for each in status["partitions"]} == {"broker 2 is down"}
                assert "1 of 3 partitions offline, 1 under-replicated" in shown(one.address, capfd)
                two.start()
                until(lambda: told(one.address, capfd)["partitions"] == [])
                if request.config.getoption("--soak"):
                    topics_while_controllers_change(address, f"{one.address},{two.address}")
                    until(lambda: told(one.address, capfd)["partitions"] == [])


def topics_while_controllers_change(zookeeper: str, brokers: str) -> None:
    """Creates, grows and deletes topics by the command line while the office of the controller is taken from it."""
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
