"""TLS settings of a listener altered while it serves: the next connection of a real client uses them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.base.errors import ErrorCode
from support.certificates import PASSWORD, Authority, Known, written
from support.configuring import BROKER, DELETE, SET, altered
from support.ports import free_port
from support.raw_client import RawClient
from support.serving import Serving

DONE = (ErrorCode.NONE, "")
PREFIX = "listener.name.safe.ssl."


class Broker:
    """A broker with a TLS listener, and a plain-text one to alter it through."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.secure, self.plain = free_port(), free_port()
        self.serving = Serving(
            folder,
            **{
                "broker.id": "1",
                "listeners": f"SAFE://127.0.0.1:{self.secure},PLAINTEXT://127.0.0.1:{self.plain}",
                "listener.security.protocol.map": "SAFE:SSL,PLAINTEXT:PLAINTEXT",
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": self.store(self.authority.known("localhost", common_name="first")),
                "ssl.keystore.password": PASSWORD,
                "password.encoder.secret": "of-the-encoder",
            },
        )

    def store(self, known: Known) -> str:
        return written(self.folder / f"{len(list(self.folder.iterdir()))}.p12", known.pkcs12())

    def alter(self, **values: str | None) -> tuple[ErrorCode, str]:
        edits = [
            (PREFIX + name.replace("_", "."), DELETE if value is None else SET, value) for name, value in values.items()
        ]
        with RawClient(self.plain) as client:
            return altered(client, BROKER, "1", *edits)

    def common_name(self, known: Known | None = None, version: ssl.TLSVersion | None = None) -> str | None:
        """Connect, with a certificate or without; return the name in the broker's certificate, or None if refused."""
        context = ssl.create_default_context(cadata=self.authority.pem)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if known is not None:
            path = written(self.folder / "client.pem", known.pkcs8_key() + known.chain)
            context.load_cert_chain(path)
        try:
            with (
                socket.create_connection(("127.0.0.1", self.secure), 30) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as secure,
            ):
                certificate: Any = secure.getpeercert()
                secure.sendall(bytes.fromhex("0000000f001200000000000100057465737473"))  # ApiVersions 0.
                if not secure.recv(4):
                    return None
        except (ssl.SSLError, ConnectionError):
            return None
        return str(dict(one[0] for one in certificate["subject"])["commonName"])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    with made.serving:
        yield made


def test_a_new_keystore_file_is_used(broker: Broker) -> None:
    assert broker.common_name() == "first"
    second = broker.store(broker.authority.known("localhost", common_name="second"))
    assert broker.alter(keystore_location=second) == DONE
    assert broker.common_name() == "second"


def test_pem_stores_in_the_configuration_are_used(broker: Broker) -> None:
    third = broker.authority.known("localhost", common_name="third")
    pem = {
        "keystore_type": "PEM",
        "keystore_location": "",
        "keystore_password": "",
        "keystore_certificate_chain": third.chain,
        "keystore_key": third.pkcs8_key(),
    }
    assert broker.alter(**pem) == DONE
    assert broker.common_name() == "third"


def test_client_auth_and_truststore_are_altered(broker: Broker) -> None:
    other = Authority()
    ours, theirs = broker.authority.known("one"), other.known("one")
    trust = {"truststore_type": "PEM", "truststore_certificates": broker.authority.pem}
    assert broker.alter(client_auth="required", **trust) == DONE
    assert broker.common_name() is None
    assert broker.common_name(ours) == "first"
    assert broker.common_name(theirs) is None
    assert broker.alter(truststore_certificates=other.pem) == DONE
    assert broker.common_name(theirs) == "first"
    assert broker.common_name(ours) is None
    assert broker.alter(client_auth="none") == DONE
    assert broker.common_name() == "first"


def test_protocol_versions_and_ciphers_are_altered(broker: Broker) -> None:
    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    assert (broker.common_name(version=old), broker.common_name(version=new)) == ("first", "first")
    assert broker.alter(enabled_protocols="TLSv1.3") == DONE
    assert (broker.common_name(version=old), broker.common_name(version=new)) == (None, "first")
    assert broker.alter(enabled_protocols="TLSv1.2", cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256") == DONE
    assert broker.common_name(version=new) is None
    assert broker.alter(enabled_protocols=None, cipher_suites=None) == DONE
    assert (broker.common_name(version=old), broker.common_name(version=new)) == ("first", "first")
