"""TLS connections to ZooKeeper, configured with Kafka's zookeeper.ssl.* keys.

The keys are ZooKeeper's own and use the parser of the broker's ssl.* keys. Three rules differ in ZooKeeper: the
password of a PEM keystore is that of its private key, a PEM truststore needs no password, and without
zookeeper.ssl.enabled.protocols only zookeeper.ssl.protocol is enabled.
"""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

from odradek.base.secret import Secret
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError, Value
from odradek.tls import failure_reasons
from odradek.tls.ssl_contexts import Contexts, client_context
from odradek.tls.tls_config import DEFAULT_STORE_TYPE, Names, TlsConfig
from odradek.tls.tls_errors import TlsConfigError

PREFIX = "zookeeper."
CLIENT_ENABLE = "zookeeper.ssl.client.enable"
SOCKET, NETTY = "zookeeper.clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty"
KEYSTORE = "zookeeper.ssl.keystore.location"
# ZooKeeper's revocation checks of a certificate.
_REVOCATION_CHECKS = ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable")
_TEXTS = (
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.keystore.location",
    "ssl.protocol",
    "ssl.truststore.location",
)


class ZooKeeperTls:
    """TLS contexts for connections to ZooKeeper (coordination/zookeeper_access.Tls)."""

    def __init__(self, config: TlsConfig) -> None:
        """Read the stores. Raise TlsConfigError."""
        self._has_certificate = config.keystore.is_given
        self._contexts = Contexts(config, client_context)

    def context(self) -> ssl.SSLContext:
        return self._contexts.context()

    def reason(self, error: OSError) -> str:
        if isinstance(error, ssl.SSLEOFError | ConnectionResetError):
            return "the server closed the connection during the handshake, so the port may be plaintext"
        if isinstance(error, TimeoutError):
            return "the server did not answer the TLS handshake"
        if not isinstance(error, ssl.SSLError):
            return (error.strerror or str(error)).lower()
        if "BAD_CERTIFICATE" in (error.reason or "") and not self._has_certificate:  # Java's TLS 1.2 alert if missing.
            return f"the server requires a client certificate: set {KEYSTORE}"
        return failure_reasons.of(error, is_server=False, server="the server", prefix=PREFIX)


def parse_zookeeper_tls(configs: BrokerConfigs) -> ZooKeeperTls | None:
    """Return the TLS setup after reading the stores, or None for plaintext. Raise ConfigError."""
    if not configs.bool(CLIENT_ENABLE):
        return None
    _check_unsupported(configs)
    try:
        return ZooKeeperTls(_config(configs))
    except TlsConfigError as error:
        # ZooKeeper has no key for the password of a private key alone.
        raise ConfigError(str(error).replace(" ssl.key.password", " zookeeper.ssl.keystore.password")) from None


def _check_unsupported(configs: BrokerConfigs) -> None:
    socket = configs.optional_str(SOCKET)
    if socket and socket != NETTY:
        raise ConfigError(f"{SOCKET} is {socket}, which uses plaintext, but {CLIENT_ENABLE} is true: set {NETTY}.")
    for name in _REVOCATION_CHECKS:
        if configs.bool(name):
            raise ConfigError(f"{name} is true, but certificate revocation checks are not supported: remove it.")


def _config(configs: BrokerConfigs) -> TlsConfig:
    texts = {name: text for name in _TEXTS if (text := _text(configs.value(PREFIX + name))) is not None}
    for kind in ("keystore", "truststore"):
        type_ = texts[f"ssl.{kind}.type"] = _store_type(configs, kind)
        password = configs.secret(f"{PREFIX}ssl.{kind}.password")
        if password is None:
            continue
        if type_.upper() != "PEM":
            texts[f"ssl.{kind}.password"] = password.reveal()
        elif kind == "keystore":
            texts["ssl.key.password"] = password.reveal()
    config = TlsConfig.parse(texts, Names(PREFIX))
    if texts.get("ssl.enabled.protocols"):
        return replace(config, protocol="TLSv1.3")  # As in Java, the enabled protocols alone decide.
    return config if texts.get("ssl.protocol") == "TLS" else replace(config, enabled_protocols=(config.protocol,))


def _store_type(configs: BrokerConfigs, kind: str) -> str:
    """Return the configured type, or derive it from the file name as ZooKeeper does."""
    location = configs.optional_str(f"{PREFIX}ssl.{kind}.location") or ""
    by_name = "PEM" if Path(location).suffix.lower() == ".pem" else DEFAULT_STORE_TYPE
    return configs.optional_str(f"{PREFIX}ssl.{kind}.type") or by_name


def _text(value: Value) -> str | None:
    if value is None or isinstance(value, Secret):
        return None
    return ",".join(value) if isinstance(value, tuple) else str(value)
