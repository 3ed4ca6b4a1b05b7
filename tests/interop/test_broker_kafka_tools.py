"""Apache Kafka's own command-line tools against the broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clients.client import BEGINNING
from clients.fixtures import new_topic
from clients.librdkafka import Librdkafka
from clients.records import CODECS, NOW_MS, Record
from kafka_peer import REAL_KAFKA, run_tool
from kafka_tools import (
    API_VERSIONS,
    CLUSTER,
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    GET_OFFSETS,
    JAVAS_AT_ONCE,
    PRODUCER_PERFORMANCE,
    TOPICS,
    VERIFIABLE_PRODUCER,
    failed,
    fed,
)

from support.serving import Serving, serving

pytestmark = REAL_KAFKA


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("tools")) as running:
        yield running
        assert "Traceback" not in running.errors()


def test_topics_and_configs_are_managed(broker: Serving, tmp_path: Path) -> None:
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


@pytest.mark.nightly
def test_tools_report_refused_requests(broker: Serving) -> None:
    at = ("--bootstrap-server", broker.address)
    topic = new_topic(broker.address, 3)
    named, unknown = ("--topic", topic), ("--topic", "unknown")
    runs = {
        (TOPICS, *at, "--create", *named): f"Topic '{topic}' already exists.",
        (TOPICS, *at, "--create", *unknown, "--config", "retention.ms=soon"): "retention.ms",
        (TOPICS, *at, "--create", *unknown, "--replication-factor", "3"): "replication factor",
        (TOPICS, *at, "--alter", *named, "--partitions", "2"): "currently has 3 partition(s)",
        (TOPICS, *at, "--describe", *unknown): "Topic 'unknown' does not exist as expected",
    }
    with ThreadPoolExecutor(JAVAS_AT_ONCE) as javas:
        for output, expected in zip(javas.map(lambda run: failed(*run), runs), runs.values(), strict=True):
            assert expected in output


LINES = ("a:1,b:;key|value", "a:1,a:again;NULL|no key", "a:1;no value|NULL", "a:1;|", "é:ü;ä|ö")
SENT = [
    Record(b"key", b"value", (("a", b"1"), ("b", b""))),
    Record(None, b"no key", (("a", b"1"), ("a", b"again"))),
    Record(b"no value", None, (("a", b"1"),)),
    Record(b"", b"", (("a", b"1"),)),
    Record("ä".encode(), "ö".encode(), (("é", "ü".encode()),)),
]
PARTS = {"parse.key": "true", "key.separator": "|", "parse.headers": "true", "headers.delimiter": ";"}


@pytest.mark.nightly
def test_console_producer_writes_with_every_codec(broker: Serving) -> None:
    topics = {codec: new_topic(broker.address) for codec in CODECS}
    reading = [*PARTS.items(), ("null.marker", "NULL")]
    settings = [word for name, value in reading for word in ("--reader-property", f"{name}={value}")]
    settings += ["--bootstrap-server", broker.address]

    def produce(codec: str) -> None:
        text = "\n".join(LINES) + "\n"
        fed(CONSOLE_PRODUCER, text, *settings, "--topic", topics[codec], "--compression-codec", codec)

    with ThreadPoolExecutor(JAVAS_AT_ONCE) as javas:
        list(javas.map(produce, CODECS))
    for topic in topics.values():
        found = Librdkafka(broker.address).consume(topic, BEGINNING, len(SENT))
        assert [one.record[:3] for one in found] == [one[:3] for one in SENT]


def consumed(broker: Serving, folder: Path, topic: str, start: str, count: int, *printed: str) -> list[str]:
    place = ["--bootstrap-server", broker.address, "--topic", topic, "--partition", "0", "--offset", start]
    shown = [word for one in printed for word in ("--formatter-property", one)]
    output = run_tool(folder, CONSOLE_CONSUMER, *place, *shown, "--max-messages", str(count), "--timeout-ms", "200000")
    return [line for line in output.splitlines() if not line.startswith("Processed a total")]


@pytest.mark.nightly
def test_console_consumer_prints_all_parts_of_a_record(broker: Serving, tmp_path: Path) -> None:
    topic = new_topic(broker.address)
    for codec in CODECS:
        Librdkafka(broker.address).produce(topic, codec, SENT)
    parts = ("key", "headers", "timestamp", "offset", "partition")
    printed = [*(f"print.{part}=true" for part in parts), "null.literal=NULL", "key.separator=|"]
    lines = consumed(broker, tmp_path, topic, "earliest", len(CODECS) * len(SENT), *printed)
    expected = [line.partition(";")[::2] for line in LINES]
    assert lines == [
        f"CreateTime:{NOW_MS}|Partition:0|Offset:{offset}|{headers}|{rest}"
        for offset, (headers, rest) in enumerate(expected * len(CODECS))
    ]
    assert len(consumed(broker, tmp_path, topic, "20", 5)) == 5


@pytest.mark.nightly
def test_get_offsets_finds_offsets_by_time(broker: Serving, tmp_path: Path) -> None:
    topic = new_topic(broker.address)
    times = [NOW_MS + seconds * 1000 for seconds in (0, 50, 30)]
    Librdkafka(broker.address).produce(topic, "none", [Record(b"k", b"v", (), at) for at in times])
    expected = {"earliest": "0", "latest": "3", "max-timestamp": "1", str(times[0] + 1): "1", str(times[1] + 1): None}

    def print_offset(question: str) -> str:
        folder = tmp_path / question
        folder.mkdir()
        return run_tool(folder, GET_OFFSETS, *at, "--topic", topic, "--time", question)

    at = ("--bootstrap-server", broker.address)
    with ThreadPoolExecutor(JAVAS_AT_ONCE) as javas:
        for answer, offset in zip(javas.map(print_offset, expected), expected.values(), strict=True):
            assert answer.splitlines() == ([] if offset is None else [f"{topic}:0:{offset}"])


def test_console_producer_reports_a_record_too_large(broker: Serving) -> None:
    topic = new_topic(broker.address)
    place = ("--bootstrap-server", broker.address, "--topic", topic)
    output = fed(CONSOLE_PRODUCER, "x" * 1_100_000 + "\n", *place, "--command-property", "max.request.size=10000000")
    assert f"RecordTooLargeException: The record batch size in the append to {topic}-0 is" in output


@pytest.mark.nightly
def test_performance_and_verifiable_producers_write_all_records(broker: Serving, tmp_path: Path) -> None:
    measured, verified = new_topic(broker.address), new_topic(broker.address)
    properties = ("--command-property", f"bootstrap.servers={broker.address}", "compression.type=lz4")
    numbers = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    output = run_tool(tmp_path, PRODUCER_PERFORMANCE, "--topic", measured, *numbers, *properties)
    assert "20000 records sent" in output
    place = ("--bootstrap-server", broker.address, "--topic", verified)
    events = _events(run_tool(tmp_path, VERIFIABLE_PRODUCER, *place, "--max-messages", "100", "--acks", "-1"))
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert [event["offset"] for event in sent] == list(range(100))
    librdkafka = Librdkafka(broker.address)
    assert librdkafka.list_offsets(measured, "latest") == 20_000
    assert librdkafka.list_offsets(verified, "latest") == 100


def _events(output: str) -> Sequence[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_api_versions_and_the_cluster_are_described(broker: Serving, tmp_path: Path) -> None:
    at = ("--bootstrap-server", broker.address)
    output = run_tool(tmp_path, API_VERSIONS, *at)
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]", output)
    assert re.search(r"Fetch\(1\): 4 to 18 \[usable: 18\]", output)
    assert "Metadata(3): 0 to 13 [usable: 13]" in output
    cluster = Librdkafka(broker.address).describe_cluster()
    assert f"Cluster ID: {cluster.id}" in run_tool(tmp_path, CLUSTER, "cluster-id", *at)
    assert re.search(rf"127\.0\.0\.1\s+{broker.port}\s.*unfenced", run_tool(tmp_path, CLUSTER, "list-endpoints", *at))
