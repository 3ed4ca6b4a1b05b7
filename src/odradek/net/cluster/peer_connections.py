"""Connections of one broker to the others of its cluster; a lone broker has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.api.cluster.controller_requests import versions_of
from odradek.base.units import BrokerId
from odradek.core.broker.broker import Broker
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import ControlRequest
from odradek.core.controller.controller_context import LiveBroker
from odradek.net.channels.broker_channels import BrokerChannels
from odradek.net.channels.controller_channels import ControllerChannels
from odradek.net.cluster.broker_requests import BrokerRequests
from odradek.net.cluster.controller_updates import Shell
from odradek.net.cluster.fetcher_connections import FetcherConnections
from odradek.tls.ssl_contexts import Contexts


class Peers:
    """Requests to other brokers, as the controller and as a broker; on the loop's thread."""

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        put_event: Callable[[events.Event], None],
        *,
        listener: str,
        tls: Contexts | None,
    ) -> None:
        """Create the channels; `put_event` passes responses to the controller.

        `listener` is the inter-broker listener.
        """
        versions = versions_of(broker.protocol)
        self._controller_channels = ControllerChannels(
            shell.loop, broker.id, listener, put_event, versions=versions, tls=tls
        )
        self._broker_channels = BrokerChannels(shell.loop, f"broker-{broker.id}", broker.view, listener, tls)
        self.requests = BrokerRequests(shell, broker, self._broker_channels)
        self.fetchers = FetcherConnections(shell, broker, listener, tls)

    def retain(self, alive: Mapping[BrokerId, LiveBroker]) -> None:
        """Close the controller's channels to all brokers except these."""
        self._controller_channels.retain(alive)

    def send(self, request: ControlRequest, live: LiveBroker) -> None:
        """Send a controller request to one broker, behind earlier ones."""
        self._controller_channels.send(request, live)

    def close_stale(self) -> None:
        """Close channels to brokers that have left or moved; called when the view has changed."""
        self._broker_channels.close_stale()
        self.fetchers.close_stale()

    def close(self) -> None:
        self._controller_channels.close()
        self._broker_channels.close()
        self.fetchers.close()
