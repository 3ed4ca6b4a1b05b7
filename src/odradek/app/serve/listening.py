"""The listeners of a broker, from its settings, and what they have in common: limits of connections and of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.app.config.listener_config import Listener as ListenerSettings
from odradek.app.config.listener_config import inter_broker_listener
from odradek.app.config.server_config import Settings
from odradek.base.limits import RECEIVE_BUDGET_BYTES
from odradek.core.kernel.cluster_view import Endpoint
from odradek.net.clients.connection_quotas import ConnectionQuotas
from odradek.net.clients.listener import SYSTEM_DEFAULT, Listener
from odradek.net.shell.shell import Shell
from odradek.wire.budget import ReceiveBudget

if TYPE_CHECKING:
    from odradek.tls.ssl_contexts import Contexts


class _Limits:
    """What the listeners that are given the same object have together."""

    def __init__(self, settings: Settings) -> None:
        self.quotas = ConnectionQuotas(settings.connections_max, settings.connections_per_ip_max)
        self.budget = ReceiveBudget(_budget_bytes(settings))


def listeners_of(settings: Settings, shell: Shell, contexts: Mapping[str, Contexts]) -> list[Listener]:
    """Returns the listeners, not bound yet; that of the brokers, where it is one of several, has limits of its own.

    So no number of clients keeps brokers out (KIP-402), nor takes the memory that their requests need.  Raises
    ConfigError.
    """
    of_clients = of_brokers = _Limits(settings)
    brokers = None
    if settings.is_member and len(settings.listeners) > 1:
        brokers, of_brokers = inter_broker_listener(settings.configs, settings.listeners), _Limits(settings)
    return [
        _listener(settings, shell, of_brokers if one.name == brokers else of_clients, one, contexts.get(one.name))
        for one in settings.listeners
    ]


def _listener(
    settings: Settings, shell: Shell, limits: _Limits, wanted: ListenerSettings, contexts: Contexts | None
) -> Listener:
    advertised = settings.advertised.get(wanted.name)
    return Listener(
        shell,
        wanted.name,
        None if advertised is None else Endpoint(wanted.name, advertised.host, advertised.port),
        request_bytes_max=settings.request_bytes_max,
        quotas=limits.quotas,
        backlog=settings.listen_backlog,
        budget=limits.budget,
        # Kafka's default would keep the system from sizing it by itself, which it does better.
        receive_buffer_bytes=_if_set(settings, "socket.receive.buffer.bytes"),
        # Left to the system, megabytes queue up, and six consumers get half as much.
        send_buffer_bytes=settings.socket_send_buffer_bytes,
        contexts=contexts,
    )


def _budget_bytes(settings: Settings) -> int:
    """Returns the bound of receive buffers; Kafka's default is none, which takes as much memory as clients like."""
    wanted = settings.queued_request_bytes_max
    return wanted if wanted > 0 else RECEIVE_BUDGET_BYTES


def _if_set(settings: Settings, name: str) -> int:
    return settings.configs.int(name) if settings.configs.is_set(name) else SYSTEM_DEFAULT
