"""Findings of the doctor about other servers, and about clusters in trouble."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from odradek import __version__
from odradek.app.doctor.advertised import BootstrapServer, advice_for, correct_listeners, unusable_reason
from odradek.app.doctor.client_versions import CLIENTS, USES, examine_clients
from odradek.app.doctor.described_cluster import Cluster, Identity
from odradek.app.doctor.examination import examine
from odradek.app.doctor.findings import Finding, State, works
from odradek.app.doctor.peer_protocol import identify, match_signs
from odradek.app.doctor.reach import as_ip, is_loopback
from odradek.app.doctor.topic_findings import examine_topics
from odradek.app.main import main
from odradek.app.terminal.compiled import how_compiled
from odradek.base.errors import ErrorCode
from odradek.base.units import INT64_MAX
from odradek.client.cluster.topic_metadata import Broker, Partition, Topic
from odradek.client.connection.versions import ApiRange
from odradek.log.files.log_file_names import DAMAGES
from odradek.tls.tls_config import TlsConfig
from odradek.wire.connection import Connection
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.request import Request
from odradek.wire.schema.api_keys import ApiKey
from support.certificates import Authority, Known, written
from support.scripted_broker import HangUp, ScriptedBroker
from support.tls_proxy import TlsProxy

pytestmark = [pytest.mark.slow, pytest.mark.waits]

WAIT_SECONDS = 1.0
TLS_WAIT_SECONDS = 10  # Nothing is waited for in vain there.


def run_examination(port: int, host: str = "127.0.0.1", tls: TlsConfig | None = None) -> list[Finding]:
    return list(examine((host, port), WAIT_SECONDS if tls is None else TLS_WAIT_SECONDS, tls))


def only_wrong(findings: list[Finding]) -> Finding:
    (found,) = [one for one in findings if one.state is State.WRONG]
    assert found.advice, "what is wrong comes with what to do"
    return found


def noted(findings: list[Finding]) -> list[Finding]:
    """Return the notes, except those about features that scripted brokers do not have."""
    return [one for one in findings if one.state is State.NOTE and one.check not in ("groups", "idempotence")]


# Servers other than Kafka.


@contextmanager
def server(answer: bytes | None) -> Iterator[int]:
    """Respond to the first bytes of every connection and hang up; with None, never respond."""
    listener = socket.create_server(("127.0.0.1", 0))
    silent: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                stream, _ = listener.accept()
                if answer is None:
                    silent.append(stream)
                    continue
                with stream, suppress(OSError):
                    stream.recv(4096)
                    stream.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
    for stream in silent:
        stream.close()


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "an SSH server"),
        (b"-ERR unknown command\r\n", "a Redis server"),
        (b"AMQP\x00\x00\x09\x01", "an AMQP broker, such as RabbitMQ"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "a TLS listener"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00", "an HTTP/2 server (gRPC?)"),
        (b"ruok is not executed because it is not in the whitelist.\n", "ZooKeeper"),
        (b"something else altogether", "not Kafka"),
        (b"", "a service that accepts connections and closes them without an answer"),
        (None, "a service that accepts connections and never answers"),
    ],
)
def test_other_server_is_identified(answer: bytes | None, what: str) -> None:
    with server(answer) as port:
        assert only_wrong(run_examination(port)).message == f"127.0.0.1:{port} is {what}"


def test_http_server_is_identified() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as http:
        http.RequestHandlerClass.log_message = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=http.serve_forever, daemon=True).start()
        found = only_wrong(run_examination(http.server_port))
        http.shutdown()
    assert found.message.endswith("is an HTTP server")
    assert "listeners" in (found.advice or "")


def test_tls_server_is_identified() -> None:
    """Without a certificate it has no acceptable cipher, and responds with an alert, as TLS servers do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ADH:@SECLEVEL=0")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                stream, _ = listener.accept()
                with suppress(OSError), context.wrap_socket(stream, server_side=True):
                    pass

    threading.Thread(target=serve, daemon=True).start()
    address = listener.getsockname()[:2]
    assert identify(address, WAIT_SECONDS).what == "a TLS listener"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_closed_port_and_unknown_host_are_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    refused = only_wrong(run_examination(port))
    assert (refused.check, "127.0.0.1 refused" in refused.message) == ("connection", True)
    for name in ("no-such-host.invalid", "a" * 70, "a..b"):
        found = only_wrong(run_examination(9092, name))
        assert (found.check, name in found.message) == ("address", True)


