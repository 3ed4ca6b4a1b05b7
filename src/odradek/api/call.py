"""Who calls: what a handler may know of a request besides its body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from odradek.api.commit_template import CommitTemplate
from odradek.api.fetch_template import FetchTemplate
from odradek.api.gate import Admission
from odradek.api.produce_template import ProduceTemplates
from odradek.api.templates import NumbersTemplates
from odradek.base.errors import Refused
from odradek.base.limits import COMMIT_TEMPLATES_MAX, FETCH_TEMPLATES_MAX
from odradek.base.units import CorrelationId
from odradek.core.access import (
    ANONYMOUS,
    CLUSTER_NAME,
    DENIED,
    EVERYTHING,
    Operation,
    Principal,
    ResourceType,
    Rights,
)
from odradek.core.broker import Broker
from odradek.core.cluster import BrokerInfo, Endpoint
from odradek.core.moment import Moment

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
    welcome: Admission = field(init=False)  # To do everything, under that name; those without one share it.
    admission: Admission = field(init=False)  # Of its last request.
    produce_templates: ProduceTemplates = field(default_factory=ProduceTemplates)
    fetch_templates: NumbersTemplates[FetchTemplate] = field(default_factory=_fetch_templates)
    commit_templates: NumbersTemplates[CommitTemplate] = field(default_factory=_commit_templates)

    def __post_init__(self) -> None:
        self.admission = self.welcome = _NAMELESS if self.principal is ANONYMOUS else Admission(self.principal)

    def admitted(self, admission: Admission) -> None:
        """Takes the gate's answer about the next request.  What was learned under other rules is forgotten."""
        last, self.admission = self.admission, admission
        if admission.version != last.version or admission.principal != last.principal:
            self.produce_templates = ProduceTemplates()
            self.fetch_templates = _fetch_templates()
            self.commit_templates = _commit_templates()

    @property
    def client_host(self) -> str:
        """As Java writes an address that has no name; groups show their members so."""
        return "/" + self.address.rpartition(":")[0]

    def endpoint_of(self, broker: BrokerInfo, ours: bool) -> Endpoint | None:
        """The address under which this client should find a broker.

        Ours is the one that was advertised, else the host that is listened on, as Apache Kafka does; where that is
        every interface, it is the one the client came in on, which reaches us whatever lies between.
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
    left: list[object] | None = None  # By a handler in slices; a thread frees it, which is slow.

    def __post_init__(self) -> None:
        self.admission = self.peer.admission  # The peer's is that of its next request soon.

    def leave(self, made: object) -> None:
        """A handler in slices has no use for this after its last one."""
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
        """True if the request's principal may do that."""
        return self.admission.rights.allows(operation, resource, name)

    def check(self, operation: Operation, resource: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raises Refused with the resource type's own code (such as TOPIC_AUTHORIZATION_FAILED) unless `may`."""
        if not self.admission.rights.allows(operation, resource, name):
            raise Refused(DENIED[resource], f"{self.principal} may not {operation.name} {resource.name} {name}")

    @property
    def sees(self) -> Callable[[str], bool] | None:
        """What tells whether the request's principal may describe a topic; None where he may describe every one."""
        if self.rights is EVERYTHING:
            return None
        return partial(self.rights.allows, Operation.DESCRIBE, ResourceType.TOPIC)

    def endpoint_of(self, broker: BrokerInfo) -> Endpoint | None:
        """The address under which this client finds a broker; None if it has none on this client's listener."""
        return self.peer.endpoint_of(broker, ours=broker.id == self.broker.id)

    def reachable_brokers(self) -> Iterator[tuple[BrokerInfo, Endpoint]]:
        """The brokers that this client can be told of, and where."""
        for broker in self.broker.view.brokers.values():
            endpoint = self.endpoint_of(broker)
            if endpoint is not None:
                yield broker, endpoint
