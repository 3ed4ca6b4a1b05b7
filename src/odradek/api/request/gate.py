"""The gate: who a request is from, whether he may ask, and whether he is over his share.

A conversation asks it about each request, before any handler, and before the fast paths that know a request from one
before.  What a request may do with each of its topics, groups and transactional ids is in the rights that come
back; the handlers ask those.
"""

from __future__ import annotations

from typing import Protocol

from odradek.api.request.admission import Admission
from odradek.api.request.call import Peer
from odradek.core.kernel.access import ANONYMOUS, NO_CLUSTER_ACTION
from odradek.core.kernel.moment import Moment
from odradek.wire.request import Request


class Gate(Protocol):
    """Decides about the requests of one broker."""

    def ask(self, peer: Peer, request: Request, now: Moment) -> Admission:
        """Admits, throttles or refuses the request; `peer.principal` says who has connected, from the first request on.

        The gate is asked again about a request, with the same `sequence`, when that goes on after a slice or a wait,
        and when all of a large one has been received: a gate that counts requests counts by the sequence.
        If nothing has changed, return the same object as for the connection's last request: then its templates are kept
        without a look.
        """


class OpenGate:
    """Admits every request with all rights, under the name in its client's certificate."""

    def __init__(self) -> None:
        self._anonymous = Admission()  # One for all anonymous clients, so that they learn from each other.

    def ask(self, peer: Peer, request: Request, now: Moment) -> Admission:
        return self._anonymous if peer.principal is ANONYMOUS else peer.welcome


class InterBrokerGate(OpenGate):
    """Admits everyone, but what only brokers ask on one listener alone: CLUSTER_AUTHORIZATION_FAILED on the others.

    Apache Kafka has such requests authorized (ClusterAction), on whatever listener they come; with no authorizer it
    takes them from everybody.
    """

    def __init__(self, listener: str) -> None:
        super().__init__()
        self._listener = listener
        self._anonymous_client = Admission(rights=NO_CLUSTER_ACTION)

    def ask(self, peer: Peer, request: Request, now: Moment) -> Admission:
        if peer.listener == self._listener:
            return super().ask(peer, request, now)
        if peer.principal is ANONYMOUS:
            return self._anonymous_client
        if peer.admission.rights is NO_CLUSTER_ACTION:
            return peer.admission
        return Admission(peer.principal, NO_CLUSTER_ACTION)
