"""A broker's TLS listener: other clients over TLS, and peers that fail or abort the handshake."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_peer import missing, run_tool

from odradek.app.main import main
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.tls.ssl_contexts import client_context
from odradek.tls.tls_config import TlsConfig
from support.certificates import PASSWORD, Authority, Known, written
from support.ports import free_port
from support.serving import Serving
from support.waiting import until

SECONDS_MAX = 60
LARGE = os.urandom(700_000)


@dataclass
class Broker:
    """A broker with a listener without client certificates, one that requires them, and one in plain text."""

    authority: Authority
    serving: Serving
    folder: Path
    open: int
    mutual: int
    plain: int
    client: Known

    def texts(self) -> dict[str, str]:
        """Return the Java client's configuration with PKCS12 stores."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(self.folder / "trust.p12"),
            "ssl.truststore.password": PASSWORD,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.folder / "client.p12"),
            "ssl.keystore.password": PASSWORD,
        }

    def context(self) -> ssl.SSLContext:
        return client_context(TlsConfig.parse(self.texts()))

    def librdkafka(self, mutual: bool) -> dict[str, str]:
        texts = {"security.protocol": "ssl", "ssl.ca.pem": self.authority.pem}
        texts["bootstrap.servers"] = f"localhost:{self.mutual if mutual else self.open}"
        if mutual:
            texts |= {"ssl.certificate.pem": self.client.chain, "ssl.key.pem": self.client.key}
        return texts

    def lines(self) -> list[str]:
        return [line for line in self.serving.errors().splitlines() if "TLS handshake with" in line]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("broker")
    authority = Authority(between=True)
    client = authority.known("client", common_name="client one")
    serving = Serving(folder)
    ports = {name: free_port() for name in ("open", "mutual", "plaintext")}
    written(folder / "trust.p12", authority.pkcs12())
    written(folder / "client.p12", client.pkcs12())
    written(folder / "trust.pem", authority.pem)
    written(folder / "client.pem", client.pem)
    written(folder / "broker.pem", authority.known("localhost").pem)
    overrides = {
        "listeners": ",".join(f"{name.upper()}://127.0.0.1:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name.upper()}://localhost:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "OPEN:SSL,MUTUAL:SSL,PLAINTEXT:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.location": str(folder / "trust.p12"),
        "listener.name.mutual.ssl.truststore.password": PASSWORD,
    }
    serving.start(overrides)
    try:
        yield Broker(authority, serving, folder, ports["open"], ports["mutual"], ports["plaintext"], client)
    finally:
        serving.stop()


def test_excess_connection_is_closed_before_the_handshake(tmp_path: Path) -> None:
    written(tmp_path / "broker.pem", Authority().known("localhost").pem)
    overrides = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
        "max.connections": "1",
    }
    serving = Serving(tmp_path)
    serving.start(overrides)
    try:
        with (
            socket.create_connection(("127.0.0.1", serving.port)),
            socket.create_connection(("127.0.0.1", serving.port)) as second,
        ):
            second.settimeout(SECONDS_MAX)
            with suppress(ConnectionResetError):
                assert second.recv(1) == b""
        until(lambda: "too many connections" in serving.errors())
    finally:
        serving.stop()


def records() -> list[bytes]:
    return [b"%d" % number for number in range(3_000)] + [LARGE, b"", LARGE[:70_000]]


Copy = Callable[[Broker, bool, str], list[bytes | None]]


def by_librdkafka(broker: Broker, mutual: bool, topic: str) -> list[bytes | None]:
    producer = confluent_kafka.Producer(broker.librdkafka(mutual) | {"enable.idempotence": "true"})
    for record in records():
        producer.produce(topic, record)
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0
    settings = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(broker.librdkafka(mutual) | settings)
    consumer.subscribe([topic])
    read: list[bytes | None] = []
    while len(read) < len(records()):
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.error() is None
        read.append(message.value())
    consumer.close()
    return read


def python_settings(broker: Broker, mutual: bool) -> dict[str, Any]:
    return {"bootstrap_servers": f"localhost:{broker.mutual if mutual else broker.open}", "security_protocol": "SSL"}


def by_kafka_python(broker: Broker, mutual: bool, topic: str) -> list[bytes | None]:
    settings = python_settings(broker, mutual) | {"ssl_cafile": str(broker.folder / "trust.pem")}
    if mutual:
        settings |= {
            "ssl_certfile": str(broker.folder / "client.pem"),
            "ssl_keyfile": str(broker.folder / "client.pem"),
        }
    producer = kafka.KafkaProducer(**settings, max_request_size=1_000_000, acks="all")
    sent = [producer.send(topic, record) for record in records()]
    for each in sent:
        each.get(SECONDS_MAX)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest")
    read: list[bytes | None] = []
    while len(read) < len(records()):
        polled = consumer.poll(SECONDS_MAX * 1000)
        assert polled
        read += [record.value for part in polled.values() for record in part]
    consumer.close()
    return read