def test_empty_or_kafka_response_identifies_no_server() -> None:
    assert match_signs(b"") is None
    assert match_signs(b"\x00\x00\x00\x06\x0d\xda\xde\x05\x00\x23") is None


# Clusters in trouble.


def partition(
    index: int, leader: int, replicas: list[int], isr: list[int], error: int = 0
) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=error, partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=isr
    )


class Patient(ScriptedBroker):
    """Broker 1, with a cluster defined by the test; it describes its listeners as Kafka does."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="c",
            controller_id=1,
            topics=[],
        )
        self.node = 1
        self.listeners = f"PLAINTEXT://127.0.0.1:{self.port}"
        self.log_dirs = ""
        self.on(MetadataRequest, lambda request, version: self.cluster)
        self.on(DescribeConfigsRequest, self._configs)
        self.folders: list[DescribeLogDirsResult] = []
        self.on(DescribeLogDirsRequest, self._folders)

    def _folders(self, request: DescribeLogDirsRequest, version: int) -> DescribeLogDirsResponse:
        return DescribeLogDirsResponse(throttle_time_ms=0, results=self.folders)

    def _configs(self, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
        listeners = DescribeConfigsResourceResult(
            name="advertised.listeners", value=self.listeners, read_only=True, is_sensitive=False
        )
        log_dirs = DescribeConfigsResourceResult(
            name="log.dirs", value=self.log_dirs, read_only=True, is_sensitive=False
        )
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    error_code=0 if one.resource_name == str(self.node) else ErrorCode.INVALID_REQUEST,
                    error_message=None,
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                    configs=[listeners, log_dirs] if one.resource_name == str(self.node) else [],
                )
                for one in request.resources
            ]
        )

    def _answer(self, connection: Connection, request: Request) -> None:
        if request.api_key not in self.versions:
            raise HangUp
        super()._answer(connection, request)

    def advertise(self, host: str, port: int) -> None:
        self.cluster.brokers = [MetadataResponseBroker(node_id=1, host=host, port=port)]
        self.listeners = f"INSIDE://kafka:9093,OUTSIDE://{host}:{port}"

    def topic(self, *partitions: MetadataResponsePartition, error: int = 0) -> None:
        self.cluster.topics = [MetadataResponseTopic(error_code=error, name="t", partitions=list(partitions))]


@pytest.fixture
def patient() -> Iterator[Patient]:
    with Patient() as broker:
        yield broker


def test_healthy_cluster_has_no_problems(patient: Patient) -> None:
    patient.topic(partition(0, 1, [1], [1]))
    findings = run_examination(patient.port)
    assert works(findings)
    checks = ["address", "connection", "protocol", "clients", "groups", "idempotence", "cluster", "broker 1", "topics"]
    assert [one.check for one in findings] == checks


def test_offline_data_directory_is_reported(patient: Patient) -> None:
    patient.folders = [
        DescribeLogDirsResult(error_code=0, log_dir="/good", topics=[]),
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/bad", topics=[]),
    ]
    found = only_wrong(run_examination(patient.port))
    assert found.message == "offline on broker 1, with all of its partitions: /bad"
    assert found.advice.endswith("repair the disk, and restart the broker.")


def test_unresolvable_advertised_host_is_reported(patient: Patient) -> None:
    patient.advertise("no-such-host.invalid", 9092)
    found = only_wrong(run_examination(patient.port))
    assert "advertises no-such-host.invalid:9092, but no-such-host.invalid does not resolve here" in found.message
    setting = f"advertised.listeners=INSIDE://kafka:9093,OUTSIDE://127.0.0.1:{patient.port}"
    assert found.advice == f"Set {setting} on broker 1 and restart it."


@pytest.mark.parametrize(("host", "port"), [("", 9092), ("127.0.0.1", 0), ("127.0.0.1", -1), ("0.0.0.0", 9092)])
def test_invalid_advertised_address_is_reported(patient: Patient, host: str, port: int) -> None:
    patient.advertise(host, port)
    assert only_wrong(run_examination(patient.port)).check == "broker 1"


def test_unreachable_advertised_address_is_reported(patient: Patient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    patient.advertise("127.0.0.1", port)
    assert "is not reachable from here: 127.0.0.1 refused" in only_wrong(run_examination(patient.port)).message


def test_advertised_address_of_another_cluster_is_reported(patient: Patient) -> None:
    with Patient() as other:
        patient.advertise("127.0.0.1", other.port)
        other.cluster.cluster_id = "d"
        assert "the broker there belongs to another cluster (d)" in only_wrong(run_examination(patient.port)).message
        other.cluster.cluster_id, other.node = "c", 2
        assert "a broker that is not in the cluster's metadata" in only_wrong(run_examination(patient.port)).message
        patient.cluster.brokers.append(MetadataResponseBroker(node_id=2, host="127.0.0.1", port=other.port))
        found = only_wrong(run_examination(patient.port))
        assert (found.check, "the service there is broker 2" in found.message) == ("broker 1", True)
        other.on(MetadataRequest, hang_up)
        assert {one.check for one in run_examination(patient.port) if one.state is State.WRONG} == {
            "broker 1",
            "broker 2",
        }
    with server(b"SSH-2.0-x\r\n") as port:
        patient.advertise("127.0.0.1", port)
        assert only_wrong(run_examination(patient.port)).message.endswith("but the service there is an SSH server")


def hang_up(request: MetadataRequest, version: int) -> MetadataResponse:
    raise HangUp


def test_broker_without_metadata_is_reported(patient: Patient) -> None:
    patient.on(MetadataRequest, hang_up)
    found = only_wrong(run_examination(patient.port))
    assert (found.check, "did not describe its cluster" in found.message) == ("cluster", True)


def test_missing_brokers_and_controller_are_reported(patient: Patient) -> None:
    patient.cluster.controller_id = -1
    (found,) = noted(run_examination(patient.port))
    assert "no controller" in found.message
    patient.cluster.brokers = []
    assert "no broker" in only_wrong(run_examination(patient.port)).message


def test_partitions_without_a_leader_are_reported(patient: Patient) -> None:
    offline = [partition(index, -1, [2], [2], ErrorCode.LEADER_NOT_AVAILABLE) for index in range(8)]
    patient.topic(*offline, partition(8, 1, [1, 3], [1]))
    findings = run_examination(patient.port)
    found = only_wrong(findings)
    assert found.message == "8 partitions without a leader: t-0, t-1, t-2, t-3, t-4 and 3 more"
    assert (found.advice or "").startswith("Start broker 2:")
    lagging = findings[-1]
    assert (lagging.state, lagging.message) == (State.NOTE, "1 partition with replicas that are not in sync: t-8")
    patient.topic(partition(0, -1, [1], [1], ErrorCode.LEADER_NOT_AVAILABLE))
    assert "log.dirs" in (only_wrong(run_examination(patient.port)).advice or "")


def test_under_replicated_partitions_are_reported() -> None:
    """min.insync.replicas, if known, decides whether acks=all writes are possible."""

    def found(*isrs: tuple[int, ...], min_isr: int | None = None, alive: int = 2) -> list[Finding]:
        parts = [Partition(n, isr[0] if isr else -1, replicas=(1, 2, 3), isr=isr) for n, isr in enumerate(isrs)]
        brokers = tuple(Broker(node, "a", 9092) for node in range(1, alive + 1))
        cluster = Cluster("c", 1, brokers, (Topic("t", partitions=tuple(parts)),))
        return list(examine_topics(cluster, {} if min_isr is None else {"t": min_isr}))

    (one,) = found((1, 2), min_isr=2)
    assert one.message == "1 partition at min ISR, with no in-sync replica to spare for acks=all: t-0"
    assert (one.state, one.advice) == (State.NOTE, "Start broker 3.")
    first, second = found((1,), (1, 2), (1, 2, 3), min_isr=2, alive=3)
    assert first.message == "1 partition under min ISR, which reject acks=all: t-0"
    assert first.state is State.WRONG
    assert (first.advice or "").startswith("Wait for the replicas to catch up (odradek cluster status shows")
    assert second.message == "1 partition at min ISR, with no in-sync replica to spare for acks=all: t-1"
    (one,) = found((1,), (1, 2))
    assert one.message == "2 partitions with replicas that are not in sync: t-0, t-1"
    well, tight = found((1, 2, 3), min_isr=3, alive=3)
    assert (well.state, tight.state) == (State.OK, State.NOTE)
    assert tight.message == "1 topic with no more replicas than min.insync.replicas: t"


def test_advice_names_the_brokers_that_can_lead_again() -> None:
    """A broker of the last ISR; any other one would lose records, and the advice says so."""

    def advice(isr: tuple[int, ...], replicas: tuple[int, ...]) -> str:
        topic = Topic("t", partitions=(Partition(0, -1, replicas=replicas, isr=isr),))
        (found,) = examine_topics(Cluster("c", 1, (Broker(1, "a", 9092),), (topic,)), {})
        assert found.state is State.WRONG
        return found.advice or ""

    assert advice((3,), (2, 3)) == "Start broker 3: no other broker has all records of these partitions."
    assert "--election-type unclean" in advice((3,), (1, 3))
    assert advice((), (2, 3)).startswith("Start brokers 2, 3: ")
    assert advice((1,), (1,)).startswith("Check the broker's log")


def test_unauthorized_topic_is_noted(patient: Patient) -> None:
    patient.topic(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    (found,) = noted(run_examination(patient.port))
    assert found.message == "1 topic cannot be described: t (TOPIC_AUTHORIZATION_FAILED)"


def test_control_characters_are_not_printed(patient: Patient, capsys: pytest.CaptureFixture[str]) -> None:
    patient.advertise("\x1b[2J[bold]x", 9092)
    assert main(["doctor", f"127.0.0.1:{patient.port}", "--timeout", "0.3"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[2J[bold]x" in out


def test_doctor_writes_json(patient: Patient, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"127.0.0.1:{patient.port}", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["works"] is True
    *others, installation = report["findings"]
    assert {one["state"] for one in others} == {"ok"}
    assert installation["check"] == "installation"
    assert installation["says"].startswith(f"this command is odradek {__version__}, {how_compiled()};")
    assert installation["state"] == ("ok" if how_compiled() == "compiled" else "note")
    patient.cluster.brokers = []
    assert main(["doctor", f"127.0.0.1:{patient.port}", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["works"] is False
    assert [one["check"] for one in report["findings"] if one["state"] == "wrong"] == ["cluster"]


# Under TLS.  A listener in front of the scripted broker carries bytes.


class Listener(TlsProxy):
    """An SSL listener of that broker, which advertises it; its certificate is for localhost."""

    def __init__(self, patient: Patient, authority: Authority, auth: str = "none", *, expired: bool = False) -> None:
        own = authority.known("localhost", expired=expired)
        super().__init__(TlsConfig.parse(store(own, authority) | {"ssl.client.auth": auth}))
        self.target_port = patient.port
        patient.advertise("localhost", self.port)


def store(known: Known | None, authority: Authority) -> dict[str, str]:
    texts = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem}
    if known is None:
        return texts
    own = {"ssl.keystore.certificate.chain": known.chain, "ssl.keystore.key": known.key}
    return texts | {"ssl.keystore.type": "PEM", **own}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def test_healthy_cluster_with_tls_has_no_problems(patient: Patient, authority: Authority) -> None:
    with Listener(patient, authority) as listener:
        findings = run_examination(listener.port, "localhost", TlsConfig.parse(store(None, authority)))
        assert works(findings), findings
        assert f"Kafka in TLSv1.3, with {len(patient.versions)} APIs" in [one.message for one in findings]
        assert findings[-2].message.startswith(f"advertises localhost:{listener.port}, and is reachable there")


def test_missing_client_certificate_is_reported(patient: Patient, authority: Authority) -> None:
    with Listener(patient, authority, "required") as listener:
        mine = TlsConfig.parse(store(authority.known("me"), authority))
        assert works(run_examination(listener.port, "localhost", mine))
        found = only_wrong(run_examination(listener.port, "localhost", TlsConfig.parse(store(None, authority))))
        assert found.message == (
            f"TLS handshake with localhost:{listener.port} failed: the broker requires a client certificate: "
            "set ssl.keystore.location"
        )
        assert "Set ssl.keystore.location" in (found.advice or "")
        strange = TlsConfig.parse(store(Authority().known("me"), authority))
        found = only_wrong(run_examination(listener.port, "localhost", strange))
        assert "the broker rejected the client certificate" in found.message
        assert "the broker's ssl.truststore.location" in (found.advice or "")


def test_untrusted_broker_is_reported(patient: Patient, authority: Authority) -> None:
    with Listener(patient, authority) as listener:
        found = only_wrong(run_examination(listener.port, "localhost", TlsConfig.parse(store(None, Authority()))))
        assert found.message == (
            f"TLS handshake with localhost:{listener.port} failed: the broker's certificate is not trusted: "
            "unable to get local issuer certificate"
        )
        assert (found.advice or "").startswith("Set ssl.truststore.location to a file")
        found = only_wrong(run_examination(listener.port, "127.0.0.1", TlsConfig.parse(store(None, authority))))
        assert (
            f"TLS handshake with 127.0.0.1:{listener.port} failed: the broker's certificate does not match the address"
            in found.message
        )
        assert (found.advice or "").endswith("or issue a certificate for 127.0.0.1.")
    with Listener(patient, authority, expired=True) as listener:
        found = only_wrong(run_examination(listener.port, "localhost", TlsConfig.parse(store(None, authority))))
        assert (found.advice or "").startswith("Renew the expired certificate")


def test_advertised_host_missing_in_the_certificate_is_reported(patient: Patient, authority: Authority) -> None:
    with Listener(patient, authority) as listener:
        patient.advertise("127.0.0.1", listener.port)
        found = only_wrong(run_examination(listener.port, "localhost", TlsConfig.parse(store(None, authority))))
        assert found.check == "broker 1"
        assert (
            "but the service there failed: TLS handshake with" in found.message
            and "does not match the address" in found.message
        )
        setting = f"INSIDE://kafka:9093,OUTSIDE://localhost:{listener.port}"
        assert found.advice == f"Set advertised.listeners={setting} on broker 1 and restart it."


def test_tls_to_a_plaintext_listener_is_reported(patient: Patient, authority: Authority) -> None:
    found = only_wrong(run_examination(patient.port, "localhost", TlsConfig.parse(store(None, authority))))
    assert found.message == f"localhost:{patient.port} is Kafka in plaintext"
    assert "Remove security.protocol=SSL" in (found.advice or "")


def test_command_config_file_enables_tls(
    patient: Patient, authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"security.protocol": "SSL", **store(None, authority)}
    lines = [f"{name}={text}".replace("\n", "\\n") for name, text in given.items()]
    config = written(tmp_path / "client.properties", "\n".join(lines))
    with Listener(patient, authority) as listener:
        assert main(["doctor", listener.address, "--command-config", config]) == 0
        assert "Kafka in TLSv1.3" in capsys.readouterr().out
    config = written(tmp_path / "wrong.properties", "security.protocol=SSL\nssl.truststore.location=/no/such.p12")
    assert main(["doctor", f"localhost:{patient.port}", "--command-config", config]) == 2
    output = capsys.readouterr().err
    assert output.count("\n") == 1 and "Failed to read option ssl.truststore.location /no/such.p12: " in output


# Decisions that need no server.


def bootstrap_server(ip: str, node: int | None, *brokers: Broker) -> BootstrapServer:
    identity = None if node is None else Identity(node, {})
    return BootstrapServer((ip, 9092), ip, Cluster("c", 1, brokers, ()), identity, WAIT_SECONDS)


def test_advertised_localhost_is_valid_only_for_local_connections() -> None:
    for host in ("localhost", "LOCALHOST", "127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"):
        broker = Broker(1, host, 9092)
        assert unusable_reason(broker, bootstrap_server("127.0.0.1", 1, broker)) is None
        assert unusable_reason(broker, bootstrap_server("::1", 1, broker)) is None
        assert "own machine" in (unusable_reason(broker, bootstrap_server("192.0.2.7", 1, broker)) or "")


def test_advice_names_the_known_address() -> None:
    wrong, other = Broker(1, "localhost", 19092), Broker(2, "localhost", 19093)
    alone = bootstrap_server("192.0.2.7", None, wrong)
    assert advice_for(wrong, alone) == "Set advertised.listeners=PLAINTEXT://192.0.2.7:9092 on broker 1 and restart it."
    among = bootstrap_server("192.0.2.7", 1, wrong, other)
    assert "PLAINTEXT://192.0.2.7:9092 on broker 1" in advice_for(wrong, among)
    assert "PLAINTEXT://HOST:19093 on broker 2" in advice_for(other, among)


def test_advice_replaces_only_the_wrong_listener() -> None:
    present, right = ("kafka", 9092), ("::1", 29092)
    current = Identity(
        1, {"advertised.listeners": "A://kafka:9092, B://kafka:9093", "listeners": "A://:9092,B://:9093"}
    )
    assert correct_listeners(current, present, right) == "A://[::1]:29092,B://kafka:9093"
    unset = Identity(1, {"advertised.listeners": "", "listeners": "A://:9093,B://:9092"})
    assert correct_listeners(unset, present, right) == "B://[::1]:29092"
    assert correct_listeners(None, present, right) == "PLAINTEXT://[::1]:29092"


def test_ip_addresses_and_loopback_are_recognized() -> None:
    assert as_ip("fe80::1%eth0") is not None
    assert as_ip("kafka") is None
    assert not is_loopback("kafka")
    assert not is_loopback("192.0.2.1")


def test_clients_are_identified_by_api_versions() -> None:
    newest = {key: one.ranges[key] for one in CLIENTS[:1] for key in one.ranges}
    assert [one.state for one in examine_clients(newest)] == [State.OK] * 3
    without_groups = {key: each for key, each in newest.items() if key not in USES["groups"]}
    found = list(examine_clients(without_groups))
    assert [one.state for one in found] == [State.OK, State.NOTE, State.OK]
    assert "no client can use consumer groups: FindCoordinator" in found[1].message
    del without_groups[ApiKey.INIT_PRODUCER_ID]
    assert "enable.idempotence=false" in (list(examine_clients(without_groups))[-1].advice or "")
    too_new = newest | {key: ApiRange(12, 13) for key in USES["produce"]}
    assert {one.state for one in examine_clients(too_new)} == {State.OK, State.NOTE}
    old = newest | dict.fromkeys(USES["produce"], ApiRange(0, 2))
    messages = [one.message for one in examine_clients(old)]
    assert "Java 4.3 has no common version of Produce with this broker" in messages
    assert "librdkafka 2.16, aiokafka 0.14 can produce and consume" in messages
    (finding,) = examine_clients({})
    assert (finding.state, "Produce" in finding.message) == (State.WRONG, True)


# Quarantined data on its disks.


def data_directory(path: Path, cluster_id: str) -> Path:
    path.mkdir()
    (path / "meta.properties").write_text(f"version=0\nbroker.id=1\ncluster.id={cluster_id}\n")
    (path / "flights-0").mkdir()
    (path / "flights-0" / f"{0:020d}.log").write_bytes(bytes(5000))
    return path


def test_registered_damage_is_reported(tmp_path: Path) -> None:
    whole, bad = (data_directory(tmp_path / name, name[:1]) for name in ("c-whole", "c-bad"))
    (whole / DAMAGES).write_text("0\n0\n")
    known = [
        f"flights {number} {0:020d}.log 70 {following} 1795000000000 the checksum is wrong"
        for number, following in enumerate((12, INT64_MAX))
    ]
    (bad / DAMAGES).write_text("\n".join(["0", "2", *known, ""]))
    with Patient() as patient:
        patient.log_dirs = f"{whole},{bad}"
        found = only_wrong(run_examination(patient.port))
    since = f"at byte 70 of {0:020d}.log since 2026-11-18T11:06:40.000Z (the checksum is wrong"
    assert (found.check, found.message) == (
        "log dirs",
        f"2 damaged places in {bad}: flights-0 {since}, readable again from offset 12), flights-1 {since})",
    )


def test_quarantined_data_is_reported(tmp_path: Path) -> None:
    plain, full, another = (data_directory(tmp_path / name, name[:1]) for name in ("c-plain", "c-full", "other"))
    (full / "flights-0" / f"{7:020d}.log.aside").write_bytes(bytes(1000))
    (full / "flights-0" / f"{7:020d}.log.aside.2").write_bytes(bytes(24))
    (full / f"gone-0.{'0' * 32}-stray").mkdir()
    (full / f"gone-0.{'0' * 32}-stray" / f"{0:020d}.log").write_bytes(bytes(2048))
    (another / "flights-0" / f"{7:020d}.log.aside").write_bytes(bytes(1000))
    with Patient() as patient:
        patient.log_dirs = f"{plain}, {full},{another},{tmp_path / 'not-here'}"
        findings = run_examination(patient.port)
    assert works(findings)
    ok, noted = (one for one in findings if one.check == "log dirs")
    assert (ok.state, ok.message) == (State.OK, f"no files are set aside in {plain}")
    strays = "1 log of partitions that are not assigned to the broker (*-stray)"
    asides = "2 files with data truncated from logs (*.aside)"
    assert (noted.state, noted.message) == (State.NOTE, f"{strays} and {asides}, 3.0 KiB, set aside in {full}")
    assert "odradek log dump" in (noted.advice or "")
