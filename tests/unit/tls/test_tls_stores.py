"""Stores of every type that Kafka's keys support, and errors of stores that cannot be read."""

from __future__ import annotations

import logging
import pickle
import ssl
from pathlib import Path

import pytest

from odradek.tls import ssl_contexts as contexts
from odradek.tls import stores
from odradek.tls.ssl_contexts import Contexts, client_context, server_context
from odradek.tls.tls_config import ClientAuth, Names, TlsConfig
from odradek.tls.tls_errors import TlsConfigError, TlsFailed
from odradek.tls.tls_session import Session
from support.certificates import PASSWORD, Authority, Known, written

KEYSTORE, TRUSTSTORE = "ssl.keystore.location", "ssl.truststore.location"


def handshake(server: TlsConfig, client: TlsConfig, host_name: str = "localhost") -> tuple[Session, Session]:
    """Return both sessions after the handshake, or raise TlsFailed."""
    one = Session(server_context(server))
    other = Session(client_context(client), is_server=False, host_name=host_name)
    exchange(one, other)
    return one, other


def exchange(one: Session, other: Session) -> None:
    failed: TlsFailed | None = None
    while one.bytes_to_send or other.bytes_to_send:
        for source, target in ((one, other), (other, one)):
            try:
                if data := source.data_to_send():
                    target.receive(data)
            except TlsFailed as reason:
                failed = failed or reason
    if failed is not None:
        raise failed


def folded(pem: str) -> str:
    """Return the text as a single line, as in a properties file."""
    return " ".join(pem.split("\n"))


@pytest.fixture
def trusting(authority: Authority) -> TlsConfig:
    return TlsConfig.parse({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem})


def texts_of(kind: str, known: Known, folder: Path) -> dict[str, str]:
    pem = {"ssl.keystore.type": "PEM"}
    pkcs12 = {"ssl.keystore.type": "PKCS12", "ssl.keystore.password": PASSWORD}
    return {
        "pem file": lambda: {**pem, KEYSTORE: written(folder / "a.pem", known.pem)},
        "key first": lambda: {**pem, KEYSTORE: written(folder / "a.pem", known.key + "\ntext\n" + known.chain)},
        "encrypted": lambda: {
            **pem,
            KEYSTORE: written(folder / "a.pem", known.chain + known.encrypted_key()),
            "ssl.key.password": PASSWORD,
        },
        "encrypted long ago": lambda: {
            **pem,
            KEYSTORE: written(folder / "a.pem", known.chain + known.old_encrypted_key()),
            "ssl.key.password": PASSWORD,
        },
        "texts": lambda: {**pem, "ssl.keystore.certificate.chain": known.chain, "ssl.keystore.key": known.key},
        "texts in a line": lambda: {
            **pem,
            "ssl.keystore.certificate.chain": folded(known.chain),
            "ssl.keystore.key": folded(known.encrypted_key()),
            "ssl.key.password": PASSWORD,
        },
        "pkcs12": lambda: {**pkcs12, KEYSTORE: written(folder / "a.p12", known.pkcs12())},
        "pkcs12 called jks": lambda: {
            "ssl.keystore.password": PASSWORD,
            KEYSTORE: written(folder / "a.p12", known.pkcs12()),
        },
    }[kind]()


@pytest.mark.parametrize(
    "kind",
    [
        "pem file",
        "key first",
        "encrypted",
        "encrypted long ago",
        "texts",
        "texts in a line",
        "pkcs12",
        "pkcs12 called jks",
    ],
)
def test_keystore_of_each_type_is_used(kind: str, broker: Known, trusting: TlsConfig, tmp_path: Path) -> None:
    server, client = handshake(TlsConfig.parse(texts_of(kind, broker, tmp_path)), trusting)
    server.write(b"there")
    client.receive(server.data_to_send())
    assert client.read() == b"there"


