"""Dynamic configuration outside the core: listener certificates and limits, number of movers.

Mover threads transfer large data. Changes are prepared in a thread, which reads the stores, and applied on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from odradek.app.config.listener_tls import contexts_of, parse_tls
from odradek.app.config.server_config import Settings, check_safe
from odradek.coordination.passwords import PasswordEncoder
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError
from odradek.net.clients.listener import Listener
from odradek.net.native.movers import Movers

if TYPE_CHECKING:
    from odradek.tls.ssl_contexts import Contexts
    from odradek.tls.tls_config import TlsConfig


class Reconfiguration:
    """Dynamic configuration of one broker's listeners and movers."""

    def __init__(self, settings: Settings, listeners: Sequence[Listener], movers: Movers) -> None:
        self._settings = settings
        self._listeners = listeners
        self._movers = movers

    def prepare(self, before: BrokerConfigs, after: BrokerConfigs) -> Callable[[], None]:
        """Read the changed stores and return a function that applies all changes. Raise ConfigError."""
        listeners = self._settings.listeners
        tls = parse_tls(after, listeners)
        check_safe(after, listeners, tls, self._settings.insecure)
        current = self._current_tls(before)
        contexts = contexts_of({name: each for name, each in tls.items() if each != current.get(name)})
        limits = after.int("max.connections"), after.int("max.connections.per.ip")
        return partial(self._apply, contexts, *limits, after.int("num.network.threads"))

    def _current_tls(self, before: BrokerConfigs) -> Mapping[str, TlsConfig]:
        try:
            return parse_tls(before, self._settings.listeners)
        except ConfigError:
            return {}

    def _apply(self, contexts: Mapping[str, Contexts], connections_max: int, per_address_max: int, movers: int) -> None:
        self._movers.resize(movers)
        for listener in self._listeners:
            listener.quotas.limit(connections_max, per_address_max)
            if listener.name in contexts:
                listener.secure(contexts[listener.name])


def password_encoder(configs: BrokerConfigs) -> PasswordEncoder:
    """Return the encoder of passwords in the metadata, configured with Apache Kafka's keys."""
    return PasswordEncoder(
        configs.secret("password.encoder.secret"),
        configs.secret("password.encoder.old.secret"),
        iterations=configs.int("password.encoder.iterations"),
        key_bits=configs.int("password.encoder.key.length"),
        key_factory=configs.optional_str("password.encoder.keyfactory.algorithm"),
        cipher=configs.str("password.encoder.cipher.algorithm"),
    )
