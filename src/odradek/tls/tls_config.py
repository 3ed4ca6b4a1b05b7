"""Kafka's ssl.* configurations as one frozen value, which pickles, hashes and hides secrets.

Names, types and defaults are Kafka's. Settings that would be less safe than they claim are rejected: a Java class for
the TLS engine, insecure protocols, and PEM text without the store type PEM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from odradek.base.secret import Secret
from odradek.tls.tls_errors import TlsConfigError


class ClientAuth(Enum):
    """A server's policy for client certificates: not requested, optional or required."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


# Kafka's default type is JKS, and Java also reads PKCS12 stores with that type.
DEFAULT_STORE_TYPE = "JKS"
STORE_TYPES = ("PEM", "PKCS12", "JKS")
KNOWN_PROTOCOLS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
SUPPORTED_PROTOCOLS = ("TLSv1.2", "TLSv1.3")

SECRETS = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
    }
)
TEXTS = frozenset(
    {
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
# These select parts of Java, or are rules for principals and dynamic changes that are not supported here.
WITHOUT_EFFECT = frozenset(
    {
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.keymanager.algorithm",
        "ssl.principal.mapping.rules",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
ENGINE_FACTORY = "ssl.engine.factory.class"
KEYS = SECRETS | TEXTS | {ENGINE_FACTORY}


@dataclass(frozen=True, slots=True)
class Store:
    """A source of certificates: a file of some type, or PEM texts; `kind` is keystore or truststore."""

    kind: str
    type: str = DEFAULT_STORE_TYPE
    location: str | None = None
    password: Secret | None = None
    certificates: Secret | None = None  # The chain of a keystore, or the certificates that a truststore trusts.
    key: Secret | None = None
    key_password: Secret | None = None

    @property
    def is_given(self) -> bool:
        return any((self.location, self.certificates, self.key))


@dataclass(frozen=True, slots=True)
class Names:
    """The names of keys as written by the user: with a prefix, for all keys or those in `prefixed`."""

    prefix: str = ""
    prefixed: frozenset[str] | None = None

    def of(self, key: str) -> str:
        return self.prefix + key if self.prefixed is None or key in self.prefixed else key


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The ssl.* configuration of one listener or client; `names` returns its keys as the user wrote them."""

    keystore: Store = Store("keystore")
    truststore: Store = Store("truststore")
    client_auth: ClientAuth = ClientAuth.NONE
    enabled_protocols: tuple[str, ...] = SUPPORTED_PROTOCOLS
    protocol: str = "TLSv1.3"
    cipher_suites: tuple[str, ...] = ()
    checks_host_name: bool = True
    names: Names = Names()

    @classmethod
    def parse(cls, texts: Mapping[str, str], names: Names = Names()) -> TlsConfig:
        """Parse ssl.* keys without a prefix and ignore others, or raise TlsConfigError."""
        written = _ConfigTexts(texts, names)
        if written.text(ENGINE_FACTORY):
            raise TlsConfigError(
                f"{written.named(ENGINE_FACTORY)} is a Java class, which is not supported: remove this key."
            )
        return cls(
            keystore=_keystore(written),
            truststore=_truststore(written),
            client_auth=_client_auth(written),
            enabled_protocols=_enabled_protocols(written),
            protocol=_protocol(written),
            cipher_suites=written.list("ssl.cipher.suites"),
            checks_host_name=_checks_host_name(written),
            names=names,
        )

    def named(self, key: str) -> str:
        """Return the key as the user wrote it."""
        return self.names.of(key)

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files of this configuration."""
        return tuple(store.location for store in (self.keystore, self.truststore) if store.location)


class _ConfigTexts:
    """The texts as the user wrote them, with checked access."""

    def __init__(self, texts: Mapping[str, str], names: Names) -> None:
        self._texts = texts
        self.named = names.of

    def text(self, key: str) -> str | None:
        """Return the key's text; an empty text is None too, as in Kafka for files and passwords."""
        return self._texts.get(key, "").strip() or None

    def is_given(self, key: str) -> bool:
        return key in self._texts

    def secret(self, key: str) -> Secret | None:
        text = self.text(key)
        return None if text is None else Secret(text)

    def list(self, key: str) -> tuple[str, ...]:
        return tuple(filter(None, (part.strip() for part in (self.text(key) or "").split(","))))


def _keystore(written: _ConfigTexts) -> Store:
    chain, key = written.secret("ssl.keystore.certificate.chain"), written.secret("ssl.keystore.key")
    store = Store(
        "keystore",
        _store_type(written, "ssl.keystore.type"),
        written.text("ssl.keystore.location"),
        written.secret("ssl.keystore.password"),
        chain,
        key,
        written.secret("ssl.key.password"),
    )
    if (chain is None) != (key is None):
        present, missing = "ssl.keystore.key", "ssl.keystore.certificate.chain"
        if key is None:
            present, missing = missing, present
        raise TlsConfigError(f"{written.named(present)} is set without {written.named(missing)}: set both.")
    _check_pem_texts(written, store, "ssl.keystore.key")
    return store


def _truststore(written: _ConfigTexts) -> Store:
    store = Store(
        "truststore",
        _store_type(written, "ssl.truststore.type"),
        written.text("ssl.truststore.location"),
        written.secret("ssl.truststore.password"),
        written.secret("ssl.truststore.certificates"),
    )
    _check_pem_texts(written, store, "ssl.truststore.certificates")
    return store


def _check_pem_texts(written: _ConfigTexts, store: Store, key: str) -> None:
    kind = store.kind
    if store.certificates is not None and store.location:
        raise TlsConfigError(
            f"{written.named(key)} and {written.named(f'ssl.{kind}.location')} are both set: set only one of them."
        )
    if store.certificates is not None and store.type != "PEM":
        raise TlsConfigError(
            f"{written.named(key)} is set, but {written.named(f'ssl.{kind}.type')} is {store.type}: set it to PEM."
        )
    if store.password is not None and store.type == "PEM":
        advice = (
            "and use ssl.key.password for an encrypted key"
            if kind == "keystore"
            else "because certificates are not secret"
        )
        raise TlsConfigError(
            f"{written.named(f'ssl.{kind}.password')} is set, but a PEM store has no password: remove it, {advice}."
        )


def _store_type(written: _ConfigTexts, key: str) -> str:
    text = (written.text(key) or DEFAULT_STORE_TYPE).upper()
    if text not in STORE_TYPES:
        raise TlsConfigError(f"{written.named(key)} is {text}: it must be PEM or PKCS12.")
    return text


def _client_auth(written: _ConfigTexts) -> ClientAuth:
    text = (written.text("ssl.client.auth") or "none").lower()
    try:
        return ClientAuth(text)
    except ValueError:
        raise TlsConfigError(
            f"{written.named('ssl.client.auth')} is {text!r}: it must be required, requested or none."
        ) from None


def _enabled_protocols(written: _ConfigTexts) -> tuple[str, ...]:
    """Return the enabled protocols without TLS 1.0 and 1.1, which Java also ignores today."""
    key = "ssl.enabled.protocols"
    names = written.list(key) or SUPPORTED_PROTOCOLS
    for name in names:
        if name not in KNOWN_PROTOCOLS:
            raise TlsConfigError(
                f"{written.named(key)} contains {name!r}: it can contain {' and '.join(SUPPORTED_PROTOCOLS)}."
            )
    supported = tuple(name for name in SUPPORTED_PROTOCOLS if name in names)
    if not supported:
        raise TlsConfigError(
            f"{written.named(key)} contains only {', '.join(names)}, which is insecure: add TLSv1.2 or TLSv1.3."
        )
    return supported


def _protocol(written: _ConfigTexts) -> str:
    key = "ssl.protocol"
    name = written.text(key) or "TLSv1.3"
    if name == "TLS":  # Java's name for any protocol.
        return "TLSv1.3"
    if name not in SUPPORTED_PROTOCOLS:
        raise TlsConfigError(f"{written.named(key)} is {name!r}: it must be TLSv1.3 or TLSv1.2.")
    return name


def _checks_host_name(written: _ConfigTexts) -> bool:
    key = "ssl.endpoint.identification.algorithm"
    if not written.is_given(key):
        return True
    text = written.text(key)
    if text is not None and text.lower() != "https":
        raise TlsConfigError(
            f"{written.named(key)} is {text!r}: it must be https, or empty, but then any holder of a trusted "
            "certificate can impersonate the broker."
        )
    return text is not None
