"""Who calls: what a handler may know of a request besides its body."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from odradek.api.commit_outlines import CommitOutlines
from odradek.api.fetch_outlines import FetchOutlines
from odradek.api.outlines import Outlines
from odradek.base.units import CorrelationId
from odradek.core.broker import Broker
from odradek.core.cluster import BrokerInfo, Endpoint
from odradek.core.moment import Moment


@dataclass(slots=True)
class Peer:
    """One connection, as the handlers see it."""

    listener: str
    local: Endpoint  # Where this client reached us.
    advertised: Endpoint | None  # What advertised.listeners says for this listener.
    address: str
    software: str = "unknown"
    outlines: Outlines = field(default_factory=Outlines)  # Of its produce requests.
    fetch_outlines: FetchOutlines = field(default_factory=FetchOutlines)
    commit_outlines: CommitOutlines = field(default_factory=CommitOutlines)

    @property
    def client_host(self) -> str:
        """As Java writes an address that has no name; groups show their members so."""
        return "/" + self.address.rpartition(":")[0]

    def endpoint_of(self, broker: BrokerInfo, ours: bool) -> Endpoint | None:
        """The address under which this client should find a broker.

        Ours is the one that was advertised, else the one the client came in on: it reaches us, whatever name, port
        mapping or network lies between.
        """
        if not ours:
            return broker.endpoint(self.listener)
        return self.advertised or self.local


@dataclass(slots=True)
class Call:
    """One request's circumstances."""

    broker: Broker
    peer: Peer
    version: int
    client_id: str | None
    correlation_id: CorrelationId
    now: Moment

    def endpoint_of(self, broker: BrokerInfo) -> Endpoint | None:
        """The address under which this client finds a broker; None if it has none on this client's listener."""
        return self.peer.endpoint_of(broker, ours=broker.id == self.broker.id)

    def reachable_brokers(self) -> Iterator[tuple[BrokerInfo, Endpoint]]:
        """The brokers that this client can be told of, and where."""
        for broker in self.broker.view.brokers.values():
            endpoint = self.endpoint_of(broker)
            if endpoint is not None:
                yield broker, endpoint
