from __future__ import annotations

import logging
import pickle

import pytest

from odradek.client.connection.client_config import READ_COMMITTED, ClientConfig, addresses
from odradek.client.connection.client_errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", (("a", 1),)),
        (" a:1 , b:65535,", (("a", 1), ("b", 65535))),
        ("[::1]:9092", (("::1", 9092),)),
        ("PLAINTEXT://kafka.example:9092", (("kafka.example", 9092),)),
    ],
)
def test_bootstrap_addresses_are_parsed(text: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert addresses(text) == expected


@pytest.mark.parametrize("text", ["", " , ", "a", "a:", ":1", "a:0", "a:65536", "a:-1", "a:x", "::1:9092", "a:¹"])
def test_bad_addresses_are_refused_when_the_config_is_made(text: str) -> None:
    with pytest.raises(ConfigurationError):
        ClientConfig(text)


def test_options_of_kafka_clients_are_accepted() -> None:
    config = ClientConfig.from_options(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "Kafka.Client.Id": "me",
            "kafka.isolation.level": "READ_COMMITTED",
            "kafka.request.timeout.ms": "5000",
            "kafka.max.partition.fetch.bytes": "2097152",
            "kafka.fetch.max.bytes": "1000",
            "kafka.fetch.max.wait.ms": "0",
            "subscribe": "not one of ours",
        }
    )
    assert config.addresses == (("a", 1), ("b", 2))
    assert (config.client_id, config.isolation_level, config.request_timeout_ms) == ("me", READ_COMMITTED, 5000)
    assert (config.max_partition_fetch_bytes, config.fetch_max_bytes, config.fetch_max_wait_ms) == (2097152, 1000, 0)


SSL = {"kafka.bootstrap.servers": "a:1", "kafka.security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "a"}, "host:port"),
        ({"kafka.bootstrap.servers": "a:1", "kafka.security.protocol": "SASL_SSL"}, "PLAINTEXT and SSL"),
        ({"kafka.bootstrap.servers": "a:1", "kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.mechanism is not supported"),
        (
            {"kafka.bootstrap.servers": "a:1", "kafka.ssl.truststore.location": "x"},
            r"option kafka\.ssl\.truststore\.location requires kafka\.security\.protocol=SSL",
        ),
        (SSL | {"kafka.ssl.trustore.location": "x"}, r"unknown option kafka\.ssl\.trustore\.location"),
        (SSL | {"kafka.ssl.protocol": "SSL"}, r"^option kafka\.ssl\.protocol is 'SSL'"),
        (SSL | {"kafka.ssl.engine.factory.class": "a.B"}, "is a Java class"),
        ({"kafka.bootstrap.servers": "a:1", "kafka.request.timeout.ms": "soon"}, "must be an integer"),
        ({"kafka.bootstrap.servers": "a:1", "kafka.fetch.max.bytes": "0"}, "between 1 and"),
        ({"kafka.bootstrap.servers": "a:1", "kafka.isolation.level": "serializable"}, "read_committed"),
    ],
)
def test_invalid_option_is_refused_with_the_reason(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        ClientConfig.from_options(options)


def test_options_without_effect_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ClientConfig.from_options({"kafka.bootstrap.servers": "a:1", "kafka.session.timeout.ms": "1"})
    assert "kafka.session.timeout.ms" in caplog.text


def test_plaintext_can_be_configured() -> None:
    assert ClientConfig.from_options({"bootstrap.servers": "a:1", "security.protocol": "plaintext"}, prefix="")


def test_config_can_be_pickled() -> None:
    config = ClientConfig("a:1", isolation_level=READ_COMMITTED)
    assert pickle.loads(pickle.dumps(config)) == config


def test_tls_config_can_be_pickled_and_shows_no_secret() -> None:
    texts = {"kafka.ssl.keystore.type": "PKCS12", "kafka.ssl.keystore.location": "/k.p12"}
    config = ClientConfig.from_options(SSL | texts | {"kafka.ssl.keystore.password": "hunter2"})
    copied = pickle.loads(pickle.dumps(config))
    assert copied == config
    assert copied.tls is not None
    assert copied.tls.keystore.password is not None
    assert copied.tls.keystore.password.reveal() == "hunter2"
    assert "hunter2" not in f"{config} {config!r} {copied!r} {config.tls}"


def test_java_only_options_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ClientConfig.from_options(SSL | {"kafka.ssl.provider": "SunJSSE"})
    assert "ignored option kafka.ssl.provider" in caplog.text