def test_certificate_chain_is_complete_for_any_order_in_the_store(tmp_path: Path) -> None:
    authority = Authority(between=True)
    known = authority.known()
    keystore = {KEYSTORE: written(tmp_path / "a.p12", known.pkcs12()), "ssl.keystore.password": PASSWORD}
    trust = {TRUSTSTORE: written(tmp_path / "t.p12", authority.pkcs12()), "ssl.truststore.password": PASSWORD}
    handshake(TlsConfig.parse(keystore), TlsConfig.parse(trust))
    own = stores.identity(TlsConfig.parse(keystore))
    assert own is not None
    assert own.chain == known.chain


def test_leaf_certificate_in_a_truststore_is_trusted(broker: Known, tmp_path: Path) -> None:
    leaf = broker.chain.partition("-----END CERTIFICATE-----\n")
    trust = {"ssl.truststore.type": "PEM", TRUSTSTORE: written(tmp_path / "t.pem", leaf[0] + leaf[1])}
    handshake(TlsConfig.parse(texts_of("texts", broker, tmp_path)), TlsConfig.parse(trust))


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (
            {"ssl.keystore.type": "PEM", KEYSTORE: "/no/such"},
            r"Failed to read ssl\.keystore\.location /no/such: no",
        ),
        ({"ssl.keystore.type": "BCFKS", KEYSTORE: "/x"}, r"ssl\.keystore\.type is BCFKS: it must be PEM or PKCS12"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "k"}, r"ssl\.keystore\.key is set without ssl\.keystore\.ce"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "k"}, r"chain is set without ssl\.keystore\."),
        (
            {"ssl.keystore.certificate.chain": "k", "ssl.keystore.key": "k"},
            r"ssl\.keystore\.key is set, but ssl\.keystore\.type is JKS: set it to PEM",
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "k", "ssl.keystore.key": "k"},
            r"ssl\.keystore\.key contains no private key",
        ),
        ({"ssl.keystore.type": "PEM", KEYSTORE: "/x", "ssl.keystore.password": "p"}, "a PEM store has no password"),
        ({"ssl.truststore.type": "PEM", TRUSTSTORE: "/x", "ssl.truststore.certificates": "c"}, "both set"),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1"}, "which is insecure"),
        ({"ssl.enabled.protocols": "SSLv3"}, "contains 'SSLv3'"),
        ({"ssl.protocol": "SSL"}, r"ssl\.protocol is 'SSL'"),
        ({"ssl.client.auth": "maybe"}, "must be required, requested or none"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "must be https, or empty"),
        ({"ssl.engine.factory.class": "com.example.Factory"}, "is a Java class"),
        ({}, r"ssl\.keystore\.location is not set"),
    ],
)
def test_invalid_store_gives_one_sentence(texts: dict[str, str], words: str) -> None:
    with pytest.raises(TlsConfigError, match=words) as caught:
        server_context(TlsConfig.parse(texts))
    assert str(caught.value).count(".\n") == 0
    assert str(caught.value).endswith(".")


def test_jks_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = written(tmp_path / "broker.jks", b"\xfe\xed\xfe\xed\0\0\0\2rest")
    with pytest.raises(TlsConfigError) as caught:
        server_context(TlsConfig.parse({KEYSTORE: path, "ssl.keystore.password": "p"}))
    assert str(caught.value) == (
        f"ssl.keystore.location {path} is a JKS store, which is not supported; convert it with: keytool "
        f"-importkeystore -srckeystore {path} -srcstoretype JKS -destkeystore {tmp_path / 'broker.p12'} "
        "-deststoretype PKCS12"
    )


def test_store_of_another_type_is_refused(broker: Known, tmp_path: Path) -> None:
    pem, store = written(tmp_path / "a.pem", broker.pem), written(tmp_path / "a.p12", broker.pkcs12())
    with pytest.raises(TlsConfigError, match=r"a\.pem is not a PKCS12 store: set ssl\.keystore\.type=PEM"):
        server_context(TlsConfig.parse({KEYSTORE: pem}))
    with pytest.raises(TlsConfigError, match=r"a\.p12 is not a PEM file: set ssl\.keystore\.type=PKCS12"):
        server_context(TlsConfig.parse({KEYSTORE: store, "ssl.keystore.type": "PEM"}))
    with pytest.raises(TlsConfigError, match=r"a\.p12 requires a password, set ssl\.keystore\.password"):
        server_context(TlsConfig.parse({KEYSTORE: store}))


