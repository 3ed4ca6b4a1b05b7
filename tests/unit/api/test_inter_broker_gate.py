"""Gate of a broker with an inter-broker listener: rights of clients and brokers."""

from __future__ import annotations

import pytest

from odradek.api.request.call import Peer
from odradek.api.request.gate import InterBrokerGate
from odradek.base.units import TimestampMs
from odradek.core.kernel.access import ANONYMOUS, CLUSTER_NAME, EVERYTHING, Operation, Principal, ResourceType
from odradek.core.kernel.cluster_view import Endpoint
from odradek.core.kernel.moment import Moment
from odradek.wire.request import Request

NOW = Moment(TimestampMs(0), 0)
NAMED = Principal("User", "CN=client one")


def peer(listener: str, principal: Principal) -> Peer:
    endpoint = Endpoint(listener, "127.0.0.1", 9092)
    return Peer(listener, endpoint, endpoint, "127.0.0.1:50000", principal)


def request() -> Request:
    return Request(3, 0, 1, "client", memoryview(b""), 0, 0)


@pytest.mark.parametrize("principal", [ANONYMOUS, NAMED])
def test_cluster_rights_are_granted_only_on_the_inter_broker_listener(principal: Principal) -> None:
    gate = InterBrokerGate("BROKERS")
    assert gate.admit(peer("BROKERS", principal), request(), NOW).rights is EVERYTHING
    admission = gate.admit(peer("CLIENTS", principal), request(), NOW)
    assert admission.principal == principal and not admission.refused and admission.is_plain
    denied = [
        (operation, resource)
        for operation in Operation
        for resource in ResourceType
        if not admission.rights.allows(operation, resource, CLUSTER_NAME)
    ]
    assert denied == [(Operation.CLUSTER_ACTION, resource) for resource in ResourceType]
    assert admission.rights.allows_any(Operation.READ, ResourceType.TOPIC)


@pytest.mark.parametrize("principal", [ANONYMOUS, NAMED])
@pytest.mark.parametrize("listener", ["BROKERS", "CLIENTS"])
def test_connection_keeps_one_admission_for_its_templates(listener: str, principal: Principal) -> None:
    gate, one = InterBrokerGate("BROKERS"), peer(listener, principal)
    first = gate.admit(one, request(), NOW)
    one.set_admission(first)
    assert gate.admit(one, request(), NOW) is first
    other = gate.admit(peer(listener, principal), request(), NOW)
    assert (other is first) == (principal is ANONYMOUS), "anonymous clients learn from each other"
