"""Listeners of a broker, created from its settings, with shared connection and memory limits."""

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
    """Limits shared by the listeners that are given the same object."""

    def __init__(self, settings: Settings) -> None:
        self.quotas = ConnectionQuotas(settings.connections_max, settings.connections_per_ip_max)
        self.budget = ReceiveBudget(_budget_bytes(settings))


def listeners_of(settings: Settings, shell: Shell, contexts: Mapping[str, Contexts]) -> list[Listener]:
    """Return the unbound listeners. A separate inter-broker listener has limits of its own.

    Clients then cannot exhaust the connections (KIP-402) or the request memory of the brokers. Raise ConfigError.
    """
    client_limits = broker_limits = _Limits(settings)
    brokers = None
    if settings.is_member and len(settings.listeners) > 1:
        brokers, broker_limits = inter_broker_listener(settings.configs, settings.listeners), _Limits(settings)
    return [
        _listener(settings, shell, broker_limits if one.name == brokers else client_limits, one, contexts.get(one.name))
        for one in settings.listeners
    ]


def _listener(
    settings: Settings, shell: Shell, limits: _Limits, listener_settings: ListenerSettings, contexts: Contexts | None
) -> Listener:
    advertised = settings.advertised.get(listener_settings.name)
    return Listener(
        shell,
        listener_settings.name,
        None if advertised is None else Endpoint(listener_settings.name, advertised.host, advertised.port),
        request_bytes_max=settings.request_bytes_max,
        quotas=limits.quotas,
        backlog=settings.listen_backlog,
        budget=limits.budget,
        # Kafka's default would disable the system's auto-tuning, which sizes it better.
        receive_buffer_bytes=_if_set(settings, "socket.receive.buffer.bytes"),
        # If the system sizes it, megabytes queue up, and six consumers get half the throughput.
        send_buffer_bytes=settings.socket_send_buffer_bytes,
        contexts=contexts,
    )


def _budget_bytes(settings: Settings) -> int:
    """Return the bound of receive buffers. Kafka's default, unlimited, lets clients use up the memory."""
    configured = settings.queued_request_bytes_max
    return configured if configured > 0 else RECEIVE_BUDGET_BYTES


def _if_set(settings: Settings, name: str) -> int:
    return settings.configs.int(name) if settings.configs.is_set(name) else SYSTEM_DEFAULT
