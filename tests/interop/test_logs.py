"""Log output of a running broker: valid JSON line by line, whatever clients send, and a line per request."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs do not export them.

from odradek.wire.client_codec import encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.raw_client import RawClient, frame, raw_frame
from support.serving import Serving, outcome_of_serve, serving

SECONDS_MAX = 150
REQUESTS = "--log-level=odradek.request=DEBUG"
EVENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ odradek\.\S+: ")
FORGED = 'x\n2026-01-01T00:00:00.000Z ERROR odradek.core.broker.broker: {"level": "ERROR"}\r\x1b[2J' + "y" * 5000

Event = dict[str, object]


def events(broker: Serving) -> list[Event]:
    return [json.loads(line) for line in broker.errors().split("\n") if line]


def requests(broker: Serving, api: str) -> list[Event]:
    return [event for event in events(broker) if event["logger"] == "odradek.request" and event["api"] == api]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def send_client_id(client: RawClient, client_id: str) -> None:
    """Send a request with a client id of any length and content; return its response."""
    client.send(b"".join(encode_request(ApiVersionsRequest(), 0, 3, client_id)))  # type: ignore[arg-type]  # No splices.
    client.read_frame()


def create(broker: Serving, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(SECONDS_MAX)


def test_every_request_of_a_client_has_a_line(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format", "json", REQUESTS) as broker:
        create(broker, "a")
        producer = Producer({"bootstrap.servers": broker.address, "client.id": "the producer", "linger.ms": 0})
        for _ in range(10):
            producer.produce("a", b"x" * 100)
            assert producer.flush(SECONDS_MAX) == 0
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition("a", 0, 0)])
        received = 0
        while received < 10:
            received += len(consumer.consume(10, 1.0))
        consumer.close()
        produced = requests(broker, "Produce")
        assert len(produced) == 10
        for event in produced:
            assert event.keys() >= {"time", "arrived", "api_version", "listener"}
            assert event["level"] == "DEBUG"
            assert event["client_id"] == "the producer"
            assert str(event["software"]).startswith("confluent-kafka-python")
            assert re.fullmatch(r"127\.0\.0\.1:\d+", str(event["connection"]))
            assert 100 < int(str(event["request_bytes"])) < 300
            assert 20 < int(str(event["response_bytes"])) < 200
            assert float(str(event["time_ms"])) > 0
            assert "errors" not in event
        assert len({event["correlation_id"] for event in produced}) == 10
        assert sum(int(str(event.get("response_bytes", 0))) for event in requests(broker, "Fetch")) > 1000


def test_request_lines_contain_errors_and_waiting_times(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format=json", REQUESTS) as broker, RawClient(broker.port) as client:
        create(broker, "a")
        missing = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in ("b", "c")], allow_auto_topic_creation=False
        )
        client.request(missing, 4, MetadataResponse)
        existing = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        beyond = FetchPartition(partition=0, fetch_offset=9, partition_max_bytes=1)
        for partition in (existing, beyond):
            topics = [FetchTopic(topic="a", partitions=[partition])]
            client.send(frame(FetchRequest(max_wait_ms=50, min_bytes=1, topics=topics), 4))
            client.read_frame()
        (metadata,) = [event for event in requests(broker, "Metadata") if event["client_id"] == "raw"]
        assert metadata["errors"] == "UNKNOWN_TOPIC_OR_PARTITION:2"
        waited, refused = requests(broker, "Fetch")
        assert str(waited["message"]) == "Fetch v4 completed after a wait"
        assert float(str(waited["time_ms"])) >= 49
        assert str(waited["arrived"]) < str(waited["time"])
        assert refused["errors"] == "OFFSET_OUT_OF_RANGE:1"
        assert str(refused["message"]) == "Fetch v4 completed"


def test_invalid_requests_are_logged(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format=json", REQUESTS) as broker:
        with RawClient(broker.port) as client:
            client.send(raw_frame(3, 1, b"\xff\xff"))
            assert client.is_closed()
        until(lambda: [event for event in events(broker) if event["logger"] == "odradek.net.clients.client_connection"])
        (request,) = requests(broker, "Metadata")
        assert (request["message"], request["client_id"]) == ("Metadata v1 failed", "raw")
        assert request["reason"] == "MetadataRequest is truncated"
        (closed,) = [event for event in events(broker) if event["logger"] == "odradek.net.clients.client_connection"]
        assert closed["level"] == "WARNING"
        assert closed["connection"] == request["connection"]
        assert closed["listener"] == "PLAINTEXT"


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_client_can_not_forge_a_line(tmp_path: Path, log_format: str) -> None:
    """Any client id is logged in one line, printable and truncated."""
    with serving(tmp_path, f"--log-format={log_format}", REQUESTS) as broker:
        with RawClient(broker.port) as client:
            for _ in range(5):
                send_client_id(client, FORGED)
        lines = broker.errors().removesuffix("\n").split("\n")
        assert len(lines) == 5
        for line in lines:
            assert line.isprintable()
            assert len(line) < 2000
            assert "\\n2026-01-01" in line
            assert "more)" in line
            if log_format == "json":
                assert json.loads(line)["logger"] == "odradek.request"
            else:
                assert re.match(EVENT, line)
                assert " DEBUG odradek.request: ApiVersions v0 completed | " in line


def test_an_undecodable_client_id_is_logged(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format=json", REQUESTS) as broker:
        with socket.create_connection(("127.0.0.1", broker.port), SECONDS_MAX) as connection:
            header = struct.pack(">hhih", 18, 0, 1, 4) + b"\xff\xfe\n\x00"
            connection.sendall(struct.pack(">i", len(header)) + header)
            connection.recv(1000)
        with RawClient(broker.port) as client:
            client.ping()
        assert {event["api"] for event in events(broker)} == {"ApiVersions"}


def test_requests_are_not_logged_by_default(tmp_path: Path) -> None:
    with serving(tmp_path) as broker, RawClient(broker.port) as client:
        assert client.request(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0
        assert broker.errors() == ""


def test_the_log_level_filters_messages(tmp_path: Path) -> None:
    texts = {"num.io.threads": "3"}  # Known, and without effect: a warning at start.
    for level, is_written in (("WARNING", True), ("ERROR", False)):
        directory = tmp_path / level
        directory.mkdir()
        with Serving(directory, f"--log-level={level}", **texts) as broker:
            assert ("num.io.threads" in broker.errors()) == is_written


def test_the_default_log_format_is_text(tmp_path: Path) -> None:
    with Serving(tmp_path, **{"num.io.threads": "3"}) as broker:
        assert EVENT.match(broker.errors())


def test_a_failed_start_is_logged_as_json(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listeners = f"--override=listeners=PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        status, errors = outcome_of_serve(tmp_path, listeners, "--log-format=json")
    assert status == 1
    (line,) = errors.splitlines()
    assert json.loads(line)["level"] == "CRITICAL"
    assert "the port is in use" in json.loads(line)["message"]


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--log-format=xml", "odradek serve: Invalid --log-format 'xml': use text or json.\n"),
        (
            "--log-level=LOUD",
            "odradek serve: Invalid --log-level 'LOUD': use LEVEL or LOGGER=LEVEL, "
            "with one of DEBUG, INFO, WARNING, ERROR, CRITICAL.\n",
        ),
    ],
)
def test_an_invalid_log_option_is_refused(tmp_path: Path, option: str, sentence: str) -> None:
    assert outcome_of_serve(tmp_path, option) == (2, sentence)
    assert not list(tmp_path.iterdir()), "nothing was touched"
