"""Log messages of a running broker about topics: creation, changes and deletion, with the client."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]  # Not in its stubs.

from odradek.base.uuids import ZERO_UUID
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.certificates import Authority, written
from support.ports import free_port
from support.raw_client import RawClient
from support.serving import Serving, serving

SECONDS_MAX = 150

Event = dict[str, object]


def logged(broker: Serving, level: str = "INFO", logger: str = "odradek.core.broker.topic_log_lines") -> list[Event]:
    events = [json.loads(line) for line in broker.errors().splitlines()]
    return [event for event in events if event["logger"] == logger and event["level"] == level]


def messages(broker: Serving, level: str = "INFO", logger: str = "odradek.core.broker.topic_log_lines") -> list[str]:
    return [str(event["message"]) for event in logged(broker, level, logger)]


def create(admin: AdminClient, topic: str, partitions: int = 1, **configs: str) -> None:
    new = NewTopic(topic, partitions, 1, config={key.replace("_", "."): value for key, value in configs.items()})
    for made in admin.create_topics([new]).values():
        made.result(SECONDS_MAX)


def test_creation_changes_and_deletion_of_a_topic_are_logged(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format=json") as broker:
        admin = AdminClient({"bootstrap.servers": broker.address, "client.id": "the admin"})
        create(admin, "orders", 2, retention_ms="1000", segment_bytes="2000000")
        with pytest.raises(Exception, match="already exists"):
            create(admin, "orders")
        for grown in admin.create_partitions([NewPartitions("orders", 5)]).values():
            grown.result(SECONDS_MAX)
        for deleted in admin.delete_topics(["orders"]).values():
            deleted.result(SECONDS_MAX)
        assert messages(broker) == [
            "topic orders was created with 2 partitions, retention.ms=1000, segment.bytes=2000000",
            "topic orders now has 5 partitions",
            "topic orders was deleted",
        ]
        created, grown_, deleted_ = logged(broker)
        assert [event["api"] for event in (created, grown_, deleted_)] == [
            "CreateTopics",
            "CreatePartitions",
            "DeleteTopics",
        ]
        for event in (created, grown_, deleted_):
            assert event["client_id"] == "the admin"
            assert event["listener"] == "PLAINTEXT"
            assert str(event["connection"]).startswith("127.0.0.1:")
            assert str(event["software"]).startswith("confluent-kafka-python")
            assert "principal" not in event
        assert messages(broker, "WARNING") == []


def test_an_auto_created_topic_is_logged(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format=json", num_partitions="3") as broker:
        producer = Producer({"bootstrap.servers": broker.address, "client.id": "the producer"})
        producer.produce("orders", b"one")
        assert producer.flush(SECONDS_MAX) == 0
        (event,) = logged(broker)
        assert event["message"] == "topic orders was auto-created with 3 partitions"
        assert (event["client_id"], event["api"]) == ("the producer", "Metadata")


def test_the_principal_of_a_certificate_is_logged(tmp_path: Path) -> None:
    authority, port = Authority(), free_port()
    client = authority.known("client", common_name="client one")
    texts = {
        "listeners": f"SSL://127.0.0.1:{port}",
        "advertised.listeners": f"SSL://localhost:{port}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": written(tmp_path / "broker.pem", authority.known("localhost").pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": written(tmp_path / "trust.pem", authority.pem),
        "ssl.client.auth": "required",
    }
    with Serving(tmp_path, "--log-format=json", **texts) as broker:
        keys = {"ssl.ca.pem": authority.pem, "ssl.certificate.pem": client.chain, "ssl.key.pem": client.key}
        admin = AdminClient({"bootstrap.servers": f"localhost:{port}", "security.protocol": "ssl", **keys})
        create(admin, "orders")
        (event,) = logged(broker)
        assert str(event["principal"]).startswith("User:CN=client one,")


def test_creation_of_internal_topics_is_logged(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format=json") as broker, RawClient(broker.port) as client:
        client.request(FindCoordinatorRequest(key="group"), 0, FindCoordinatorResponse)
        (event,) = logged(broker)
        text = "internal topic __consumer_offsets was created with 50 partitions, cleanup.policy=compact"
        assert str(event["message"]).startswith(text)
        assert "connection" not in event
        assert messages(broker, "WARNING") == []


def test_adopted_topics_are_logged(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format=json") as broker:
        create(AdminClient({"bootstrap.servers": broker.address}), "orders")
    shutil.copytree(tmp_path / "data", tmp_path / "copied", ignore=lambda *_: ["metadata.sqlite"])
    with serving(tmp_path / "other", "--log-format=json", log_dirs=str(tmp_path / "copied")) as copy:
        text = "added topics found in the data directories to the metadata: orders"
        assert messages(copy, logger="odradek.app.serve.adoption")[:1] == [text]


def test_each_of_a_thousand_topics_is_logged(tmp_path: Path) -> None:
    names = [f"topic-{number}" for number in range(1000)]
    with serving(tmp_path, "--log-format=json") as broker, RawClient(broker.port) as client:
        one = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        new = [CreatableTopic(name=name, **one) for name in names]  # type: ignore[arg-type]
        client.request(CreateTopicsRequest(topics=new, timeout_ms=1000 * SECONDS_MAX), 7, CreateTopicsResponse)
        assert messages(broker) == [f"topic {name} was created with 1 partition" for name in names]
        old = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
        client.request(DeleteTopicsRequest(topics=old, timeout_ms=1000 * SECONDS_MAX), 6, DeleteTopicsResponse)
        assert sorted(messages(broker)[1000:]) == sorted(f"topic {name} was deleted" for name in names)
