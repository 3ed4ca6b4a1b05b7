"""TLS listeners in a broker's configuration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from odradek.app.config.listener_config import SecurityProtocol
from odradek.app.config.listener_tls import contexts_of
from odradek.app.config.server_config import Settings, settings
from odradek.core.configs.definition import ConfigError
from odradek.tls.tls_config import ClientAuth
from support.certificates import Authority, written
from support.serving import outcome_of_serve

LOCAL = {"listeners": "SSL://127.0.0.1:9093"}


def test_listener_uses_its_own_keys_and_the_general_ones() -> None:
    read = settings(
        {
            "listeners": "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:2,OUTSIDE://127.0.0.1:3",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,OUTSIDE:SSL",
            "ssl.keystore.location": "/all.p12",
            "ssl.keystore.password": "hunter2",
            "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "listener.name.outside.ssl.keystore.location": "/outside.p12",
            "listener.name.outside.ssl.client.auth": "required",
        }
    )
    assert [listener.protocol for listener in read.listeners][1:] == [SecurityProtocol.SSL, SecurityProtocol.SSL]
    assert set(read.tls) == {"SSL", "OUTSIDE"}
    inside, outside = read.tls["SSL"], read.tls["OUTSIDE"]
    assert (inside.keystore.location, outside.keystore.location) == ("/all.p12", "/outside.p12")
    assert (inside.client_auth, outside.client_auth) == (ClientAuth.NONE, ClientAuth.REQUIRED)
    assert inside.keystore.password == outside.keystore.password
    assert len(inside.cipher_suites) == 2
    assert outside.named("ssl.keystore.location") == "listener.name.outside.ssl.keystore.location"
    assert outside.named("ssl.keystore.password") == "ssl.keystore.password"
    assert read.without_effect == ()
    assert "hunter2" not in repr(read)


@pytest.mark.waits
def test_plaintext_broker_loads_no_tls_modules(tmp_path: Path) -> None:
    code = (
        "import sys, odradek.app.serve.server\n"
        "from odradek.app.config.server_config import settings\n"
        "settings({})\n"
        "tls = ('odradek.tls', 'odradek.net.clients.secure_connection')\n"
        "print([name for name in sys.modules if name.startswith(tls)])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "[]\n"


def test_keys_without_effect_are_named() -> None:
    texts = {
        "ssl.provider": "SunJSSE",
        "listener.name.other.ssl.client.auth": "required",
        "ssl.secure.random.implementation": "x",
    }
    assert settings(LOCAL | texts).without_effect == tuple(sorted(texts))


def test_network_listener_requires_client_authentication() -> None:
    def bound(**texts: str) -> Settings:
        return settings({"listeners": "SSL://:9093"} | {name.replace("_", "."): text for name, text in texts.items()})

    for auth in ("none", "requested"):
        with pytest.raises(
            ConfigError, match=r"SSL://:9093 accepts unauthenticated .* set ssl\.client\.auth=required, or pass"
        ):
            bound(ssl_client_auth=auth)
    assert bound(ssl_client_auth="required").tls
    assert bound(listener_name_ssl_ssl_client_auth="required").tls
    assert settings({"listeners": "SSL://:9093"}, insecure=True).tls


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"ssl.protocol": "SSL"}, r"^ssl\.protocol is 'SSL'"),
        ({"listener.name.ssl.ssl.protocol": "SSL"}, r"^listener\.name\.ssl\.ssl\.protocol is 'SSL'"),
        ({"ssl.engine.factory.class": "a.B"}, "is a Java class"),
    ],
)
def test_invalid_tls_configuration_prevents_the_start(texts: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings(LOCAL | texts)


def test_describing_a_broker_shows_no_secret() -> None:
    read = settings(
        LOCAL
        | {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": "hunter2",
            "ssl.keystore.certificate.chain": "hunter2",
            "listener.name.ssl.ssl.key.password": "hunter2",
        }
    )
    entries = {entry.name: entry for entry in read.configs.describe()}
    for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain", "listener.name.ssl.ssl.key.password"):
        assert entries[name].value is None
        assert entries[name].sensitive
        assert all(synonym.value is None for synonym in entries[name].synonyms)
    assert "hunter2" not in repr(entries)


@pytest.mark.waits
def test_stores_are_read_before_anything_is_touched(tmp_path: Path) -> None:
    jks = written(tmp_path / "broker.jks", b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(ConfigError, match="is a JKS store"):
        contexts_of(settings(LOCAL | {"ssl.keystore.location": jks}).tls)
    known = Authority().known()
    pem = {"ssl.keystore.location": written(tmp_path / "broker.pem", known.pem), "ssl.keystore.type": "PEM"}
    assert contexts_of(settings(LOCAL | pem).tls).keys() == {"SSL"}

    overrides = [f"--override={name}={text}" for name, text in {**LOCAL, "ssl.keystore.location": jks}.items()]
    status, output = outcome_of_serve(tmp_path, *overrides)
    assert (status, output.count("\n")) == (2, 1)
    assert output.startswith(f"odradek serve: ssl.keystore.location {jks} is a JKS store")
    assert not (tmp_path / "odradek-data").exists()
