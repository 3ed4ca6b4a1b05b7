"""TLS configuration of each listener: Kafka's ssl.* keys, with listener.name.<listener>. overrides.

    ssl.keystore.location=/etc/kafka/broker.p12
    listener.name.outside.ssl.client.auth=required

A broker with plaintext listeners only imports no TLS code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.app.config.listener_config import Listener, SecurityProtocol
from odradek.base.secret import Secret
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError, Value

if TYPE_CHECKING:
    from odradek.tls.ssl_contexts import Contexts
    from odradek.tls.tls_config import TlsConfig


def parse_tls(configs: BrokerConfigs, listeners: Sequence[Listener]) -> Mapping[str, TlsConfig]:
    """Return the configuration of each TLS listener without reading its stores. Raise ConfigError."""
    return {each.name: _of(configs, each.name) for each in listeners if each.protocol is SecurityProtocol.SSL}


def contexts_of(tls: Mapping[str, TlsConfig]) -> Mapping[str, Contexts]:
    """Read the stores of each listener. Raise ConfigError."""
    if not tls:
        return {}
    from odradek.tls.ssl_contexts import Contexts, server_context
    from odradek.tls.tls_errors import TlsConfigError

    try:
        return {name: Contexts(config, server_context) for name, config in tls.items()}
    except TlsConfigError as error:
        raise ConfigError(str(error)) from None


def names_of(tls: Mapping[str, TlsConfig]) -> frozenset[str]:
    """Return the names of the keys that configure only one of these listeners."""
    if not tls:
        return frozenset()
    from odradek.tls.tls_config import KEYS

    return frozenset(_prefix_of(name) + key for name in tls for key in KEYS)


def requires_certificates(tls: TlsConfig | None) -> bool:
    """Return whether only clients with a trusted certificate are accepted."""
    return tls is not None and tls.client_auth.value == "required"


def _prefix_of(listener: str) -> str:
    return f"listener.name.{listener.lower()}."


def _of(configs: BrokerConfigs, listener: str) -> TlsConfig:
    from odradek.tls.tls_config import KEYS, Names, TlsConfig
    from odradek.tls.tls_errors import TlsConfigError

    prefix = _prefix_of(listener)
    own = frozenset(key for key in KEYS if configs.is_set(prefix + key))
    texts = {}
    for key in KEYS:
        value = configs.value(prefix + key if key in own else key)
        if value is not None:
            texts[key] = _text(value)
    try:
        return TlsConfig.parse(texts, Names(prefix, own))
    except TlsConfigError as error:
        raise ConfigError(str(error)) from None


def _text(value: Value) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    return ",".join(value) if isinstance(value, tuple) else str(value)
