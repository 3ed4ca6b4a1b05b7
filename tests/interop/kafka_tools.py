"""Apache Kafka's command-line tools, by their classes, with and without input, errors and parallel runs."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafka_peer import TOOL_SECONDS_MAX, jars, java_options, run_tool

TOOLS = "org.apache.kafka.tools"
API_VERSIONS = f"{TOOLS}.BrokerApiVersionsCommand"
CLUSTER = f"{TOOLS}.ClusterTool"
CONFIGS = f"{TOOLS}.ConfigCommand"  # kafka.admin.ConfigCommand until 4.3.
CONSOLE_CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = f"{TOOLS}.ConsoleProducer"
CONSUMER_GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CONSUMER_PERFORMANCE = f"{TOOLS}.ConsumerPerformance"
END_TO_END_LATENCY = f"{TOOLS}.EndToEndLatency"
GET_OFFSETS = f"{TOOLS}.GetOffsetShell"
GROUPS = f"{TOOLS}.GroupsCommand"
PRODUCER_PERFORMANCE = f"{TOOLS}.ProducerPerformance"
TOPICS = f"{TOOLS}.TopicCommand"
TRANSACTIONAL_COPIER = f"{TOOLS}.TransactionalMessageCopier"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand"
VERIFIABLE_CONSUMER = f"{TOOLS}.VerifiableConsumer"
VERIFIABLE_PRODUCER = f"{TOOLS}.VerifiableProducer"

JAVAS_AT_ONCE = 2


def ran(main_class: str, *arguments: str) -> str:
    """Run a tool, and return both of its output streams; it must not fail."""
    with tempfile.TemporaryDirectory(prefix="odradek-test-") as folder:
        return run_tool(Path(folder), main_class, *arguments)


def all_ran(*runs: Sequence[str]) -> list[str]:
    """Return the output of each tool."""
    with ThreadPoolExecutor(JAVAS_AT_ONCE) as javas:
        return list(javas.map(lambda run: ran(*run), runs))


def fed(main_class: str, text: str, *arguments: str) -> str:
    """Run a tool with standard input, and return its output."""
    done = _run(main_class, *arguments, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def failed(main_class: str, *arguments: str) -> str:
    """Run a tool that must fail, and return its output."""
    done = _run(main_class, *arguments)
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def _run(main_class: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = ["java", "-Xmx256m", *java_options(), "-cp", f"{jars()}/*", main_class, *arguments]
    return subprocess.run(command, input=text, text=True, capture_output=True, timeout=TOOL_SECONDS_MAX, check=False)
