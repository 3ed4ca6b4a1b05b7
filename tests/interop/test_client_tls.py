"""The command line over TLS, to an Odradek broker behind a TLS proxy and to Apache Kafka."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kafka_peer import CONTROL
from tls_brokers import EXPIRED, MUTUAL, OPEN, Secured, apache_kafka, behind_proxies, keystore, trusting

from odradek.app.main import main
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import TlsRefused
from support.certificates import PASSWORD, Authority, written
from support.terminals import own

BROKERS = [pytest.param(behind_proxies, id="ours"), pytest.param(apache_kafka, id="kafka", marks=CONTROL)]


@pytest.fixture(scope="module", params=BROKERS)
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with ExitStack() as stack:
        start: Callable[[Path, ExitStack], Secured] = request.param
        yield start(tmp_path_factory.mktemp("broker"), stack)


class Terminal:
    """A runner of one command that returns its standard output, or the sentence on standard error."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._capfd = capfd
        self._monkeypatch = monkeypatch

    def config(self, **texts: str) -> str:
        """Return the path of a file with these client configurations."""
        lines = [f"{name.replace('_', '.')}={text}".replace("\n", "\\n") for name, text in texts.items()]
        return written(self.folder / f"{uuid4().hex}.properties", "\n".join(lines))

    def run(self, address: str, config: str | None, *arguments: str, lines: str = "", status: int = 0) -> str:
        given = self.folder / "standard input"
        given.write_text(lines)
        more = [] if config is None else ["--command-config", config]
        with given.open() as stream:
            self._monkeypatch.setattr(sys, "stdin", stream)
            returned = main([*arguments, "--bootstrap-server", address, *more])
        captured = self._capfd.readouterr()
        errors = own(captured.err)
        assert returned == status, errors
        assert errors.count("\n") == (1 if status else 0), errors
        return errors if status else captured.out


@pytest.fixture
def terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(tmp_path, capfd, monkeypatch)


def test_records_are_unchanged_over_tls(secured: Secured, terminal: Terminal) -> None:
    address, config, topic = secured.addresses[OPEN], terminal.config(**trusting(secured)), f"t-{uuid4().hex}"
    terminal.run(address, config, "topic", "create", topic, "--partitions", "3")
    lines = [f"{number}:{'x' * (number % 500)}" for number in range(20_000)]
    lines += ["large:" + "y" * 900_000, "larger:" + os.urandom(450_000).hex()]
    terminal.run(address, config, "produce", topic, lines="\n".join(lines) + "\n")
    assert sorted(terminal.run(address, config, "consume", topic).splitlines()) == sorted(lines)
    grouped = terminal.run(address, config, "consume", topic, "--group", f"g-{topic}")
    assert sorted(grouped.splitlines()) == sorted(lines)


def test_mutual_tls_authenticates_both_sides(secured: Secured, terminal: Terminal) -> None:
    address = secured.addresses[MUTUAL]
    mine = keystore(secured.authority.known("me", common_name="me and nobody else"))
    assert "topic" in terminal.run(address, terminal.config(**trusting(secured), **mine), "topic", "list")
    if secured.proxies:
        subject = secured.proxies[MUTUAL].subjects[-1]
        assert subject is not None
        assert subject.startswith("CN=me and nobody else,")


def test_a_pkcs12_keystore_is_used(secured: Secured, terminal: Terminal, tmp_path: Path) -> None:
    config = terminal.config(
        **{
            "security.protocol": "SSL",
            "ssl.truststore.location": written(tmp_path / "trust.p12", secured.authority.pkcs12()),
            "ssl.truststore.password": PASSWORD,
            "ssl.keystore.location": written(tmp_path / "me.p12", secured.authority.known("me").pkcs12()),
            "ssl.keystore.password": PASSWORD,
        }
    )
    assert "topic" in terminal.run(secured.addresses[MUTUAL], config, "topic", "list")


def refused(terminal: Terminal, address: str, status: int = 1, **texts: str) -> str:
    return terminal.run(address, terminal.config(**texts), "topic", "list", status=status)


def test_a_missing_client_certificate_is_reported(secured: Secured, terminal: Terminal) -> None:
    address = secured.addresses[MUTUAL]
    expected = "the broker requires a client certificate: set ssl.keystore.location"
    if not secured.proxies:  # Java's server uses one alert for every rejected certificate.
        expected = "the broker rejected the client certificate: certificate not accepted"
    assert (
        refused(terminal, address, **trusting(secured)) == f"odradek: TLS handshake with {address} failed: {expected}\n"
    )


