"""Metrics of a broker with real clients, scraped as by Prometheus: they count exactly."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs do not export them.
from kafka import KafkaProducer  # type: ignore[import-untyped]  # Has no types.
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from odradek.app.config.server_config import settings
from odradek.app.metrics.metrics_http import SCRAPES_MAX
from odradek.app.metrics.metrics_kinds import Metric
from odradek.app.metrics.metrics_replication_table import FETCHER_LAG
from odradek.app.metrics.metrics_table import METRICS, PROCESS_METRICS
from odradek.app.serve import building
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from support.raw_client import RawClient, frame
from support.serving import Serving, outcome_of_serve, serving

SECONDS_MAX = 150
OFFSETS_PARTITIONS = 50  # The consumer of these tests searches its group's coordinator.
ANNOUNCED = re.compile(r"exporting metrics at http://127\.0\.0\.1:(\d+)/metrics")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scrape:
    """The samples of one scrape."""

    def __init__(self, port: int) -> None:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS_MAX) as answer:
            self.text: str = answer.read().decode()
        self.samples: Samples = {}
        for family in text_string_to_metric_families(self.text):
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.samples, key
                self.samples[key] = sample.value

    def total(self, name: str, **labels: str) -> float:
        """Return the sum over all samples that have these labels."""
        expected = labels.items()
        return sum(value for (one, of), value in self.samples.items() if one == name and expected <= of)

    def of(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Return values by one label, of samples that match the other labels."""
        expected = labels.items()
        samples = ((dict(of), value) for (one, of), value in self.samples.items() if one == name)
        return {of[label]: value for of, value in samples if expected <= of.items()}


def metrics_port(broker: Serving) -> int:
    found = ANNOUNCED.findall(broker.errors())
    assert found, broker.errors()
    return int(found[-1])


def scrape(broker: Serving) -> Scrape:
    return Scrape(metrics_port(broker))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path, metrics_listener="127.0.0.1:0", max_connections="20") as running:
        yield running