def test_mismatched_key_is_refused(broker: Known, client: Known, tmp_path: Path) -> None:
    path = written(tmp_path / "a.pem", broker.chain + client.key)
    with pytest.raises(TlsConfigError, match=r"a\.pem: the private key does not match the first certificate"):
        server_context(TlsConfig.parse({KEYSTORE: path, "ssl.keystore.type": "PEM"}))
    with pytest.raises(TlsConfigError, match=r"a\.pem contains no certificate"):
        written(tmp_path / "a.pem", broker.key)
        server_context(TlsConfig.parse({KEYSTORE: path, "ssl.keystore.type": "PEM"}))
    with pytest.raises(TlsConfigError, match=r"a\.pem is encrypted: set ssl\.key\.password"):
        written(tmp_path / "a.pem", broker.chain + broker.encrypted_key())
        server_context(TlsConfig.parse({KEYSTORE: path, "ssl.keystore.type": "PEM"}))


def test_errors_and_reprs_show_no_secret(broker: Known, tmp_path: Path) -> None:
    wrong = "wr0ng-passw0rd"
    attempts = [
        {KEYSTORE: written(tmp_path / "a.p12", broker.pkcs12()), "ssl.keystore.password": wrong},
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": broker.chain,
            "ssl.keystore.key": broker.encrypted_key(),
            "ssl.key.password": wrong,
        },
    ]
    lines = broker.encrypted_key().split("\n")[1:-2] + broker.chain.split("\n")[1:2]
    for texts in attempts:
        config = TlsConfig.parse(texts)
        with pytest.raises(TlsConfigError) as caught:
            server_context(config)
        shown = f"{caught.value} {caught.value!r} {config} {config!r} {config.keystore!r}"
        assert not [line for line in (*lines, wrong) if line in shown]
        assert caught.value.__cause__ is None
        copied = pickle.loads(pickle.dumps(config))
        assert copied == config
        assert not [line for line in (*lines, wrong) if line in repr(copied)]
    own = stores.identity(TlsConfig.parse(texts_of("texts", broker, tmp_path)))
    assert broker.key.split("\n")[1] not in repr(own)


