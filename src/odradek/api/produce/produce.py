"""Produce, versions 3 to 13.

Appends record batches to partitions. Batches of one connection are appended in the order in which they arrive. The
broker writes them together with the batches of other requests that arrived at the same time, and answers afterwards. A
batch that its producer sent before is not appended again; it gets the same answer as the first time.

The parameter acks determines the time of the answer:

- 0: there is no answer.
- 1: after the leader has written the batches.
- all (-1): after all in-sync replicas have the batches. On an unreplicated partition, this means after the batches are
  synced to disk.

Changes by version:

- v5: the response contains the log start offset.
- v8: record errors and an error message (KIP-467).
- v9: flexible.
- v10: returns the current leader when the request reached the wrong broker (KIP-951).
- v12: a transactional batch adds its partition to the transaction (KIP-890).
- v13: topics by id (KIP-516).
"""

from __future__ import annotations

from odradek.api.produce import txn_verification
from odradek.api.produce.produce_acks import (
    ACKS_ALL,
    ACKS_NONE,
    DelayedProduce,
    ProducePartitionStatus,
    check_unanswered,
)
from odradek.api.produce.produce_admission import (
    BatchAdmission,
    admit,
    request_error,
    takes_long,
    transactional_batches,
)
from odradek.api.produce.produce_in_slices import in_slices, stage_in_slices
from odradek.api.produce.produce_staging import error_response, stage_topic
from odradek.api.request.call import Call
from odradek.api.request.outcome import Slices
from odradek.base.errors import ErrorCode, Refused
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.transactions.verification import Verification
from odradek.record.record_batch import BatchHeader
from odradek.wire.messages.produce import ProduceRequest, ProduceResponse, TopicProduceResponse
from odradek.wire.schema.schema import maker

_answer = maker(ProduceResponse)


class PendingProduce:
    """A Produce request whose batches have their offsets; `settle` answers it after the broker's commit."""

    def __init__(
        self,
        now: Moment,
        acks: int,
        timeout_ms: int,
        response: ProduceResponse,
        appended: list[ProducePartitionStatus],
    ) -> None:
        self._now = now
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._response = response
        self.appended = appended

    def settle(self) -> ProduceResponse | ParkedRequest[ProduceResponse] | None:
        """Answer the request, or park it until its batches are acknowledged; return None with acks=0.

        Raise ConnectionAbortedError if there is an error and no answer to carry it.
        """
        response, waiting = self._response, DelayedProduce(self._acks)
        for appended in self.appended:
            refused = appended.append.refused
            if refused is not None:
                appended.fail(refused)
            elif appended.append.needs_sync or self._acks == ACKS_ALL:
                waiting.add(appended)
        if self._acks == ACKS_NONE:
            check_unanswered(response)
            return None
        return waiting.parked(response, self._now, self._timeout_ms) if waiting.pending else response


def handle(call: Call, body: ProduceRequest) -> PendingProduce | ProduceResponse | Slices | None:
    if takes_long(call, body):
        return in_slices(call, body)
    transactional = transactional_batches(body)
    error = request_error(call, body, transactional)
    if error:
        return refuse(call, body, error)
    if transactional and txn_verification.must_verify_first(call, body, transactional):
        return _after_verification(call, body, transactional)
    txn_verification.join_all(call, body, transactional)
    admitted = admit(call, body)
    return stage_in_slices(call, body, None) if admitted is None else _stage(call, body, admitted)


def refuse(call: Call, body: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    if body.acks == ACKS_NONE:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[error_response(part.index, Refused(code)) for part in topic.partition_data],
            )
            for topic in body.topic_data
        ]
    )


def _stage(
    call: Call, body: ProduceRequest, admitted: list[list[BatchAdmission]], verified: Verification | None = None
) -> PendingProduce:
    appended: list[ProducePartitionStatus] = []
    topics = [
        stage_topic(call, body, topic, admissions, appended, verified)
        for topic, admissions in zip(body.topic_data, admitted, strict=True)
    ]
    return PendingProduce(call.now, body.acks, body.timeout_ms, _answer(responses=topics), appended)


def _after_verification(call: Call, body: ProduceRequest, transactional: list[BatchHeader]) -> Slices:
    """Handle the request as `handle` does, after the transaction's coordinator has answered."""
    verified = yield from txn_verification.verify_all(call, body, transactional)
    admitted = None if takes_long(call, body) else admit(call, body)
    if admitted is not None:
        return _stage(call, body, admitted, verified)
    return (yield from stage_in_slices(call, body, verified))