def create(broker: Serving, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result(SECONDS_MAX)


def produce_one_by_one(broker: Serving, topic: str, count: int) -> None:
    """Produce each record in a request of its own."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": broker.address, "acks": "all", "linger.ms": 0})
    for number in range(count):
        producer.produce(
            topic,
            b"x" * 100,
            partition=number % 2,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        assert producer.flush(SECONDS_MAX) == 0
    assert not failures


def test_counters_are_exact(broker: Serving, tmp_path: Path) -> None:
    create(broker, "a", 2)
    produce_one_by_one(broker, "a", 100)
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("a", partition, 0) for partition in range(2)])
    received = 0
    while received < 100:
        received += len(consumer.consume(100, 1.0))
    python = KafkaProducer(bootstrap_servers=broker.address, acks=1)
    for _ in range(20):
        python.send("a", b"y" * 50, partition=0).get(SECONDS_MAX)
    python.close()

    seen = scrape(broker)
    assert seen.total("kafka_network_request_metrics_requests_total", request="Produce") == 120
    assert seen.total("kafka_network_request_metrics_total_time_seconds_count", request="Produce") == 120
    assert seen.total("kafka_network_request_metrics_total_time_seconds_bucket", request="Produce", le="+Inf") == 120
    assert seen.total("kafka_network_request_metrics_total_time_seconds_sum", request="Produce") > 0
    assert seen.total("kafka_network_request_metrics_requests_total", request="CreateTopics") == 1
    assert seen.total("kafka_network_request_metrics_requests_total", request="Fetch") >= 1
    # Each acks=all request came after the response to the former: a round of syncs for each.
    assert seen.total("kafka_log_log_flush_time_seconds_count") == 100
    assert seen.of("kafka_server_broker_topic_metrics_messages_in_total", "topic")["a"] == 120
    log_size = seen.total("kafka_log_log_size", topic="a")
    assert seen.of("kafka_server_broker_topic_metrics_bytes_in_total", "topic")["a"] == log_size
    assert seen.of("kafka_log_log_end_offset", "partition", topic="a") == {"0": 70, "1": 50}
    assert seen.of("kafka_log_log_start_offset", "partition", topic="a") == {"0": 0, "1": 0}
    assert seen.of("kafka_log_log_num_log_segments", "partition", topic="a") == {"0": 1, "1": 1}
    files = {str(n): (tmp_path / "data" / f"a-{n}" / f"{0:020}.log").stat().st_size for n in range(2)}
    assert seen.of("kafka_log_log_size", "partition", topic="a") == files
    assert seen.total("kafka_server_socket_server_metrics_incoming_byte_total") > 100 * 100 + 20 * 50
    assert seen.total("kafka_server_socket_server_metrics_outgoing_byte_total") > sum(files.values()) - files["0"]
    assert seen.total("kafka_server_replica_manager_partition_count") == 2 + OFFSETS_PARTITIONS
    assert seen.total("kafka_server_replica_manager_leader_count") == 2 + OFFSETS_PARTITIONS
    assert seen.total("kafka_server_replica_manager_offline_replica_count") == 0
    assert seen.total("kafka_server_replica_manager_under_replicated_partitions") == 0
    assert seen.total("odradek_event_loop_responsive") == 1
    assert seen.total("odradek_event_loop_lag_seconds_count") > 0
    consumer.close()


def test_counters_start_at_zero_after_a_restart(broker: Serving) -> None:
    create(broker, "a", 2)
    produce_one_by_one(broker, "a", 10)
    assert broker.stop() == 0
    broker.start()
    produce_one_by_one(broker, "a", 4)
    seen = scrape(broker)
    assert seen.total("kafka_server_broker_topic_metrics_messages_in_total", topic="a") == 4
    assert seen.total("kafka_log_log_end_offset", topic="a") == 14


def test_counters_of_a_recreated_topic_start_at_zero(broker: Serving) -> None:
    create(broker, "a", 2)
    produce_one_by_one(broker, "a", 10)
    broker.stop()
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.address})
    for deleted in admin.delete_topics(["a"]).values():
        deleted.result(SECONDS_MAX)
    assert "kafka_log_log_size{" not in scrape(broker).text
    create(broker, "a", 2)
    produce_one_by_one(broker, "a", 4)
    assert scrape(broker).total("kafka_server_broker_topic_metrics_messages_in_total", topic="a") == 4


def first_of_a() -> list[FetchTopic]:
    return [FetchTopic(topic="a", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])]


def session_of_its_own() -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=0, session_id=0, session_epoch=0, topics=first_of_a())


def test_gauges_count_connections_and_parked_requests(broker: Serving) -> None:
    create(broker, "a", 1)

    def now(name: str) -> float:
        return scrape(broker).total(name)

    connections = "kafka_server_socket_server_metrics_connection_count"
    until(lambda: now(connections) == 0)
    made = now("kafka_server_socket_server_metrics_connection_creation_total")
    waiting = FetchRequest(max_wait_ms=SECONDS_MAX * 1000, min_bytes=1, topics=first_of_a())
    with RawClient(broker.port) as client:
        client.send(frame(waiting, 4))
        until(lambda: now("kafka_server_delayed_operation_purgatory_size") == 1)
        assert now(connections) == 1
    until(lambda: now(connections) == 0)
    with RawClient(broker.port) as client:
        assert client.request(session_of_its_own(), 7, FetchResponse).session_id
    assert now("kafka_server_fetch_session_cache_num_incremental_fetch_sessions") == 1
    until(lambda: now(connections) == 0)
    assert now("kafka_server_delayed_operation_purgatory_size") == 0
    assert now("kafka_server_socket_server_metrics_connection_creation_total") == made + 2
    crowd = [RawClient(broker.port) for _ in range(25)]
    assert sum(client.is_closed() for client in crowd[20:]) == 5
    seen = scrape(broker)
    assert seen.total("odradek_connections_refused_total") == 5
    assert seen.of(connections, "listener") == {"PLAINTEXT": 20}
    for client in crowd:
        client.close()


def test_the_scrape_contains_the_documented_metrics(broker: Serving) -> None:
    """The table of docs/OPERATIONS.md has the same source."""
    create(broker, "a", 1)
    text = scrape(broker).text
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert types == {metric.name: metric.kind for metric in (*METRICS, *PROCESS_METRICS)}
    for metric in (*METRICS, *PROCESS_METRICS):
        if metric is not FETCHER_LAG:  # There are no followers here: test_metrics_replication tests it.
            assert labels_in(text, metric) == set(metric.labels), metric.name


def test_the_openmetrics_format_contains_the_same_metrics(broker: Serving) -> None:
    """Prometheus requests compressed OpenMetrics, and parses it strictly."""
    create(broker, "a", 1)
    accepts = {"Accept": "application/openmetrics-text; version=1.0.0", "Accept-Encoding": "gzip"}
    with urlopen(Request(f"http://127.0.0.1:{metrics_port(broker)}/metrics", headers=accepts)) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        text = gzip.decompress(answer.read()).decode()
    families = {family.name: family.type for family in openmetrics.text_string_to_metric_families(text)}
    assert families == {metric.name.removesuffix("_total"): metric.kind for metric in (*METRICS, *PROCESS_METRICS)}


def labels_in(text: str, metric: Metric) -> set[str]:
    suffix = "_count" if metric.kind == "histogram" else ""
    line = re.search(rf"^{metric.name}{suffix}(?:\{{(.*)\}})? ", text, re.MULTILINE)
    assert line is not None, f"{metric.name} has no sample"
    return set(re.findall(r'(\w+)="', line[1] or ""))


def test_a_scrape_leaves_nothing_behind(broker: Serving) -> None:
    scrape(broker)
    before = scrape(broker).total("process_open_fds")
    for _ in range(50):
        scrape(broker)
    until(lambda: scrape(broker).total("process_open_fds") <= before)


def test_silent_clients_do_not_block_scrapes_for_good(broker: Serving) -> None:
    port = metrics_port(broker)
    silent = [socket.create_connection(("127.0.0.1", port), SECONDS_MAX) for _ in range(SCRAPES_MAX)]
    assert not is_answered(port), "turned away"
    for connection in silent:
        connection.close()
    until(lambda: is_answered(port))


def is_answered(port: int) -> bool:
    try:
        return bool(Scrape(port).samples)
    except OSError:
        return False


def test_a_blocked_loop_is_reported(tmp_path: Path) -> None:
    """The scrape completes all the same, with the metrics that need no loop."""
    texts = {"listeners": "PLAINTEXT://127.0.0.1:0", "metrics.listener": "127.0.0.1:0", "log.dirs": str(tmp_path)}
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        starting = asyncio.run_coroutine_threadsafe(building.start(settings(texts), loop), loop)
        running = starting.result(SECONDS_MAX)
        assert running.metrics is not None
        port = running.metrics.address.port
        assert Scrape(port).total("odradek_event_loop_responsive") == 1
        go_on = threading.Event()
        loop.call_soon_threadsafe(go_on.wait)
        try:
            seen = Scrape(port)
        finally:
            go_on.set()
        assert seen.total("odradek_event_loop_responsive") == 0
        assert seen.total("odradek_event_loop_overdue_seconds") > 1
        assert seen.total("process_cpu_seconds_total") > 0
        assert "kafka_" not in seen.text
        until(lambda: Scrape(port).total("odradek_event_loop_responsive") == 1)
        assert Scrape(port).total("odradek_event_loop_lag_max_seconds") > 1
        asyncio.run_coroutine_threadsafe(running.stop(), loop).result(SECONDS_MAX)
        assert not is_answered(port)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_metrics_port_in_use_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, errors = outcome_of_serve(
            tmp_path, "--override=listeners=PLAINTEXT://127.0.0.1:0", f"--override=metrics.listener=127.0.0.1:{port}"
        )
    assert status == 1
    assert errors == (
        f"odradek serve: Cannot listen on metrics.listener 127.0.0.1:{port}: the port is in use; "
        "stop its process, or set another port with metrics.listener=.\n"
    )
    assert not list(tmp_path.iterdir()), "nothing was touched"


def test_a_missing_prometheus_client_is_reported_in_one_sentence(tmp_path: Path) -> None:
    command = (
        "import sys; sys.modules['prometheus_client'] = None; from odradek.app.main import main; "
        "sys.exit(main(['serve', '--override=metrics.listener=127.0.0.1:0', '--override=listeners=PLAINTEXT://127.0.0.1:0']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", command], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("odradek serve: metrics.listener is set, but prometheus_client is not installed: ")
    assert ended.stderr.endswith("'prometheus-client>=0.20'\n")
    assert not list(tmp_path.iterdir()), "nothing was touched"


def test_a_broker_without_metrics_does_not_import_their_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    modules = ("prometheus_client", "odradek.app.metrics.metrics", "odradek.app.logging.request_log", "wsgiref")
    with serving(tmp_path / "without") as broker:
        assert "odradek.app.serve.building" in broker.errors()
        assert not [name for name in modules if name in broker.errors()]
    with serving(tmp_path / "with", "--log-level=odradek.request=DEBUG", metrics_listener="127.0.0.1:0") as broker:
        assert not [name for name in modules if name not in broker.errors()]