def test_private_key_is_never_a_visible_file(broker: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    open_before = sorted(Path("/proc/self/fd").iterdir())
    with contexts._in_memory(b"the key") as path:
        assert Path(path).read_bytes() == b"the key"
        assert str(Path(path).readlink()).startswith("/memfd:")
    assert not Path(path).exists()
    server_context(TlsConfig.parse(texts_of("pkcs12", broker, tmp_path)))
    assert sorted(Path("/proc/self/fd").iterdir()) == open_before
    assert [each.name for each in tmp_path.iterdir()] == ["a.p12"]


def test_errors_use_the_configured_key_names() -> None:
    names = Names("listener.name.outside.", frozenset({KEYSTORE}))
    with pytest.raises(TlsConfigError, match=r"^Failed to read listener\.name\.outside\.ssl\.keystore\.location /no: "):
        server_context(TlsConfig.parse({KEYSTORE: "/no", "ssl.keystore.type": "PEM"}, names))
    with pytest.raises(TlsConfigError, match=r"^ssl\.protocol is"):
        TlsConfig.parse({KEYSTORE: "/no", "ssl.protocol": "x"}, names)
    with pytest.raises(TlsConfigError, match=r"^kafka\.ssl\.protocol is"):
        TlsConfig.parse({"ssl.protocol": "x"}, Names("kafka."))


def test_required_client_certificates_require_a_truststore(broker: Known, tmp_path: Path) -> None:
    texts = texts_of("texts", broker, tmp_path) | {"ssl.client.auth": "required"}
    with pytest.raises(TlsConfigError, match=r"ssl\.client\.auth is required, but ssl\.truststore\.location is not"):
        server_context(TlsConfig.parse(texts))


def test_enabled_protocols_are_negotiated(broker: Known, trusting: TlsConfig, tmp_path: Path) -> None:
    keystore = texts_of("texts", broker, tmp_path)
    old_file = TlsConfig.parse(keystore | {"ssl.enabled.protocols": "TLSv1.2,TLSv1.1,TLSv1", "ssl.protocol": "TLS"})
    assert handshake(old_file, trusting)[0].spoken.startswith("TLSv1.2 ")
    both = TlsConfig.parse(keystore)
    assert handshake(both, trusting)[0].spoken.startswith("TLSv1.3 ")
    newest = TlsConfig.parse(keystore | {"ssl.enabled.protocols": "TLSv1.3"})
    with pytest.raises(TlsFailed, match="no version of TLS is enabled on both sides"):
        handshake(newest, TlsConfig.parse({"ssl.protocol": "TLSv1.2"}))
    with pytest.raises(TlsConfigError, match="no protocol remains"):
        client_context(TlsConfig.parse({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}))


def test_cipher_suites_are_selected_by_javas_names(broker: Known, trusting: TlsConfig, tmp_path: Path) -> None:
    def speaking(suites: str) -> str:
        config = TlsConfig.parse(texts_of("texts", broker, tmp_path) | {"ssl.cipher.suites": suites})
        return handshake(config, trusting)[0].spoken

    every = "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256"
    assert speaking("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256") == "TLSv1.2 ECDHE-ECDSA-AES128-GCM-SHA256"
    assert speaking("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256") == "TLSv1.2 ECDHE-ECDSA-CHACHA20-POLY1305"
    assert speaking("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384") == "TLSv1.2 ECDHE-ECDSA-AES256-SHA384"
    assert speaking(every).startswith("TLSv1.3 TLS_")
    for suites in ("TLS_RSA_WITH_RC4_128_SHA", "ECDHE-ECDSA-AES128-GCM-SHA256", "nonsense"):
        with pytest.raises(TlsConfigError, match="unknown or too weak"):
            speaking(suites)
    with pytest.raises(TlsConfigError, match=r"contains only some of the TLS 1\.3 suites"):
        speaking("TLS_AES_256_GCM_SHA384")


def test_protocol_without_a_cipher_suite_is_refused(broker: Known, tmp_path: Path) -> None:
    texts = texts_of("texts", broker, tmp_path) | {"ssl.enabled.protocols": "TLSv1.3"}
    with pytest.raises(TlsConfigError, match=r"contains no cipher suite of TLSv1\.3"):
        server_context(TlsConfig.parse(texts | {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}))


def test_changed_file_is_reloaded_unless_it_is_invalid(
    authority: Authority, broker: Known, trusting: TlsConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    path = tmp_path / "a.pem"
    config = TlsConfig.parse(texts_of("pem file", broker, tmp_path))
    reloading = Contexts(config, server_context, lambda: now)
    first = reloading.context()

    written(path, authority.known("localhost").pem)
    assert reloading.context() is first, "within a second files are not looked at"
    now = 1.0
    second = reloading.context()
    assert second is not first

    caplog.set_level(logging.ERROR)
    written(path, "half a fi")
    now = 2.0
    assert reloading.context() is second
    assert [record.getMessage() for record in caplog.records] == [
        f"failed to reload {path}; the previous certificates stay in use: "
        f"ssl.keystore.location {path} contains no private key."
    ]
    now = 3.0
    assert reloading.context() is second
    assert len(caplog.records) == 1, "it is said once"

    (tmp_path / "new.pem").write_text(broker.pem)
    (tmp_path / "new.pem").replace(path)
    now = 4.0
    third = reloading.context()
    assert third is not second
    exchange(Session(third), Session(client_context(trusting), is_server=False, host_name="localhost"))


def test_defaults_match_kafka() -> None:
    config = TlsConfig.parse({})
    assert (config.keystore.type, config.truststore.type, config.client_auth) == ("JKS", "JKS", ClientAuth.NONE)
    assert (config.enabled_protocols, config.checks_host_name) == (("TLSv1.2", "TLSv1.3"), True)
    assert not TlsConfig.parse({"ssl.endpoint.identification.algorithm": ""}).checks_host_name
    assert client_context(config).verify_mode is ssl.CERT_REQUIRED
