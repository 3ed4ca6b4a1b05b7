"""Produce, versions 3 to 13.

Order: batches of one connection are appended in the order received.  They are staged here, and written by the broker's
commit with those of the requests that came with them; the answer is made after it.  v5: log start offset in the answer.
v8: record errors and a sentence (KIP-467).  v9: flexible.  v10: the current leader for who asks the wrong broker
(KIP-951).  v12: a batch makes its partition part of its transaction (KIP-890).  v13: topics by id (KIP-516).  acks: 0
answers nothing, 1 after the write, all (-1) once the partition's in-sync replicas have it, which on an unreplicated
partition means: once it is synced to the disk.  A batch that its producer sent before is answered as it was then.
"""

from __future__ import annotations

from odradek.api.produce import txn_verification
from odradek.api.produce.produce_acks import ACKS_ALL, ACKS_NONE, Acknowledgement, Appended, check_unanswered
from odradek.api.produce.produce_in_slices import in_slices, staged_in_slices, takes_long
from odradek.api.produce.produce_parts import join, transactional_batches, wrong_as_a_whole
from odradek.api.produce.produce_staging import refused_part, stage_topic
from odradek.api.request.call import Call
from odradek.api.request.outcome import Slices
from odradek.base.errors import ErrorCode, Refused
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.parked import Parked
from odradek.core.transactions.verification import Verification
from odradek.record.record_batch import BatchHeader
from odradek.wire.messages.produce import ProduceRequest, ProduceResponse, TopicProduceResponse
from odradek.wire.schema.schema import maker

_answer = maker(ProduceResponse)


class PendingProduce:
    """A produce whose batches have their offsets; after the broker's commit, `settle` answers it."""

    def __init__(
        self,
        now: Moment,
        acks: int,
        timeout_ms: int,
        response: ProduceResponse,
        appended: list[Appended],
    ) -> None:
        self._now = now
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._response = response
        self.appended = appended

    def settle(self) -> ProduceResponse | Parked[ProduceResponse] | None:
        """Answers the request, or parks it until its batches are acknowledged; None with acks=0.

        Raises ConnectionAbortedError if there is an error and no answer to carry it.
        """
        response, waiting = self._response, Acknowledgement(self._acks)
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
    wrong = wrong_as_a_whole(call, body, transactional)
    if wrong is not None:
        return refuse(call, body, wrong)
    if transactional and txn_verification.asks_first(call, body, transactional):
        return _after_asking(call, body, transactional)
    join(call, body, transactional)
    return _staged(call, body)


def refuse(call: Call, body: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    if body.acks == ACKS_NONE:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[refused_part(part.index, Refused(code)) for part in topic.partition_data],
            )
            for topic in body.topic_data
        ]
    )


def _staged(call: Call, body: ProduceRequest, verified: Verification | None = None) -> PendingProduce:
    appended: list[Appended] = []
    response = _answer(responses=[stage_topic(call, body, topic, appended, verified) for topic in body.topic_data])
    return PendingProduce(call.now, body.acks, body.timeout_ms, response, appended)


def _after_asking(call: Call, body: ProduceRequest, transactional: list[BatchHeader]) -> Slices:
    """As `handle`, once the transaction's coordinator has answered."""
    verified = yield from txn_verification.asked(call, body, transactional)
    if not takes_long(call, body):  # A topic's configuration may have changed meanwhile.
        return _staged(call, body, verified)
    return (yield from staged_in_slices(call, body, verified))
