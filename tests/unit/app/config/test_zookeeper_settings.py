"""Session settings from the zookeeper.* keys, and the error message for each invalid configuration."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.app.config.zookeeper_settings import ZooKeeperSettings, zookeeper_settings
from odradek.coordination.zookeeper_access import OPEN, Scheme
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError
from support.certificates import PASSWORD, Authority, Known, written

pytest.importorskip("kazoo", reason="ZooKeeper is reached through kazoo.")

CONNECT = "zookeeper.connect"
NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
ENABLED = {"zookeeper.ssl.client.enable": "true", "zookeeper.clientCnxnSocket": NETTY}
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


def settings(texts: dict[str, str] | None = None, **named: str) -> ZooKeeperSettings:
    given = {CONNECT: "127.0.0.1:2181/kafka"} | {name.replace("_", "."): text for name, text in named.items()}
    return zookeeper_settings(BrokerConfigs.parse(given | (texts or {})))


def refused(texts: dict[str, str] | None = None, **named: str) -> str:
    with pytest.raises(ConfigError) as raised:
        settings(texts, **named)
    return str(raised.value)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def client(authority: Authority) -> Known:
    return authority.known("client.example")


def test_defaults_match_kafka() -> None:
    assert settings() == ZooKeeperSettings("127.0.0.1:2181/kafka", 18_000, 18_000, 10, OPEN)


def test_connection_timeout_defaults_to_the_session_timeout() -> None:
    found = settings(zookeeper_session_timeout_ms="6000")
    assert (found.session_timeout_ms, found.connection_timeout_ms) == (6_000, 6_000)
    found = settings(zookeeper_session_timeout_ms="6000", zookeeper_connection_timeout_ms="20000")
    assert (found.session_timeout_ms, found.connection_timeout_ms) == (6_000, 20_000)
    assert settings({"zookeeper.max.in.flight.requests": "100"}).reads_in_flight == 100


@pytest.mark.parametrize("text", ["a", "a:1,b:2/c/d", "[::1]:2181", " a:1 , b:2 "])
def test_connect_strings_are_accepted(text: str) -> None:
    assert settings({CONNECT: text}).connect == text.replace(" ", "")


def test_empty_chroot_is_removed() -> None:
    assert settings({CONNECT: "a:1/"}).connect == "a:1"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "zookeeper.connect must be host:port,host:port/chroot, but it contains no server."),
        ("/kafka", "zookeeper.connect must be host:port,host:port/chroot, but it contains no server."),
        ("a:1,,b:1", "zookeeper.connect must be host:port,host:port/chroot, but '' is not host:port."),
        ("a:x", "zookeeper.connect must be host:port,host:port/chroot, but 'a:x' is not host:port."),
        ("a:0", "zookeeper.connect must be host:port,host:port/chroot, but 'a:0' is not host:port."),
        ("a..b:1", "zookeeper.connect must be host:port,host:port/chroot, but 'a..b:1' is not host:port."),
        ("a:65536", "zookeeper.connect must be host:port,host:port/chroot, but 'a:65536' is not host:port."),
        ("a:1/kafka/", "Invalid chroot in zookeeper.connect: /kafka/: a path must not end with /."),
    ],
)
def test_invalid_connect_string_is_refused(text: str, sentence: str) -> None:
    assert refused({CONNECT: text}) == sentence


@pytest.mark.parametrize("name", ["zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms"])
def test_timeout_of_zero_is_refused(name: str) -> None:
    assert refused({name: "0"}) == f"Invalid value 0 for configuration {name}: it must be at least 1."


# The identity of a broker.


def jaas(tmp_path: Path, options: str = 'username="u" password="p:w"', section: str = "Client") -> dict[str, str]:
    text = f"KafkaServer {{ a.B required; }};\n{section} {{ {DIGEST_MODULE} required {options}; }};\n"
    return {"java.security.auth.login.config": written(tmp_path / "jaas.conf", text)}


def test_credentials_are_read_from_a_jaas_file(tmp_path: Path) -> None:
    pytest.importorskip("puresasl", reason="DIGEST-MD5 is pure-sasl's.")
    for section in ("Client", "Zoo"):
        texts = jaas(tmp_path, section=section) | {"zookeeper.sasl.clientconfig": section}
        found = settings(texts, zookeeper_set_acl="true").access
        assert found.credentials is not None and found.sets_acls
        assert found.credentials[:2] == (Scheme.SASL, "u") and found.credentials.password.reveal() == "p:w"
        assert "p:w" not in repr(found)


def test_jaas_file_without_the_section_gives_no_credentials(tmp_path: Path) -> None:
    assert settings(jaas(tmp_path, section="KafkaClient")).access == OPEN


def test_digest_credentials_are_parsed() -> None:
    found = settings({"odradek.zookeeper.auth": "digest:u:p:w"}).access.credentials
    assert found is not None
    assert found[:2] == (Scheme.DIGEST, "u") and found.password.reveal() == "p:w"


@pytest.mark.parametrize("text", ["u:p", "digest:u", "digest:u:", "digest::p", "sasl:u:p"])
def test_invalid_digest_credentials_are_refused(text: str) -> None:
    assert refused({"odradek.zookeeper.auth": text}) == "odradek.zookeeper.auth must be digest:USER:PASSWORD."


def test_unusable_jaas_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    assert refused(jaas(tmp_path, 'username="u"')) == f"Section Client of {file} has no password."
    assert refused(jaas(tmp_path, "")) == f"Section Client of {file} has no username and no password."
    texts = jaas(tmp_path)
    file.write_text("Client { com.sun.security.auth.module.Krb5LoginModule required; };")
    assert refused(texts) == (
        f"Section Client of {file} has the unsupported login module com.sun.security.auth.module.Krb5LoginModule: "
        f"use {DIGEST_MODULE}."
    )
    assert refused(jaas(tmp_path), zookeeper_sasl_client="false") == (
        f"zookeeper.sasl.client is false, but {file} has a section Client: remove one of them."
    )
    assert refused(jaas(tmp_path) | {"odradek.zookeeper.auth": "digest:u:p"}) == (
        "odradek.zookeeper.auth and java.security.auth.login.config both set this broker's identity at ZooKeeper: "
        "remove one of them."
    )
    file.unlink()
    assert refused(texts) == f"Cannot read the JAAS file {file}: no such file or directory."


def test_acls_require_authentication(tmp_path: Path, authority: Authority, client: Known) -> None:
    advice = "set java.security.auth.login.config, odradek.zookeeper.auth, or zookeeper.ssl.client.enable with "
    assert advice in refused(zookeeper_set_acl="true")
    assert f"config ({tmp_path}/jaas.conf has no section Client), " in refused(
        jaas(tmp_path, section="Zoo"), zookeeper_set_acl="true"
    )
    keystore = {"zookeeper.ssl.keystore.location": written(tmp_path / "own.pem", client.pem)}
    truststore = {"zookeeper.ssl.truststore.location": written(tmp_path / "trusted.pem", authority.pem)}
    assert advice in refused(keystore, zookeeper_set_acl="true")
    assert advice in refused(ENABLED | truststore, zookeeper_set_acl="true")
    assert settings(ENABLED | truststore | keystore, zookeeper_set_acl="true").access.sets_acls
    assert settings({"odradek.zookeeper.auth": "digest:u:p"}, zookeeper_set_acl="true").access.sets_acls


@pytest.mark.waits
@pytest.mark.parametrize(("module", "what"), [("kazoo", "zookeeper.connect"), ("puresasl", "java.security.auth")])
def test_missing_package_is_reported(module: str, what: str, tmp_path: Path) -> None:
    """Runs in a process whose import path lacks the module."""
    program = (
        "import sys; from importlib import util; found = util.find_spec\n"
        f"util.find_spec = lambda name, *more: None if name == {module!r} else found(name, *more)\n"
        "from odradek.app.config.zookeeper_settings import zookeeper_settings\n"
        "from odradek.core.configs.broker_configs import BrokerConfigs\n"
        "from odradek.core.configs.definition import ConfigError\n"
        "try: zookeeper_settings(BrokerConfigs.parse({'zookeeper.connect': 'a:1', sys.argv[1]: sys.argv[2]}))\n"
        "except ConfigError as error: print(error)\n"
    )
    ((name, file),) = jaas(tmp_path).items()
    line = [sys.executable, "-c", program, name, file]
    output = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert output.startswith(what) and f" is set, but {module} is not installed: " in output and output.count("\n") == 1


# TLS.


def test_stores_are_not_read_without_tls() -> None:
    assert settings({"zookeeper.ssl.keystore.location": "/nowhere"}).access == OPEN


def tls(tmp_path: Path, kind: str, content: str | bytes, **more: str) -> dict[str, str]:
    name = "store.pem" if isinstance(content, str) else "store.p12"
    found = {f"zookeeper.ssl.{kind}.location": written(tmp_path / f"{kind}-{name}", content)}
    return ENABLED | found | {f"zookeeper.ssl.{kind}.{key}": text for key, text in more.items()}


def context(texts: dict[str, str]) -> ssl.SSLContext:
    found = settings(texts).access.tls
    assert found is not None
    return found.context()


def test_truststores_of_both_formats_are_read(tmp_path: Path, authority: Authority) -> None:
    for content, more in (
        (authority.pem, {}),
        (authority.pem, {"type": "PEM", "password": "of no use"}),
        (authority.pkcs12(), {"password": PASSWORD}),
        (authority.pkcs12(), {"password": PASSWORD, "type": "PKCS12"}),
    ):
        assert len(context(tls(tmp_path, "truststore", content, **more)).get_ca_certs()) == 1


def test_keystores_of_both_formats_are_read(tmp_path: Path, client: Known) -> None:
    """The password of a PEM store is that of its key, as in ZooKeeper."""
    for content, more in (
        (client.pem, {}),
        (client.chain + client.encrypted_key(), {"password": PASSWORD}),
        (client.pkcs12(), {"password": PASSWORD}),
    ):
        assert context(tls(tmp_path, "keystore", content, **more))


def test_tls_versions_are_configured_as_in_zookeeper(tmp_path: Path, authority: Authority) -> None:
    """As in ZooKeeper: the enabled protocols have precedence; otherwise zookeeper.ssl.protocol applies."""
    trusting = tls(tmp_path, "truststore", authority.pem)
    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    protocol, enabled = "zookeeper.ssl.protocol", "zookeeper.ssl.enabled.protocols"
    for texts, versions in (
        ({}, (old, old)),
        ({protocol: "TLSv1.3"}, (new, new)),
        ({protocol: "TLS"}, (old, new)),
        ({enabled: "TLSv1.3"}, (new, new)),
        ({enabled: "TLSv1.1,TLSv1.2,TLSv1.3"}, (old, new)),
    ):
        found = context(trusting | texts)
        assert (found.minimum_version, found.maximum_version) == versions, texts
    suite = {"zookeeper.ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}
    of_tls_12 = {each["name"] for each in context(trusting | suite).get_ciphers() if each["protocol"] != "TLSv1.3"}
    assert of_tls_12 == {"ECDHE-RSA-AES256-GCM-SHA384"}


def test_host_name_is_verified_unless_disabled(tmp_path: Path, authority: Authority) -> None:
    trusting = tls(tmp_path, "truststore", authority.pem)
    assert context(trusting).check_hostname
    unchecked = context(trusting | {"zookeeper.ssl.endpoint.identification.algorithm": ""})
    assert not unchecked.check_hostname and unchecked.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (
            {"zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO"},
            "zookeeper.clientCnxnSocket is org.apache.zookeeper.ClientCnxnSocketNIO, which uses plaintext, but "
            f"zookeeper.ssl.client.enable is true: set {NETTY}.",
        ),
        (
            {"zookeeper.ssl.crl.enable": "true"},
            "zookeeper.ssl.crl.enable is true, but certificate revocation checks are not supported: remove it.",
        ),
        (
            {"zookeeper.ssl.ocsp.enable": "true"},
            "zookeeper.ssl.ocsp.enable is true, but certificate revocation checks are not supported: remove it.",
        ),
        ({"zookeeper.ssl.protocol": "TLSv1.1"}, "zookeeper.ssl.protocol is 'TLSv1.1': it must be TLSv1.3 or TLSv1.2."),
        (
            {"zookeeper.ssl.enabled.protocols": "SSLv3"},
            "zookeeper.ssl.enabled.protocols contains 'SSLv3': it can contain ",
        ),
        ({"zookeeper.ssl.keystore.type": "BCFKS"}, "zookeeper.ssl.keystore.type is BCFKS: it must be PEM or PKCS12."),
        (
            {"zookeeper.ssl.endpoint.identification.algorithm": "LDAPS"},
            "zookeeper.ssl.endpoint.identification.algorithm is 'LDAPS': it must be https, or empty",
        ),
        (
            {"zookeeper.ssl.truststore.location": "/nowhere"},
            "Failed to read zookeeper.ssl.truststore.location /nowhere: no such file or directory.",
        ),
    ],
)
def test_invalid_tls_configs_are_refused(texts: dict[str, str], sentence: str) -> None:
    assert refused(ENABLED | texts).startswith(sentence)


def test_unusable_store_is_refused(tmp_path: Path, client: Known, authority: Authority) -> None:
    where = f"zookeeper.ssl.keystore.location {tmp_path}/keystore-store"
    assert refused(tls(tmp_path, "keystore", client.pkcs12(), password="no")) == (
        f"zookeeper.ssl.keystore.password does not open {where}.p12, or it is not a PKCS12 store."
    )
    assert refused(tls(tmp_path, "keystore", client.pkcs12())).startswith(
        f"{where}.p12 requires a password, set zookeeper.ssl.keystore.password"
    )
    locked = client.chain + client.encrypted_key()
    assert refused(tls(tmp_path, "keystore", locked)) == (
        f"The private key in {where}.pem is encrypted: set zookeeper.ssl.keystore.password."
    )
    assert refused(tls(tmp_path, "keystore", locked, password="no")).startswith(
        f"{where}.pem: zookeeper.ssl.keystore.password does not decrypt the private key"
    )
    assert refused(tls(tmp_path, "keystore", client.chain)) == f"{where}.pem contains no private key."
    assert "is a JKS store, which is not supported; convert it with: keytool" in refused(
        tls(tmp_path, "truststore", b"\xfe\xed\xfe\xed")
    )
    assert "set zookeeper.ssl.truststore.type=PEM" in refused(tls(tmp_path, "truststore", authority.pem, type="PKCS12"))
