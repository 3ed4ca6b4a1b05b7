"""Gate in front of the handlers: authentication, authorization and quotas of each request.

A conversation consults the gate about each request, before any handler and before the template fast paths. The gate
returns the request's rights to each topic, group and transactional id, and the handlers check these rights.
"""

from __future__ import annotations

from typing import Protocol

from odradek.api.request.admission import Admission
from odradek.api.request.call import Peer
from odradek.core.kernel.access import ANONYMOUS, NO_CLUSTER_ACTION
from odradek.core.kernel.moment import Moment
from odradek.wire.request import Request


class Gate(Protocol):
    """The decisions about the requests of one broker."""

    def admit(self, peer: Peer, request: Request, now: Moment) -> Admission:
        """Admit, throttle or refuse the request; `peer.principal` is the authenticated client.

        The gate is consulted again when the request resumes after a slice or a wait, and when a large request has been
        received completely. The request then has the same `sequence`, so a gate that counts requests must count by the
        sequence. If nothing has changed, return the same object as for the connection's last request: its templates are
        then kept without a comparison.
        """


class OpenGate:
    """A gate that admits every request with all rights, under the name in the client's certificate."""

    def __init__(self) -> None:
        self._anonymous = Admission()  # Shared by all anonymous clients, so that they share templates.

    def admit(self, peer: Peer, request: Request, now: Moment) -> Admission:
        return self._anonymous if peer.principal is ANONYMOUS else peer.own_admission


class InterBrokerGate(OpenGate):
    """A gate that allows requests between brokers on one listener only.

    On the other listeners they fail with CLUSTER_AUTHORIZATION_FAILED. Apache Kafka authorizes them (ClusterAction) on
    every listener; without an authorizer it accepts them from every client.
    """

    def __init__(self, listener: str) -> None:
        super().__init__()
        self._listener = listener
        self._anonymous_client = Admission(rights=NO_CLUSTER_ACTION)

    def admit(self, peer: Peer, request: Request, now: Moment) -> Admission:
        if peer.listener == self._listener:
            return super().admit(peer, request, now)
        if peer.principal is ANONYMOUS:
            return self._anonymous_client
        if peer.admission.rights is NO_CLUSTER_ACTION:
            return peer.admission
        return Admission(peer.principal, NO_CLUSTER_ACTION)
