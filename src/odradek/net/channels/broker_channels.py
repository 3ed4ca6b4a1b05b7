"""Channels for a broker's own requests to other brokers, with endpoints from the controller's view."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId
from odradek.core.kernel.cluster_view import ClusterView, Endpoint
from odradek.net.channels.channel import Channel, ChannelFull
from odradek.net.channels.channel_requests import ChannelConfig, FailedRequest, RequestBuilder, SocketSettings
from odradek.net.channels.controller_channels import inter_broker_endpoint
from odradek.tls.ssl_contexts import Contexts

T = TypeVar("T")
SYSTEM_SOCKETS = SocketSettings()


class BrokerChannels:
    """Channels of one broker, at most one to each other broker.

    All methods run on the loop's thread. A failed request is not sent again here.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client_id: str,
        view: ClusterView,
        listener: str,
        tls: Contexts | None,
        *,
        sockets: SocketSettings = SYSTEM_SOCKETS,
    ) -> None:
        self._loop = loop
        self._view = view
        self._listener = listener
        self._tls = tls
        self._config = ChannelConfig(
            client_id=client_id,
            retries=False,
            request_timeout_ms=sockets.timeout_ms,
            receive_buffer_bytes=sockets.receive_buffer_bytes,
        )
        self._channels: dict[BrokerId, tuple[Endpoint, Channel]] = {}

    def send_request(self, broker: BrokerId, request: RequestBuilder[T], then: Callable[[T | Refused], None]) -> None:
        """Send a request and call `then` with the response, or with Refused if it failed.

        `then` runs on the loop, never within this call.
        """
        channel = self._channel(broker)
        if channel is None:
            self._loop.call_soon(then, Refused(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not available"))
            return

        def on_response(outcome: T | FailedRequest) -> None:
            then(_refused(outcome) if isinstance(outcome, FailedRequest) else outcome)

        try:
            channel.send(request, on_response)
        except ChannelFull as full:
            self._loop.call_soon(then, Refused(ErrorCode.NETWORK_EXCEPTION, str(full)))

    def _channel(self, broker: BrokerId) -> Channel | None:
        info = self._view.brokers.get(broker)
        if info is None or not info.endpoints:
            return None
        endpoint = inter_broker_endpoint(info, self._listener)
        known = self._channels.get(broker)
        if known is not None and known[0] == endpoint:
            return known[1]
        if known is not None:
            known[1].close()
        channel = Channel(self._loop, endpoint, self._config, name=f"broker {broker}", tls=self._tls)
        self._channels[broker] = endpoint, channel
        return channel

    def close_stale(self) -> None:
        """Close channels to brokers that have left or changed their endpoint; called when the view changes."""
        for broker, (endpoint, channel) in list(self._channels.items()):
            info = self._view.brokers.get(broker)
            if info is None or not info.endpoints or inter_broker_endpoint(info, self._listener) != endpoint:
                del self._channels[broker]
                channel.close()

    def close(self) -> None:
        for _, channel in self._channels.values():
            channel.close()
        self._channels.clear()


def _refused(failed: FailedRequest) -> Refused:
    return Refused(ErrorCode.NETWORK_EXCEPTION, failed.text)