def by_aiokafka(broker: Broker, mutual: bool, topic: str) -> list[bytes | None]:
    context = ssl.create_default_context(cadata=broker.authority.pem)
    if mutual:
        context.load_cert_chain(broker.folder / "client.pem")

    async def copy() -> list[bytes | None]:
        settings = python_settings(broker, mutual) | {"ssl_context": context}
        async with aiokafka.AIOKafkaProducer(**settings, max_request_size=1_000_000) as producer:
            await asyncio.gather(*[await producer.send(topic, record) for record in records()])
        read: list[bytes | None] = []
        async with aiokafka.AIOKafkaConsumer(
            topic, **settings, auto_offset_reset="earliest", group_id=topic
        ) as consumer:
            while len(read) < len(records()):
                read.append((await asyncio.wait_for(consumer.getone(), SECONDS_MAX)).value)
        return read

    return asyncio.run(copy())


@pytest.mark.parametrize("mutual", [False, True], ids=["open", "mutual"])
@pytest.mark.parametrize("copy", [by_librdkafka, by_kafka_python, by_aiokafka])
def test_clients_read_their_records_over_tls(broker: Broker, copy: Copy, mutual: bool) -> None:
    topic = f"t-{uuid4().hex}"
    assert copy(broker, mutual, topic) == records()


@pytest.mark.nightly
@pytest.mark.java
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_kafkas_tools_work_over_tls(broker: Broker, tmp_path: Path) -> None:
    topic, servers = f"t-{uuid4().hex}", f"localhost:{broker.mutual}"
    config = written(tmp_path / "client.properties", "\n".join(f"{k}={v}" for k, v in broker.texts().items()))
    tools = "org.apache.kafka.tools"
    perf = ["--num-records", "30000", "--record-size", "1000", "--throughput", "-1", "--topic", topic]
    sent = run_tool(
        tmp_path, f"{tools}.ProducerPerformance", *perf, "--command-config", config, "--bootstrap-server", servers
    )
    assert "30000 records sent" in sent
    arguments = ["--topic", topic, "--bootstrap-server", servers, "--command-config", config]
    run_tool(tmp_path, f"{tools}.ConsumerPerformance", *arguments, "--num-records", "30000")
    read = run_tool(
        tmp_path, f"{tools}.consumer.ConsoleConsumer", *arguments, "--from-beginning", "--max-messages", "30000"
    )
    assert "Processed a total of 30000 messages" in read


def test_a_large_response_to_a_slow_reader_delays_no_other(broker: Broker) -> None:
    """Megabytes wait in files for the reader, and other connections are served."""
    topic = f"t-{uuid4().hex}"
    producer = confluent_kafka.Producer(broker.librdkafka(False))
    for number in range(60):
        producer.produce(topic, LARGE[number:])
    assert producer.flush(SECONDS_MAX) == 0
    settings = {"group.id": topic, "auto.offset.reset": "earliest", "fetch.message.max.bytes": "50000000"}
    consumer = confluent_kafka.Consumer(broker.librdkafka(True) | settings)
    consumer.subscribe([topic])
    for number in range(60):
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.value() == LARGE[number:]
        if number < 5:
            AdminClient(broker.librdkafka(False)).list_topics(timeout=SECONDS_MAX)
    consumer.close()


# Peers that fail the TLS handshake.


def refused_with(broker: Broker, words: str) -> None:
    until(lambda: any(words in line for line in broker.lines()))


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), SECONDS_MAX)


def read_to_the_end(stream: socket.socket) -> bytes:
    parts = []
    try:
        while data := stream.recv(65_536):
            parts.append(data)
    except OSError:
        pass
    return b"".join(parts)


def test_a_plain_text_peer_is_refused(broker: Broker) -> None:
    with connected(broker.open) as stream:
        stream.sendall(b"\x00\x00\x00\x15\x00\x12\x00\x00\x00\x00\x00\x01\x00\x0bplain-texts")
        assert read_to_the_end(stream) == b""
    refused_with(broker, "the client does not use TLS, but this listener requires it")


def test_a_peer_that_disconnects_in_the_handshake_is_logged(broker: Broker) -> None:
    with connected(broker.open) as stream:
        stream.sendall(b"\x16\x03\x01")
    refused_with(broker, "the peer disconnected during the TLS handshake")


