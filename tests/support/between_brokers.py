"""A broker in memory with its inter-broker queues, which are processed on request of the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from odradek.api.request.admission import Admission
from odradek.api.request.sliced_response import whole
from odradek.api.table import BY_KEY, IN_CLUSTER
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, ProducerId, TopicName
from odradek.core.broker.controller_queries import ControllerQueries
from odradek.core.broker.replicas import Errors
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import ControlRequest
from odradek.core.kernel.access import Operation, Principal
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.wire.catalog import APIS
from odradek.wire.schema.api_keys import ApiKey, request_header_version
from odradek.wire.schema.schema import schema_of
from support.in_memory import CLIENT, Harness, frame_of
from support.rights import Granted, on_cluster

Answer = TypeVar("Answer")

KEYS = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
LAST_VERSIONS = {key: schema_of(APIS[key][0]).versions[-1] for key in KEYS}
CASES = [(key, version) for key in KEYS for version in range(LAST_VERSIONS[key] + 1)]


def extend_table(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.setitem(BY_KEY, int(key), IN_CLUSTER[int(key)])


class BetweenBrokers:
    """The queues of a harness's broker, and their consumer."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.keeps = True  # The request stays in the next two; otherwise it is freed as in a broker.
        self.controller_requests: list[ControlRequest] = []
        self.queries: list[events.ControllerQuery[Any]] = []
        self.producer_ids: ProducerIdBlock | Refused = ProducerIdBlock(ProducerId(2000), ProducerId(2999))
        self.queues = ControllerQueries(harness.broker.purgatory, self._take_producer_ids)
        harness.broker.controller_queries = self.queues
        self.may(Operation.CLUSTER_ACTION)

    def may(self, *operations: Operation) -> None:
        self.harness.peer.admission = Admission(Principal("User", "other"), Granted([*on_cluster(*operations)]))

    def _take_producer_ids(self, broker: BrokerId, broker_epoch: int) -> ProducerIdBlock:
        self.queries.append(events.BrokerQuery(broker, broker_epoch))
        if isinstance(self.producer_ids, Refused):
            raise self.producer_ids
        return self.producer_ids

    def handle_requests(self, answer: Callable[[ControlRequest], Errors | Refused] | None = None) -> int:
        """Let the broker, or a test in its place, handle pending requests; return their number."""
        taken = self.queues.control_requests.take_queries()
        for one in taken:
            if self.keeps:
                self.controller_requests.append(one.query)
            one.complete(self._apply(one.query) if answer is None else answer(one.query))
        return len(taken)

    def _apply(self, sent: ControlRequest) -> Errors | Refused:
        broker = self.harness.broker
        overrides: dict[TopicName, dict[str, str]] = {name: {} for name in broker.controlled.names(sent)}
        try:
            return whole(broker.apply_controller_request(sent, overrides, self.harness.now))
        except Refused as refused:
            return refused

    def answer_queries(self, decide: Callable[[Any], object]) -> int:
        """Let `decide` set the response or error of all requests to the controller."""
        taken = self.queues.broker_requests.take_queries()
        for one in taken:
            if self.keeps:
                self.queries.append(one.query)
            decide(one.query)
            one.complete(one.query)
        return len(taken)

    def request(
        self,
        message: object,
        version: int,
        answer: type[Answer],
        *,
        respond: Callable[[ControlRequest], Errors | Refused] | None = None,
        decide: Callable[[Any], object] | None = None,
    ) -> Answer:
        """Send a request and wait for its response, without a deadline."""
        began = self.harness.now
        outcome = self.harness.send_frame(frame(message, version))
        if isinstance(outcome, ParkedRequest):
            assert self.handle_requests(respond) + self.answer_queries(decide or not_the_controller)
        decoded = self.harness.decoded(self.harness.finished(outcome), version, answer)
        assert self.harness.now == began
        return decoded


def frame(message: object, version: int) -> bytes:
    """Return a request frame; the header of ControlledShutdown v0 has no client id."""
    has_client = request_header_version(schema_of(type(message)).api_key or 0, version) > 0
    return frame_of(message, version, 1, CLIENT if has_client else "")


def not_the_controller(query: events.ControllerQuery[Any]) -> None:
    query.error = ErrorCode.NOT_CONTROLLER
