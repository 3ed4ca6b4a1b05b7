"""Circumstances of a request: everything a handler may use besides the body."""

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
    local: Endpoint  # The address at which this client reached us, or the one advertised to it.
    advertised: Endpoint | None  # From advertised.listeners for this listener, or the host it listens on.
    address: str
    principal: Principal = ANONYMOUS  # The name in its certificate.
    software: str = "unknown"
    is_follower: bool = False  # Its last Fetch came from a broker that may fetch as a follower.
    own_admission: Admission = field(init=False)  # Grants the principal all rights; anonymous peers share one.
    admission: Admission = field(init=False)  # The gate's answer about the connection's last request.
    produce_templates: ProduceTemplates = field(default_factory=ProduceTemplates)
    fetch_templates: NumbersTemplates[FetchTemplate] = field(default_factory=_fetch_templates)
    commit_templates: NumbersTemplates[CommitTemplate] = field(default_factory=_commit_templates)

    def __post_init__(self) -> None:
        self.admission = self.own_admission = _NAMELESS if self.principal is ANONYMOUS else Admission(self.principal)

    def set_admission(self, admission: Admission) -> None:
        """Store the gate's answer about the next request; drop templates learned under other rules."""
        last, self.admission = self.admission, admission
        if admission.version != last.version or admission.principal != last.principal:
            self.produce_templates = ProduceTemplates()
            self.fetch_templates = _fetch_templates()
            self.commit_templates = _commit_templates()

    @property
    def client_host(self) -> str:
        """Return the peer's address in Java's form without a host name, as in descriptions of groups."""
        return "/" + self.address.rpartition(":")[0]

    def endpoint_of(self, broker: BrokerInfo, is_own: bool) -> Endpoint | None:
        """Return the address at which this client should reach a broker.

        For this broker that is the advertised address, or else the host it listens on, as in Apache Kafka. If it
        listens on every interface, it is the address at which the client connected, which works across any NAT or proxy
        in between.
        """
        if not is_own:
            return broker.endpoint(self.listener)
        return self.advertised or self.local


@dataclass
class Call:
    """Circumstances of one request."""

    broker: Broker
    peer: Peer
    version: int
    client_id: str | None
    correlation_id: CorrelationId
    now: Moment
    admission: Admission = field(init=False)
    to_free: list[object] | None = None  # Values that a handler in slices no longer needs; a thread frees them.

    def __post_init__(self) -> None:
        self.admission = self.peer.admission  # The peer's admission is soon that of its next request.

    def free_later(self, value: object) -> None:
        """Keep a value that the handler no longer needs after its last slice, for a thread to free."""
        if self.to_free is None:
            self.to_free = []
        self.to_free.append(value)

    @property
    def principal(self) -> Principal:
        return self.admission.principal

    @property
    def rights(self) -> Rights:
        return self.admission.rights

    def may(self, operation: Operation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether the request's principal may carry out the operation on the resource."""
        return self.admission.rights.allows(operation, resource, name)

    def check(self, operation: Operation, resource: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raise Refused with the resource type's own code (such as TOPIC_AUTHORIZATION_FAILED) unless `may`."""
        if not self.admission.rights.allows(operation, resource, name):
            raise self.denied(operation, resource, name)

    def denied(self, operation: Operation, resource: ResourceType, name: str) -> Refused:
        """Return the error for an operation that the request's principal may not carry out."""
        text = f"{self.principal} is not authorized for {operation.name} on {resource.name} {name}"
        return Refused(DENIED[resource], text)

    @property
    def can_describe(self) -> Callable[[str], bool] | None:
        """Return a predicate of the topics that the principal may describe; None if it may describe all."""
        if self.rights in SEES_ALL:
            return None
        return partial(self.rights.allows, Operation.DESCRIBE, ResourceType.TOPIC)

    def check_controller(self) -> None:
        """Raise Refused(NOT_CONTROLLER) if another broker is the controller."""
        if self.broker.view.controller != self.broker.id:
            raise Refused(ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")

    def endpoint_of(self, broker: BrokerInfo) -> Endpoint | None:
        """Return the address at which this client reaches a broker; None if it has none on this listener."""
        return self.peer.endpoint_of(broker, is_own=broker.id == self.broker.id)

    def reachable_brokers(self) -> Iterator[tuple[BrokerInfo, Endpoint]]:
        """Yield the brokers that have an endpoint on this client's listener, each with that endpoint."""
        for broker in self.broker.view.brokers.values():
            endpoint = self.endpoint_of(broker)
            if endpoint is not None:
                yield broker, endpoint