def shaken(broker: Broker, port: int, known: Known | None) -> str:
    """Return the client's outcome of a handshake with this certificate."""
    context = ssl.create_default_context(cadata=broker.authority.pem)
    if known is not None:
        context.load_cert_chain(written(broker.folder / f"{uuid4().hex}.pem", known.pem))
    try:
        with context.wrap_socket(connected(port), server_hostname="localhost") as stream:
            stream.sendall(b"\x00\x00\x00\x0e\x00\x12\x00\x00\x00\x00\x00\x01\x00\x04abcd")
            return "answered" if stream.recv(4) else "closed"
    except ssl.SSLError as error:
        return error.reason or ""


def test_peers_without_a_valid_certificate_are_refused(broker: Broker) -> None:
    assert shaken(broker, broker.mutual, broker.client) == "answered"
    assert shaken(broker, broker.mutual, None) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    refused_with(broker, "the client sent no certificate, but ssl.client.auth is required")
    assert shaken(broker, broker.mutual, Authority().known("client")) == "TLSV1_ALERT_UNKNOWN_CA"
    refused_with(broker, "the client's certificate is not trusted: unable to get local issuer certificate")
    expired = broker.authority.known("client", expired=True)
    assert shaken(broker, broker.mutual, expired) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"
    refused_with(broker, "the client's certificate is not trusted: certificate has expired")
    assert "secret" not in broker.serving.errors()


def test_stalled_handshakes_do_not_delay_other_clients(broker: Broker) -> None:
    stopped = [connected(broker.open) for _ in range(200)]
    try:
        for number, stream in enumerate(stopped):
            if number % 2:
                stream.sendall(b"\x16\x03\x01\x02\x00\x01")
        topic = f"t-{uuid4().hex}"
        assert by_librdkafka(broker, True, topic) == records()
    finally:
        for stream in stopped:
            stream.close()
    until(lambda: shaken(broker, broker.open, None) == "answered")


def test_certificates_are_reloaded_when_their_file_changes(broker: Broker) -> None:
    def serial_shown() -> str:
        with broker.context().wrap_socket(connected(broker.open), server_hostname="localhost") as stream:
            shown: Mapping[str, Any] = stream.getpeercert() or {}
            return str(shown["serialNumber"])

    first = serial_shown()
    with broker.context().wrap_socket(connected(broker.open), server_hostname="localhost") as before:
        new = broker.folder / "new.pem"
        written(new, broker.authority.known("localhost").pem)
        new.replace(broker.folder / "broker.pem")
        until(lambda: serial_shown() != first)
        assert "new connections use the new certificates" in broker.serving.errors()
        second = serial_shown()
        written(broker.folder / "broker.pem", "half a fi")
        until(lambda: serial_shown() == second and "stay in use" in broker.serving.errors())
        before.sendall(b"\x00\x00\x00\x0e\x00\x12\x00\x00\x00\x00\x00\x01\x00\x04abcd")
        assert before.recv(4), "a connection from before goes on"


@pytest.mark.parametrize("mutual", [False, True], ids=["open", "mutual"])
def test_doctor_checks_a_tls_listener(
    broker: Broker, mutual: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a certificate, or without TLS, one finding names what is missing."""
    address = f"localhost:{broker.mutual if mutual else broker.open}"
    texts = {key: text for key, text in broker.texts().items() if mutual or "keystore" not in key}
    config = written(tmp_path / "client.properties", "\n".join(f"{k}={v}" for k, v in texts.items()))
    assert main(["doctor", address, "--command-config", config]) == 0
    output = capfd.readouterr().out
    assert "Kafka in TLSv1.3" in output and f"advertises {address}, and is reachable there" in output
    config = written(tmp_path / "nobody.properties", "security.protocol=SSL\n")
    assert main(["doctor", address, "--command-config", config]) == 1
    assert "the broker's certificate is not trusted" in capfd.readouterr().out
    assert main(["doctor", address]) == 1
    assert f"{address} is {'a TLS listener' if mutual else 'Kafka behind TLS'}" in capfd.readouterr().out


def test_our_client_connects_over_tls(broker: Broker) -> None:
    options = broker.texts() | {"bootstrap.servers": f"localhost:{broker.mutual}"}
    with Cluster(ClientConfig.from_options(options, "")) as cluster:
        (node,) = [one.id for one in cluster.connect().metadata.brokers.values()]
        assert cluster.metadata.brokers[node].address == ("localhost", broker.mutual)
        admin = AdminClient(broker.librdkafka(True))
        admin.create_topics([NewTopic("ours", 1)])["ours"].result(SECONDS_MAX)
        until(lambda: "ours" in [topic.name for topic in cluster.topics()])
