"""Apache Kafka's own command-line tools against the broker."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_peer import REAL_KAFKA, TOOL_SECONDS_MAX, jars, run_tool

from support.serving import Serving, serving

pytestmark = REAL_KAFKA

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSOLE_PRODUCER = f"{TOOLS}.ConsoleProducer"
CONSOLE_CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"
GET_OFFSETS = f"{TOOLS}.GetOffsetShell"
API_VERSIONS = f"{TOOLS}.BrokerApiVersionsCommand"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("tools")) as running:
        yield running
        assert "Traceback" not in running.errors()


def fed(main_class: str, text: str, *arguments: str) -> None:
    """Run a tool that reads its standard input."""
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*", main_class, *arguments]
    done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=TOOL_SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr


def test_topics_and_configs(broker: Serving, tmp_path: Path) -> None:
    at = ("--bootstrap-server", broker.address)
    named = ("--topic", "tools")
    run_tool(tmp_path, TOPICS, *at, "--create", *named, "--partitions", "2", "--config", "retention.ms=123456")
    run_tool(tmp_path, TOPICS, *at, "--alter", *named, "--partitions", "3")
    described = run_tool(tmp_path, TOPICS, *at, "--describe", *named)
    assert "PartitionCount: 3" in described and "retention.ms=123456" in described
    assert len(re.findall(r"Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 3
    configs = run_tool(
        tmp_path, CONFIGS, *at, "--describe", "--all", "--entity-type", "topics", "--entity-name", "tools"
    )
    assert "retention.ms=123456" in configs and "cleanup.policy=delete" in configs
    run_tool(tmp_path, TOPICS, *at, "--delete", *named)
    assert "tools" not in run_tool(tmp_path, TOPICS, *at, "--list")


def test_producer_consumer_and_offsets(broker: Serving, tmp_path: Path) -> None:
    at = ("--bootstrap-server", broker.address, "--topic", "lines")
    lines = [f"line {number}" for number in range(100)]
    settings = ("--command-property", "enable.idempotence=false", "--compression-codec", "lz4")
    fed(CONSOLE_PRODUCER, "\n".join(lines) + "\n", *at, *settings)
    output = run_tool(tmp_path, GET_OFFSETS, *at)
    assert "lines:0:100" in output
    start = ("--partition", "0", "--offset", "10", "--max-messages", "90", "--timeout-ms", "20000")
    output = run_tool(tmp_path, CONSOLE_CONSUMER, *at, *start)
    assert [line for line in output.splitlines() if line.startswith("line ")] == lines[10:]


def test_api_versions(broker: Serving, tmp_path: Path) -> None:
    output = run_tool(tmp_path, API_VERSIONS, "--bootstrap-server", broker.address)
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]", output)
    assert re.search(r"Fetch\(1\): 4 to 18 \[usable: 18\]", output)
    assert "Metadata(3): 0 to 13 [usable: 13]" in output
