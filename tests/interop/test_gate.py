"""An admission gate with real connections: it refuses, throttles and changes small, templated and large requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.api.request.admission import Admission
from odradek.api.request.call import Peer
from odradek.api.request.gate import OpenGate
from odradek.base.errors import ErrorCode
from odradek.core.kernel.access import ANONYMOUS, Principal
from odradek.core.kernel.moment import Moment
from odradek.tls.ssl_contexts import client_context
from odradek.tls.tls_config import TlsConfig
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.produce import ProduceResponse
from odradek.wire.request import Request
from support.asking import PRODUCE, created, produce_request, produced
from support.certificates import Authority, Known
from support.large_requests import LocalBroker, Stalled, Ways, answer, can_store, large, local_broker, values
from support.raw_client import RawClient, frame

ADMITTED = Admission()
THROTTLE_MS = 300


class FixedAdmission:
    """A gate whose admission is one attribute, replaced by the test."""

    def __init__(self) -> None:
        self.admission: Admission = ADMITTED

    def admit(self, peer: Peer, request: Request, now: Moment) -> Admission:
        return self.admission


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


@pytest.fixture
def broker(tmp_path: Path, ways: Ways) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "here") as running:
        yield running


@pytest.fixture
def gate(broker: LocalBroker) -> FixedAdmission:
    installed = FixedAdmission()
    broker.on_loop(lambda running: setattr(running.shell, "gate", installed))
    return installed


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as made:
        created(made, "t")
        yield made


def test_a_throttled_connection_is_muted_and_others_are_not(
    broker: LocalBroker, gate: FixedAdmission, client: RawClient
) -> None:
    gate.admission = Admission(throttle_ms=THROTTLE_MS)
    began = time.monotonic()
    client.send(frame(ApiVersionsRequest(), 2, 1) + frame(ApiVersionsRequest(), 2, 2))
    first = decode_response(ApiVersionsResponse, 2, client.read_frame())[1]
    assert first.throttle_time_ms == THROTTLE_MS
    gate.admission = ADMITTED
    with RawClient(broker.port) as other:
        other.ping()
    second = decode_response(ApiVersionsResponse, 2, client.read_frame())[1]
    assert second.throttle_time_ms == 0
    assert time.monotonic() - began >= THROTTLE_MS / 1000
    client.ping()


def test_requests_to_a_muted_connection_are_answered_afterwards(gate: FixedAdmission, client: RawClient) -> None:
    gate.admission = Admission(throttle_ms=THROTTLE_MS)
    client.ping()
    gate.admission = ADMITTED
    began = time.monotonic()
    for _ in range(3):
        client.ping()
    assert time.monotonic() - began >= THROTTLE_MS / 1000 / 2, "the first of them waited"


def test_a_closed_muted_connection_is_forgotten(broker: LocalBroker, gate: FixedAdmission, client: RawClient) -> None:
    gate.admission = Admission(throttle_ms=60_000)
    client.ping()
    client.close()
    gate.admission = ADMITTED
    with RawClient(broker.port) as other:
        other.ping()


@pytest.mark.skipif(not can_store(), reason="there is no mover here, or none that stores")
@pytest.mark.parametrize(
    ("admission", "code"),
    [
        (Admission(refused=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version=1), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (Admission(throttle_ms=1), ErrorCode.NONE),
    ],
    ids=["refused", "throttled"],
)
def test_a_large_produce_is_checked_when_it_begins(
    gate: FixedAdmission, client: RawClient, ways: Ways, admission: Admission, code: ErrorCode
) -> None:
    produced(client, "t", b"first")
    gate.admission = admission
    client.send(large())
    data = client.read_frame()
    assert answer(data)[0] == code
    assert decode_response(ProduceResponse, PRODUCE, data)[1].throttle_time_ms == admission.throttle_ms
    assert not ways.begun
    gate.admission = ADMITTED
    assert len(values(client)) == 1 + (code == ErrorCode.NONE)


@pytest.mark.skipif(not can_store(), reason="there is no mover here, or none that stores")
@pytest.mark.parametrize("how", ["refused", "throttled", "other rules"])
def test_a_large_produce_is_checked_again_when_complete(
    broker: LocalBroker, gate: FixedAdmission, client: RawClient, ways: Ways, how: str
) -> None:
    stalled = Stalled(client, broker.directory)
    assert ways.begun == 1
    gate.admission = {
        "refused": Admission(refused=ErrorCode.TOPIC_AUTHORIZATION_FAILED, version=1),
        "throttled": Admission(throttle_ms=1),
        "other rules": Admission(version=1),
    }[how]
    data = stalled.finish()
    is_refused = how == "refused"
    assert answer(data)[0] == (ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_refused else ErrorCode.NONE)
    assert ways.handed_back == 1
    gate.admission = ADMITTED
    assert len(values(client)) == (1 if is_refused else 2)


def test_changed_rules_apply_to_cached_request_templates(gate: FixedAdmission, client: RawClient) -> None:
    for value in (b"a", b"b", b"c"):
        produced(client, "t", value)
    gate.admission = Admission(refused=ErrorCode.TOPIC_AUTHORIZATION_FAILED, version=1)
    client.send(frame(produce_request("t", b"d"), PRODUCE))
    assert answer(client.read_frame())[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    gate.admission = ADMITTED
    assert len(values(client)) == 3


# Principals under TLS.


class Seeing:
    """A gate that admits all requests, and records their principals."""

    def __init__(self) -> None:
        self._gate = OpenGate()
        self.seen: list[tuple[Principal, Principal]] = []

    def admit(self, peer: Peer, request: Request, now: Moment) -> Admission:
        admission = self._gate.admit(peer, request, now)
        self.seen.append((peer.principal, admission.principal))
        return admission


def secured(port: int, authority: Authority, known: Known | None) -> RawClient:
    texts = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem}
    if known is not None:
        own = {"ssl.keystore.certificate.chain": known.chain, "ssl.keystore.key": known.key}
        texts |= {"ssl.keystore.type": "PEM", **own}
    client = RawClient(port)
    client.socket = client_context(TlsConfig.parse(texts)).wrap_socket(client.socket, server_hostname="localhost")
    return client


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_the_gate_gets_the_principal_of_the_certificate(tmp_path: Path, version: str) -> None:
    authority = Authority()
    own = authority.known("localhost")
    configs = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.client.auth": "requested",
        "ssl.enabled.protocols": version,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": own.chain,
        "ssl.keystore.key": own.key,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
    }
    gate = Seeing()
    with local_broker(tmp_path / "here", **configs) as broker:
        broker.on_loop(lambda running: setattr(running.shell, "gate", gate))
        for common_name in ("one, and only", None, "two"):
            known = None if common_name is None else authority.known("client", common_name=common_name)
            with secured(broker.port, authority, known) as client:
                client.ping()
                client.ping()
    assert all(peer == admitted for peer, admitted in gate.seen)
    one, again, *anonymous, two, _ = [peer for peer, _ in gate.seen]
    assert str(one).startswith("User:CN=one\\, and only,OU=") and one.name.endswith(",O=Odradek") and one == again
    assert anonymous == [ANONYMOUS] * 2
    assert two.name.startswith("CN=two,OU=")
