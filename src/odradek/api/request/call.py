"""Who calls: what a handler may know of a request besides its body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from odradek.api.request.admission import Admission
from odradek.api.templates.commit_template import CommitTemplate
from odradek.api.templates.fetch_template import FetchTemplate
from odradek.api.templates.produce_template import ProduceTemplates
from odradek.api.templates.template_cache import NumbersTemplates
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import COMMIT_TEMPLATES_MAX, FETCH_TEMPLATES_MAX
from odradek.base.units import CorrelationId
from odradek.core.broker.broker import Broker
from odradek.core.kernel.access import (
    ANONYMOUS,
    CLUSTER_NAME,
    DENIED,
    SEES_ALL,
    Operation,
    Principal,
    ResourceType,
    Rights,
)
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint
from odradek.core.kernel.moment import Moment

_NAMELESS = Admission()


def _fetch_templates() -> NumbersTemplates[FetchTemplate]:
    return NumbersTemplates(FETCH_TEMPLATES_MAX)


def _commit_templates() -> NumbersTemplates[CommitTemplate]:
    return NumbersTemplates(COMMIT_TEMPLATES_MAX)


@dataclass
class Peer:
    """One connection, as the handlers see it."""

    listener: str
    local: Endpoint  # Where this client reached us, or what is advertised to it.
    advertised: Endpoint | None  # What advertised.listeners says for this listener, or the host it listens on.
    address: str
    principal: Principal = ANONYMOUS  # Whom its certificate names.
    software: str = "unknown"
    is_follower: bool = False  # Its last Fetch was that of a broker which may fetch as one.
    welcome: Admission = field(init=False)  # Allows the principal everything; anonymous peers share one.
    admission: Admission = field(init=False)  # The gate's answer about the connection's last request.
    produce_templates: ProduceTemplates = field(default_factory=ProduceTemplates)
    fetch_templates: NumbersTemplates[FetchTemplate] = field(default_factory=_fetch_templates)
    commit_templates: NumbersTemplates[CommitTemplate] = field(default_factory=_commit_templates)

    def __post_init__(self) -> None:
        self.admission = self.welcome = _NAMELESS if self.principal is ANONYMOUS else Admission(self.principal)

    def admitted(self, admission: Admission) -> None:
        """Takes the gate's answer about the next request; templates that were learned under other rules are dropped."""
        last, self.admission = self.admission, admission
        if admission.version != last.version or admission.principal != last.principal:
            self.produce_templates = ProduceTemplates()
            self.fetch_templates = _fetch_templates()
            self.commit_templates = _commit_templates()

    @property
    def client_host(self) -> str:
        """The peer's address as Java writes one without a name; groups show their members' hosts so."""
        return "/" + self.address.rpartition(":")[0]

    def endpoint_of(self, broker: BrokerInfo, ours: bool) -> Endpoint | None:
        """Returns the address under which this client should find a broker.

        For this broker that is the advertised one, else the host that is listened on, as in Apache Kafka; where that is
        every interface, it is the address the client came in on, which reaches us whatever lies between.
        """
        if not ours:
            return broker.endpoint(self.listener)
        return self.advertised or self.local


@dataclass
class Call:
    """One request's circumstances."""

    broker: Broker
    peer: Peer
    version: int
    client_id: str | None
    correlation_id: CorrelationId
    now: Moment
    admission: Admission = field(init=False)
    left: list[object] | None = None  # Values that a handler in slices has done with; a thread frees them.

    def __post_init__(self) -> None:
        self.admission = self.peer.admission  # Taken now: the peer's is soon that of its next request.

    def leave(self, made: object) -> None:
        """Keeps a value that the handler has no use for after its last slice, for a thread to free."""
        if self.left is None:
            self.left = []
        self.left.append(made)

    @property
    def principal(self) -> Principal:
        return self.admission.principal

    @property
    def rights(self) -> Rights:
        return self.admission.rights

    def may(self, operation: Operation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """True if the request's principal may carry out the operation on the resource."""
        return self.admission.rights.allows(operation, resource, name)

    def check(self, operation: Operation, resource: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raises Refused with the resource type's own code (such as TOPIC_AUTHORIZATION_FAILED) unless `may`."""
        if not self.admission.rights.allows(operation, resource, name):
            raise Refused(DENIED[resource], f"{self.principal} may not {operation.name} {resource.name} {name}")

    @property
    def sees(self) -> Callable[[str], bool] | None:
        """Returns a predicate of topics that the request's principal may describe; None if that is every topic."""
        if self.rights in SEES_ALL:
            return None
        return partial(self.rights.allows, Operation.DESCRIBE, ResourceType.TOPIC)

    def check_controller(self) -> None:
        """Raises Refused(NOT_CONTROLLER) where another broker is the one to ask."""
        if self.broker.view.controller != self.broker.id:
            raise Refused(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")

    def endpoint_of(self, broker: BrokerInfo) -> Endpoint | None:
        """The address under which this client finds a broker; None if it has none on this client's listener."""
        return self.peer.endpoint_of(broker, ours=broker.id == self.broker.id)

    def reachable_brokers(self) -> Iterator[tuple[BrokerInfo, Endpoint]]:
        """Yields the brokers that have an endpoint on this client's listener, each with that endpoint."""
        for broker in self.broker.view.brokers.values():
            endpoint = self.endpoint_of(broker)
            if endpoint is not None:
                yield broker, endpoint
