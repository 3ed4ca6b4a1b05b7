"""Channels from the controller to the other brokers: Kafka's ControllerChannelManager.

Each broker receives the requests in order, repeated until it responds. A broker that registers again, or leaves,
receives none of the requests meant for its earlier registration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from odradek.api.cluster.controller_requests import Response, Versions, errors, to_message, version_of
from odradek.base.units import BrokerId
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import (
    BecomeLeaderOrFollower,
    ControlRequest,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.controller.controller_context import LiveBroker
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint
from odradek.net.channels.channel import Channel
from odradek.net.channels.channel_requests import ChannelConfig, FailedRequest, RequestBuilder
from odradek.tls.ssl_contexts import Contexts
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

_LOG = logging.getLogger(__name__)

QUEUED_MAX = 1_000_000  # A live broker that does not respond receives all queued requests later, however many.

_KINDS: Mapping[type, tuple[type, type[Response]]] = {
    BecomeLeaderOrFollower: (LeaderAndIsrRequest, LeaderAndIsrResponse),
    UpdateMetadata: (UpdateMetadataRequest, UpdateMetadataResponse),
    StopReplicas: (StopReplicaRequest, StopReplicaResponse),
}


class ControllerChannels:
    """Channels of one broker, open only while it is the controller; all on the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: BrokerId,
        listener: str,
        put_event: Callable[[events.Answered], None],
        *,
        versions: Versions,
        tls: Contexts | None,
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._config = ChannelConfig(client_id=str(broker), retries=True, queued_max=QUEUED_MAX)
        self._put_event = put_event
        self._versions = versions
        self._tls = tls
        self._channels: dict[tuple[BrokerId, int], Channel] = {}  # The key includes the broker's epoch.

    def retain(self, alive: Mapping[BrokerId, LiveBroker]) -> None:
        """Close the channels to all brokers except these."""
        for broker, epoch in list(self._channels):
            live = alive.get(broker)
            if live is None or live.epoch != epoch:
                self._channels.pop((broker, epoch)).close()

    def send(self, request: ControlRequest, live: LiveBroker) -> None:
        """Send a request to one broker."""
        key = request.broker, live.epoch
        channel = self._channels.get(key)
        if channel is None:
            endpoint = inter_broker_endpoint(live.info, self._listener)
            channel = Channel(self._loop, endpoint, self._config, name=f"broker {request.broker}", tls=self._tls)
            self._channels[key] = channel
        channel.send(_builder(request, self._versions, self._listener), partial(self._on_response, request))

    def _on_response(self, request: ControlRequest, response: Response | FailedRequest) -> None:
        if isinstance(response, FailedRequest):
            _LOG.error("controller failed to send a request to broker %d: %s", request.broker, response.text)
            return
        failures = errors(request, response)
        if failures is None:
            _LOG.warning(
                "broker %d rejected a request of the controller: error code %d", request.broker, response.error_code
            )
        else:
            self._put_event(events.Answered(request, failures))

    def close(self) -> None:
        self.retain({})


def inter_broker_endpoint(broker: BrokerInfo, listener: str) -> Endpoint:
    """Return a broker's endpoint for other brokers; without that listener, return its first endpoint."""
    return broker.endpoint(listener) or broker.endpoints[0]


def _builder(request: ControlRequest, versions: Versions, listener: str) -> RequestBuilder[Response]:
    request_type, response_type = _KINDS[type(request.request)]
    version = version_of(request, versions)
    # The message is built when it is written, so a queued request takes no more memory than the controller's value.
    return RequestBuilder(
        request_type, response_type, lambda _: to_message(request, versions, listener), version, version
    )