def test_an_untrusted_client_certificate_is_reported(secured: Secured, terminal: Terminal) -> None:
    address = secured.addresses[MUTUAL]
    output = refused(terminal, address, **trusting(secured), **keystore(Authority().known("me")))
    assert output.startswith(
        f"odradek: TLS handshake with {address} failed: the broker rejected the client certificate: "
    )


def test_an_untrusted_broker_is_reported(secured: Secured, terminal: Terminal) -> None:
    address = secured.addresses[OPEN]
    texts = trusting(secured) | {"ssl.truststore.certificates": Authority().pem}
    assert refused(terminal, address, **texts) == (
        f"odradek: TLS handshake with {address} failed: the broker's certificate is not trusted: "
        "unable to get local issuer certificate\n"
    )


def test_a_broker_certificate_for_another_host_is_reported(secured: Secured, terminal: Terminal) -> None:
    address = secured.addresses[OPEN].replace("localhost", "127.0.0.1")
    assert refused(terminal, address, **trusting(secured)) == (
        f"odradek: TLS handshake with {address} failed: the broker's certificate does not match the address: "
        "certificate is not valid for '127.0.0.1'\n"
    )
    anyone = terminal.config(**trusting(secured, ssl_endpoint_identification_algorithm=""))
    assert "topic" in terminal.run(address, anyone, "topic", "list")


def test_an_expired_broker_certificate_is_reported(secured: Secured, terminal: Terminal) -> None:
    address = secured.addresses[EXPIRED]
    assert refused(terminal, address, **trusting(secured)) == (
        f"odradek: TLS handshake with {address} failed: the broker's certificate is not trusted: "
        "certificate has expired\n"
    )


def test_a_plain_text_listener_is_reported(secured: Secured, terminal: Terminal) -> None:
    assert refused(terminal, secured.plain, **trusting(secured)) == (
        f"odradek: {secured.plain} closed the connection during the TLS handshake; is it an SSL listener?\n"
    )


def test_a_plain_text_client_is_reported(secured: Secured, terminal: Terminal) -> None:
    output = terminal.run(secured.addresses[OPEN], None, "topic", "list", status=1)
    assert "plaintext" in output
    if secured.proxies:
        assert secured.proxies[OPEN].failures[-1] == "the client does not use TLS, but this listener requires it"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (
            {"ssl.truststore.location": "/no/such.pem"},
            "ssl.truststore.location /no/such.pem: no such",
        ),
        (
            {"ssl.keystore.location": "{jks}"},
            "broker.jks is a JKS store, which is not supported; convert it",
        ),
        (
            {"ssl.keystore.location": "{p12}", "ssl.keystore.password": "wr0ng"},
            "option ssl.keystore.password does not open",
        ),
        ({"ssl.truststore.type": "JCEKS"}, "option ssl.truststore.type is JCEKS: it must be PEM or PKCS12"),
        ({"sasl.mechanism": "PLAIN"}, "option sasl.mechanism is not supported"),
    ],
)
def test_an_invalid_configuration_is_reported(
    secured: Secured, terminal: Terminal, tmp_path: Path, texts: dict[str, str], words: str
) -> None:
    places = {
        "{jks}": written(tmp_path / "broker.jks", b"\xfe\xed\xfe\xed\0\0\0\2"),
        "{p12}": written(tmp_path / "me.p12", secured.authority.known("me").pkcs12()),
    }
    given = {name: places.get(text, text) for name, text in texts.items()}
    output = refused(terminal, secured.addresses[OPEN], status=2, **{"security.protocol": "SSL"} | given)
    assert words in output
    assert "wr0ng" not in output


def test_a_missing_configuration_file_is_reported(secured: Secured, terminal: Terminal) -> None:
    output = terminal.run(secured.plain, "/no/such.properties", "topic", "list", status=2)
    assert output == "odradek: Cannot read the configuration file /no/such.properties: No such file or directory\n"


def test_a_rejected_certificate_is_not_retried(secured: Secured) -> None:
    """Without connect(), as in a Spark task, the client waits for a restarting broker, but not for a certificate."""
    options: dict[str, Any] = trusting(secured) | {"bootstrap.servers": secured.addresses[EXPIRED]}
    with Cluster(ClientConfig.from_options(options, "")) as cluster, pytest.raises(TlsRefused, match="has expired"):
        cluster.topics()
