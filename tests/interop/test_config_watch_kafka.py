"""Configuration changes by Apache Kafka and its tools under ZooKeeper: Odradek notices and applies them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kafka_peer import printed
from kafka_zookeeper import OLD_KAFKA, V0, V3, OldKafka, ZooKeeper, old_java

from odradek.base.secret import Secret
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import Tree
from odradek.coordination.zookeeper import open_zookeeper
from odradek.core.broker.effects import ConfigOwner
from odradek.net.cluster.tree_metadata import Metadata
from support.config_watching import ALL, PASSWORD, SECRET, SET, Side, T, Watching, Writer
from support.cuttable_line import CuttableLine

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

CONFIGS = "kafka.admin.ConfigCommand"
FAR = 1 << 50  # A far-off clock makes all notices old.
SECONDS_MAX = 60
TIMEOUT_MS = 10_000  # The longest session that this ZooKeeper grants.
CONNECTION_TIMEOUT_MS = 120_000  # The ensemble takes a while before it serves connections; the first may fail.


def tool(folder: Path, version: str, *arguments: str) -> None:
    printed(old_java(version, CONFIGS, *arguments, level="WARN", folder=folder))


def opened_at(address: str) -> Tree:
    return open_zookeeper(address, session_timeout_ms=TIMEOUT_MS, connection_timeout_ms=CONNECTION_TIMEOUT_MS)


def create(kafka: OldKafka, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, 2, 1)]).values():
        made.result(SECONDS_MAX)


def started(tree: Tree, folder: Path) -> Watching:
    """Start an Odradek broker that knows the resources that Kafka created."""
    watching = Watching(tree, folder)
    watching.know(*Metadata(tree).topics().values())
    watching.begin()
    watching.start()
    return watching


def notices(tree: Tree) -> list[str]:
    names = tree.children(layout.CONFIG_CHANGES)
    return [layout.decode_config_change(tree.get(f"{layout.CONFIG_CHANGES}/{name}")[0]) for name in names]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldKafka]:
    settings = {"password.encoder.secret": SECRET}
    with OldKafka(tmp_path_factory.mktemp("kafka"), V3, settings) as running:
        create(running, "t")
        yield running


@pytest.fixture
def tree(kafka: OldKafka) -> Iterator[Tree]:
    opened = opened_at(kafka.zookeeper_address)
    yield opened
    opened.close()


def test_changes_by_kafka_are_applied(
    kafka: OldKafka, tree: Tree, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watching = started(tree, tmp_path / "log")
    at = ("--bootstrap-server", kafka.address, "--alter")
    tool(tmp_path, V3, *at, "--entity-type", "topics", "--entity-name", "t", "--add-config", "retention.ms=5000")
    watching.until(lambda: watching.set_on() == {"retention.ms": "5000"})
    assert watching.log_config().retention_ms == 5000
    own = (*at, "--entity-type", "brokers", "--entity-name", "1")
    secret = f"{PASSWORD}=open-sesame,log.retention.bytes=77"
    tool(tmp_path, V3, *own, "--add-config", secret)
    watching.until(lambda: watching.value("log.retention.bytes") == 77)
    assert watching.harness.configs.secret(PASSWORD) == Secret("open-sesame")
    assert watching.log_config().retention_bytes == 77
    every = (*at, "--entity-type", "brokers", "--entity-default")
    tool(tmp_path, V3, *every, "--add-config", "log.segment.bytes=2000000")
    watching.until(lambda: watching.log_config().segment_bytes == 2_000_000)
    tool(tmp_path, V3, *at, "--entity-type", "users", "--entity-name", "alice", "--add-config", "producer_byte_rate=9")
    tool(tmp_path, V3, *at, "--entity-type", "topics", "--entity-name", "t", "--delete-config", "retention.ms")
    watching.until(lambda: watching.set_on() == {})
    tool(tmp_path, V3, *own, "--delete-config", f"{PASSWORD},log.retention.bytes")
    watching.until(lambda: watching.value("log.retention.bytes") == -1)
    assert watching.harness.configs.secret(PASSWORD) is None
    assert "users/alice" in notices(tree)
    assert "sesame" not in caplog.text
    assert f"{PASSWORD}=***" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_changes_by_the_tool_for_a_stopped_broker_are_applied(kafka: OldKafka, tree: Tree, tmp_path: Path) -> None:
    """The tool writes to ZooKeeper itself, and gets the password encoder secret for it."""
    kafka.stop()
    watching = started(tree, tmp_path / "log")
    at = ("--zookeeper", kafka.zookeeper_address, "--alter", "--entity-type", "brokers", "--entity-name", "1")
    added = f"{PASSWORD}=open-sesame,password.encoder.secret={SECRET},log.retention.bytes=78"
    tool(tmp_path, V3, *at, "--add-config", added)
    watching.until(lambda: watching.value("log.retention.bytes") == 78)
    assert watching.harness.configs.secret(PASSWORD) == Secret("open-sesame")
    tool(tmp_path, V3, *at, "--delete-config", f"{PASSWORD},log.retention.bytes")
    watching.until(lambda: watching.value("log.retention.bytes") == -1)
    kafka.start()


def test_kafka_applies_our_changes(kafka: OldKafka, tree: Tree, tmp_path: Path) -> None:
    side = Side(tree, started(tree, tmp_path / "log").harness.configs)
    side.alter({T: [("retention.ms", SET, "7000")], ALL: [("log.retention.bytes", SET, "79")]})
    admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
    watching = started(tree, tmp_path / "other")
    watching.until(lambda: described(admin, "topic", "t", "retention.ms") == "7000")
    watching.until(lambda: described(admin, "broker", "1", "log.retention.bytes") == "79")


def described(admin: AdminClient, kind: str, name: str, key: str) -> str:
    """Return Kafka's value, or nothing for a topic that Kafka has not learned of yet."""
    (found,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    try:
        return str(found.result(SECONDS_MAX)[key].value)
    except KafkaException as failed:
        assert failed.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        return ""


def test_changes_by_the_oldest_tool_are_applied(tmp_path: Path) -> None:
    with OldKafka(tmp_path / "kafka", V0) as kafka:
        at = ("--zookeeper", kafka.zookeeper_address, "--alter", "--entity-type")
        create(kafka, "t")
        tree = opened_at(kafka.zookeeper_address)
        watching = started(tree, tmp_path / "log")
        tool(tmp_path, V0, *at, "topics", "--entity-name", "t", "--add-config", "retention.ms=5000")
        watching.until(lambda: watching.set_on() == {"retention.ms": "5000"})
        tool(tmp_path, V0, *at, "clients", "--entity-name", "c", "--add-config", "producer_byte_rate=9")
        tool(tmp_path, V0, *at, "topics", "--entity-name", "t", "--delete-config", "retention.ms")
        watching.until(lambda: watching.set_on() == {})
        assert notices(tree) == ["topics/t", "clients/c", "topics/t"]
        tree.close()


def test_changes_during_a_lost_connection_are_applied(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zk") as server, CuttableLine(("127.0.0.1", server.port)) as line:
        near = opened_at(f"127.0.0.1:{server.port}")
        writer = Writer(near)
        writer.make("t", "u")
        far = opened_at(f"127.0.0.1:{line.port}")
        watching = started(far, tmp_path / "log")
        u = ConfigOwner(is_topic=True, name="u")
        for number in range(2):
            writer.alter({u: [("retention.ms", SET, str(number))]})
            watching.until(lambda expected=str(number): watching.set_on("u") == {"retention.ms": expected})  # type: ignore[misc]
            line.cut()
            edits = {T: [("retention.ms", SET, str(number))], ALL: [("log.retention.bytes", SET, str(number))]}
            writer.alter(edits, now=FAR)
            assert near.children(layout.CONFIG_CHANGES) == []
            line.mend()
            watching.until(lambda expected=str(number): watching.set_on() == {"retention.ms": expected})  # type: ignore[misc]
            watching.until(lambda expected=number: watching.value("log.retention.bytes") == expected)  # type: ignore[misc]
        for tree in (near, far):
            tree.close()
