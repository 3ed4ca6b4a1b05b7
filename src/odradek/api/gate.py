"""The gate: who a request is from, whether he may ask, and whether he is over his share.

A conversation asks it about each request, before any handler, and before the fast paths that know a request from one
before.  What a request may do with each of its topics, groups and transactional ids is in the rights that come
back; the handlers ask those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from odradek.api.produce_template import ProduceTemplates
from odradek.base.errors import ErrorCode
from odradek.base.limits import PRODUCE_TEMPLATES_IN_COMMON_MAX
from odradek.core.access import ANONYMOUS, EVERYTHING, Principal, Rights
from odradek.core.moment import Moment
from odradek.wire.request import Request

if TYPE_CHECKING:
    from odradek.api.call import Peer


SHAPES_IN_COMMON_MAX = 8  # Each costs a request that is like none of them a quarter of a microsecond.


class Admission:
    """The gate's answer about one request.

    `refused` is what the whole request is answered with, NONE if it is served.  `throttle_ms` is told in the answer,
    and the connection is muted for as long (KIP-219).  `version` is that of the rules: what was learned of a
    connection's requests holds as long as neither it nor the principal changes.  Connections that are given the same
    object learn from each other.
    """

    def __init__(
        self,
        principal: Principal = ANONYMOUS,
        rights: Rights = EVERYTHING,
        *,
        refused: ErrorCode = ErrorCode.NONE,
        throttle_ms: int = 0,
        version: int = 0,
    ) -> None:
        assert throttle_ms >= 0
        self.principal = principal
        self.rights = rights
        self.refused = refused
        self.throttle_ms = throttle_ms
        self.version = version
        self.is_plain = not refused and not throttle_ms  # It may be answered like one before it.
        # Of produce requests that were allowed by it.
        self.produce_templates = ProduceTemplates(PRODUCE_TEMPLATES_IN_COMMON_MAX, SHAPES_IN_COMMON_MAX)


class Gate(Protocol):
    """One for each broker."""

    def ask(self, peer: Peer, request: Request, now: Moment) -> Admission:
        """Admits, throttles or refuses the request; `peer.principal` says who has connected, from the first one on.

        It is asked about the same one again, with the same `sequence`, when that goes on after a slice or a wait, and
        when all of a large one is there: whoever counts, counts by that.
        Where nothing has changed the same object is to be returned as for the connection's last request: then nothing
        is looked at again.
        """


class OpenGate:
    """Lets everybody in, to do everything, under the name of his certificate."""

    def __init__(self) -> None:
        self._anonymous = Admission()  # One for all, so that they learn from each other.

    def ask(self, peer: Peer, request: Request, now: Moment) -> Admission:
        return self._anonymous if peer.principal is ANONYMOUS else peer.welcome
