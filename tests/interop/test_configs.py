"""Configurations changed on a running broker by other clients: durable and effective at once."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka.admin as confluent
import kafka.admin as kafka_python
import pytest

from odradek.base.errors import ErrorCode
from odradek.wire.messages.produce import ProduceResponse
from support.asking import created, fetch, produce, produce_request, produced
from support.certificates import PASSWORD, Authority
from support.configuring import APPEND, BROKER, DELETE, SET, TOPIC, altered, described
from support.ports import free_port
from support.raw_client import RawClient
from support.serving import Serving
from support.waiting import until

DONE = (ErrorCode.NONE, "")
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("broker"), **{"broker.id": "1"}) as broker:
        yield broker


@pytest.fixture
def client(serving: Serving) -> Iterator[RawClient]:
    with RawClient(serving.port) as client:
        yield client


@pytest.mark.parametrize("stop", ["clean", "kill"])
def test_acknowledged_changes_survive_a_stop_or_kill(tmp_path: Path, stop: str) -> None:
    with Serving(tmp_path, **{"broker.id": "1"}) as serving, RawClient(serving.port) as client:
        created(client, "t")
        assert altered(client, TOPIC, "t", ("max.message.bytes", SET, "200")) == DONE
        assert altered(client, BROKER, "", ("log.retention.ms", SET, "777000")) == DONE
        assert altered(client, BROKER, "1", ("message.max.bytes", SET, "5000000")) == DONE
        if stop == "kill":
            serving.kill()
    with serving, RawClient(serving.port) as client:
        assert described(client, TOPIC, "t", "max.message.bytes", "retention.ms") == {
            "max.message.bytes": ("200", 1),
            "retention.ms": ("777000", 3),
        }
        assert described(client, BROKER, "1", "message.max.bytes") == {"message.max.bytes": ("5000000", 2)}
        assert produce(client, "t", b"x" * 500)[0] == ErrorCode.MESSAGE_TOO_LARGE


def test_the_next_retention_round_uses_the_new_value(tmp_path: Path) -> None:
    often = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}
    with Serving(tmp_path, **often) as serving, RawClient(serving.port) as client:
        created(client, "t")
        old = time.time_ns() // 1_000_000 - DAY_MS
        produced(client, "t", b"old", timestamp_ms=old)
        produced(client, "t", b"older", timestamp_ms=old)
        assert len(fetch(client, "t", 0)[1]) == 2
        assert altered(client, TOPIC, "t", ("retention.ms", SET, "1000")) == DONE
        until(lambda: fetch(client, "t", 0)[0] == ErrorCode.OFFSET_OUT_OF_RANGE)


def test_cached_request_templates_use_the_new_value(client: RawClient) -> None:
    """Requests like earlier ones are not parsed in full again."""
    created(client, "known")
    for name, kind in (("known", TOPIC), ("", BROKER)):
        key = "max.message.bytes" if kind == TOPIC else "message.max.bytes"
        for _ in range(5):
            assert produce(client, "known", b"x" * 500)[0] == ErrorCode.NONE
        assert altered(client, kind, name, (key, SET, "200")) == DONE
        assert produce(client, "known", b"x" * 500)[0] == ErrorCode.MESSAGE_TOO_LARGE
        assert altered(client, kind, name, (key, DELETE, None)) == DONE
    assert produce(client, "known", b"x" * 500)[0] == ErrorCode.NONE
    assert altered(client, TOPIC, "known", ("message.timestamp.type", SET, "LogAppendTime")) == DONE
    (part,) = client.request(produce_request("known", b"x" * 500), 9, ProduceResponse).responses[0].partition_responses
    assert part.log_append_time_ms > 0


def test_changes_are_logged(serving: Serving, client: RawClient) -> None:
    created(client, "told")
    assert altered(client, TOPIC, "told", ("retention.ms", SET, "1000"), ("segment.ms", SET, "5000")) == DONE
    assert altered(client, TOPIC, "told", ("segment.ms", DELETE, None)) == DONE
    errors = serving.errors()
    assert "configuration of topic told changed: retention.ms=1000, segment.ms=5000" in errors
    assert "configuration of topic told changed: segment.ms removed" in errors


def test_confluent_kafka_alters_configurations(serving: Serving, client: RawClient) -> None:
    created(client, "confluent")
    admin = confluent.AdminClient({"bootstrap.servers": serving.address})
    entries = [
        confluent.ConfigEntry("retention.ms", "5000", incremental_operation=confluent.AlterConfigOpType.SET),
        confluent.ConfigEntry("cleanup.policy", "compact", incremental_operation=confluent.AlterConfigOpType.APPEND),
    ]
    resource = confluent.ConfigResource("topic", "confluent", incremental_configs=entries)
    (future,) = admin.incremental_alter_configs([resource]).values()
    assert future.result(30) is None
    own = {"retention.ms": ("5000", 1), "cleanup.policy": ("delete,compact", 1)}
    assert described(client, TOPIC, "confluent", *own) == own
    (future,) = admin.alter_configs([confluent.ConfigResource("topic", "confluent", {"segment.ms": "9000"})]).values()
    assert future.result(30) is None
    assert described(client, TOPIC, "confluent", "retention.ms", "segment.ms") == {
        "retention.ms": ("604800000", 5),
        "segment.ms": ("9000", 1),
    }


def test_kafka_python_alters_configurations(serving: Serving, client: RawClient) -> None:
    created(client, "python")
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=serving.address)
    resource = kafka_python.ConfigResource(kafka_python.ConfigResourceType.TOPIC, "python", {"retention.ms": "5000"})
    admin.alter_configs([resource])
    assert described(client, TOPIC, "python", "retention.ms") == {"retention.ms": ("5000", 1)}
    admin.close()


class Secured:
    """A broker with a TLS listener, and a plain-text one to change its stores through."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.folder = folder
        self.authority = Authority()
        self.secure, self.plain = free_port(), free_port()
        self._overrides = {
            "broker.id": "1",
            "listeners": f"SAFE://127.0.0.1:{self.secure},PLAINTEXT://127.0.0.1:{self.plain}",
            "listener.security.protocol.map": "SAFE:SSL,PLAINTEXT:PLAINTEXT",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": self.store("first"),
            "ssl.keystore.password": PASSWORD,
            **more,
        }

    def serving(self) -> Serving:
        return Serving(self.folder, **self._overrides)

    def store(self, name: str, password: str = PASSWORD) -> str:
        path = self.folder / f"{name}.p12"
        path.write_bytes(self.authority.known("localhost", common_name=name).pkcs12(password))
        return str(path)

    def name(self) -> str:
        """Return the name in the certificate that new connections see."""
        context = ssl.create_default_context(cadata=self.authority.pem)
        with (
            socket.create_connection(("127.0.0.1", self.secure), 30) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            certificate: Any = secure.getpeercert()
        return str(dict(one[0] for one in certificate["subject"])["commonName"])


LOCATION, STORE_PASSWORD = (f"listener.name.safe.ssl.keystore.{what}" for what in ("location", "password"))


def test_a_listeners_certificate_changes_at_once(tmp_path: Path) -> None:
    broker = Secured(tmp_path, **{"password.encoder.secret": "of-the-encoder"})
    with broker.serving() as serving, RawClient(broker.plain) as client:
        assert broker.name() == "first"
        assert altered(client, BROKER, "1", (LOCATION, SET, broker.store("second"))) == DONE
        assert broker.name() == "second"
        # An unreadable store leaves the former one in use.
        error, sentence = altered(client, BROKER, "1", (LOCATION, SET, str(tmp_path / "nowhere.p12")))
        assert error == ErrorCode.INVALID_REQUEST and "nowhere.p12" in sentence
        third = broker.store("third", "another-word")
        error, sentence = altered(client, BROKER, "1", (LOCATION, SET, third))
        assert error == ErrorCode.INVALID_REQUEST and PASSWORD not in sentence
        assert broker.name() == "second"
        assert altered(client, BROKER, "1", (LOCATION, SET, third), (STORE_PASSWORD, SET, "another-word")) == DONE
        assert broker.name() == "third"
        assert described(client, BROKER, "1", STORE_PASSWORD) == {STORE_PASSWORD: (None, 2)}
        serving.kill()
        (tmp_path / "first.p12").unlink()  # It is unused from here on.
    with broker.serving() as serving:
        assert broker.name() == "third"
    assert "another-word" not in serving.errors()
    assert b"another-word" not in (tmp_path / "data" / "metadata.sqlite").read_bytes()


def test_passwords_are_refused_without_an_encoder_secret(tmp_path: Path) -> None:
    broker = Secured(tmp_path)
    with broker.serving(), RawClient(broker.plain) as client:
        error, sentence = altered(client, BROKER, "1", (STORE_PASSWORD, SET, PASSWORD))
        assert error == ErrorCode.INVALID_REQUEST
        assert "password.encoder.secret" in sentence and PASSWORD not in sentence


def test_the_limit_of_connections_is_changed(client: RawClient) -> None:
    there = described(client, BROKER, "1", "max.connections")["max.connections"]
    assert there == ("2147483647", 5)
    assert altered(client, BROKER, "1", ("max.connections", SET, "1")) == DONE
    with RawClient(client.socket.getpeername()[1]) as refused:
        assert refused.is_closed()
    assert altered(client, BROKER, "1", ("max.connections", DELETE, None)) == DONE
    with RawClient(client.socket.getpeername()[1]) as welcome:
        welcome.ping()


def test_append_extends_a_list(client: RawClient) -> None:
    created(client, "lists")
    assert altered(client, TOPIC, "lists", ("cleanup.policy", APPEND, "compact")) == DONE
    assert described(client, TOPIC, "lists", "cleanup.policy") == {"cleanup.policy": ("delete,compact", 1)}
