"""`odradek doctor` with a real Apache Kafka and with Odradek, well and badly configured."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from client_peers import BROKERS, STARTERS
from kafka_peer import CONTROL, KafkaBroker

from odradek.app.main import main
from support.ports import free_port
from support.serving import Serving, serving
from support.terminals import own

Finding = dict[str, str]

PASSWORD = "doctor"
TIMEOUT_SECONDS = "15"


class Report:
    """The output of `odradek doctor --json`: the sentence of each check, and its advice."""

    def __init__(self, address: str, capfd: pytest.CaptureFixture[str]) -> None:
        capfd.readouterr()
        self.status = main(["doctor", address, "--json", "--timeout", TIMEOUT_SECONDS])
        captured = capfd.readouterr()
        assert not own(captured.err)
        self.findings: list[Finding] = json.loads(captured.out)["findings"]

    def wrong(self) -> Finding:
        (found,) = [one for one in self.findings if one["state"] == "wrong"]
        assert self.status == 1
        assert found["advice"]
        return found


@pytest.mark.parametrize("kind", BROKERS)
def test_a_healthy_broker_has_no_findings(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    report = Report(STARTERS[kind](), capfd)
    assert report.status == 0, report.findings
    broker = next(one for one in report.findings if one["check"].startswith("broker "))
    assert "and is reachable there" in broker["says"]
    able = next(one for one in report.findings if one["check"] == "clients")
    assert able["says"].startswith("Java 4.3, librdkafka 2.16, kafka-python 3.0, aiokafka 0.14 can produce")


# Apache Kafka accepts any advertised address.


@contextmanager
def kafka(folder: Path, **settings: str) -> Iterator[KafkaBroker]:
    """Start Kafka with these settings; keys have _ for '.', and {port} is the broker's own port."""
    broker = KafkaBroker(folder)
    given = {key.replace("_", "."): value.format(port=broker.port) for key, value in settings.items()}
    changed = KafkaBroker(folder, settings=given)
    changed.port = broker.port
    with changed:
        yield changed


class TestApacheKafka:
    pytestmark = CONTROL

    @pytest.mark.parametrize(
        ("advertised", "message"),
        [
            ("kafka-1.invalid:9092", "kafka-1.invalid does not resolve here"),
            ("127.0.0.1:1", "is not reachable from here: 127.0.0.1 refused"),
        ],
    )
    def test_a_wrong_advertised_address_is_found(
        self, advertised: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with kafka(tmp_path, advertised_listeners=f"PLAINTEXT://{advertised}") as broker:
            found = Report(broker.address, capfd).wrong()
        assert found["check"] == "broker 1"
        assert message in found["says"]
        setting = f"advertised.listeners=PLAINTEXT://{broker.address}"
        assert found["advice"] == f"Set {setting} on broker 1 and restart it."

    def test_localhost_for_remote_clients_and_the_controller_port_are_found(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        outside, controller = own_address(), free_port()
        settings = {
            "listeners": f"PLAINTEXT://:{{port}},CONTROLLER://127.0.0.1:{controller}",
            "controller_quorum_voters": f"1@127.0.0.1:{controller}",
            "advertised_listeners": "PLAINTEXT://localhost:{port}",
        }
        with kafka(tmp_path, **settings) as broker:
            assert Report(f"localhost:{broker.port}", capfd).status == 0
            inside = Report(f"127.0.0.1:{controller}", capfd).wrong()
            assert "controller listener" in inside["says"]
            if outside is None:
                pytest.skip("this machine has no address but loopback")
            found = Report(f"{outside}:{broker.port}", capfd).wrong()
        assert (
            found["says"] == f"advertises localhost:{broker.port}: for every client, this is the client's own machine"
        )
        assert found["advice"] == (
            f"Set advertised.listeners=PLAINTEXT://{outside}:{broker.port} on broker 1 and restart it."
        )

    def test_swapped_advertised_addresses_are_found(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        with (
            kafka(tmp_path / "1") as first,
            kafka(
                tmp_path / "2",
                node_id="2",
                controller_quorum_voters=f"2@127.0.0.1:{(other := free_port())}",
                listeners=f"PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{other}",
                advertised_listeners=f"PLAINTEXT://{first.address}",
            ) as second,
        ):
            found = Report(second.address, capfd).wrong()
        assert found["check"] == "broker 2"
        assert "there is a broker that is not in the cluster's metadata" in found["says"]

    def test_a_sasl_listener_is_found(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        controller = free_port()
        login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="a" user_a="a";'
        settings = {
            "listeners": f"LOGIN://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{controller}",
            "controller_quorum_voters": f"1@127.0.0.1:{controller}",
            "advertised_listeners": "LOGIN://127.0.0.1:{port}",
            "inter_broker_listener_name": "LOGIN",
            "listener_security_protocol_map": "LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl_enabled_mechanisms": "PLAIN",
            "sasl_mechanism_inter_broker_protocol": "PLAIN",
            "listener_name_login_plain_sasl_jaas_config": login,
        }
        with kafka(tmp_path, **settings) as broker:
            found = Report(broker.address, capfd).wrong()
        assert found["says"] == "this listener requires clients to authenticate (SASL: PLAIN)"
        assert "sasl.mechanism=PLAIN" in found["advice"]

    def test_a_tls_listener_is_found(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        if shutil.which("keytool") is None:
            pytest.skip("needs keytool, which comes with java")
        controller, store = free_port(), tmp_path / "keys"
        subprocess.run(
            ["keytool", "-genkeypair", "-keystore", store, "-storepass", PASSWORD, "-keyalg", "EC", "-dname", "CN=x"],
            check=True,
            capture_output=True,
        )
        settings = {
            "listeners": f"SSL://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{controller}",
            "controller_quorum_voters": f"1@127.0.0.1:{controller}",
            "advertised_listeners": "SSL://127.0.0.1:{port}",
            "inter_broker_listener_name": "SSL",
            "listener_security_protocol_map": "SSL:SSL,CONTROLLER:PLAINTEXT",
            "ssl_keystore_location": str(store),
            "ssl_keystore_password": PASSWORD,
            "ssl_truststore_location": str(store),
            "ssl_truststore_password": PASSWORD,
        }
        with kafka(tmp_path / "kafka", **settings) as broker:
            found = Report(broker.address, capfd).wrong()
        assert found["says"] == f"{broker.address} is Kafka behind TLS"
        assert "security.protocol=SSL" in found["advice"]


def own_address() -> str | None:
    """Return a non-loopback address of this machine, the source of its outgoing packets; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    return None if address.startswith("127.") else address


# Odradek.


def test_another_cluster_at_the_advertised_address_is_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "other") as other:
        overrides = {"advertised.listeners": f"PLAINTEXT://{other.address}"}
        (tmp_path / "one").mkdir()
        with Serving(tmp_path / "one", **overrides) as broker:
            found = Report(broker.address, capfd).wrong()
    assert "belongs to another cluster" in found["says"]
    assert re.fullmatch(
        rf"Set advertised.listeners=PLAINTEXT://{broker.address} on broker \d+ and restart it.", found["advice"]
    )


def test_a_stopped_broker_is_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path) as broker:
        pass
    found = Report(f"127.0.0.1:{broker.port}", capfd).wrong()
    assert found["check"] == "connection"
    assert found["advice"].startswith("Start the broker")
