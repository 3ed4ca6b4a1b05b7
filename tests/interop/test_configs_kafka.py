"""Kafka's configuration tool, in common versions, with an Odradek broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_peer import REAL_KAFKA, VERSION, run_tool
from kafka_tools import CONFIGS

from support.asking import created
from support.configuring import TOPIC, described
from support.raw_client import RawClient
from support.serving import Serving

pytestmark = [*REAL_KAFKA, pytest.mark.own_peer("commands against brokers of Apache Kafka")]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("broker"), **{"broker.id": "1"}) as broker:
        yield broker
        assert "Traceback" not in broker.errors()


@pytest.fixture
def client(serving: Serving) -> Iterator[RawClient]:
    with RawClient(serving.port) as client:
        yield client


@pytest.mark.parametrize(("version", "tool"), [(VERSION, CONFIGS), ("3.9.1", "kafka.admin.ConfigCommand")])
def test_kafkas_tool_alters_configurations(
    serving: Serving, client: RawClient, tmp_path: Path, version: str, tool: str
) -> None:
    topic = f"tool-{version}"
    created(client, topic)

    def configs(*arguments: str) -> str:
        where = ("--bootstrap-server", serving.address)
        return run_tool(tmp_path, tool, *where, *arguments, version=version)

    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    assert "Completed updating" in configs(*of_topic, "--alter", "--add-config", "retention.ms=5000,segment.ms=9000")
    assert "retention.ms=5000" in configs(*of_topic, "--describe")
    configs(*of_topic, "--alter", "--delete-config", "segment.ms")
    assert described(client, TOPIC, topic, "retention.ms", "segment.ms") == {
        "retention.ms": ("5000", 1),
        "segment.ms": ("604800000", 5),
    }
    for owner, source in ((("--entity-default",), 3), (("--entity-name", "1"), 2)):
        of_brokers = ("--entity-type", "brokers", *owner)
        configs(*of_brokers, "--alter", "--add-config", "log.cleaner.delete.retention.ms=1234")
        found = described(client, TOPIC, topic, "delete.retention.ms")
        assert found == {"delete.retention.ms": ("1234", source)}
        assert "log.cleaner.delete.retention.ms=1234" in configs(*of_brokers, "--describe")
        configs(*of_brokers, "--alter", "--delete-config", "log.cleaner.delete.retention.ms")
