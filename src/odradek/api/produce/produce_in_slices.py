"""Produce requests that take long: very many partitions, or batches that a thread must inspect first.

They are staged and written in slices. Other connections are served between slices; later requests of the same
connection wait.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from odradek.api.produce import txn_verification
from odradek.api.produce.produce_acks import (
    ACKS_ALL,
    ACKS_NONE,
    DelayedProduce,
    ProducePartitionStatus,
    check_unanswered,
)
from odradek.api.produce.produce_admission import (
    FIRST_WRITE_PARTS,
    INSPECTED_PARTS,
    AdmittedBatch,
    BatchAdmission,
    admit_batch,
    admit_topic,
    request_error,
    transactional_of,
)
from odradek.api.produce.produce_staging import named_max_of, stage_partition, topic_answer
from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices, Wait
from odradek.api.request.sliced_response import pauses
from odradek.base.errors import Refused
from odradek.core.configs.topic_configs import TopicConfigs
from odradek.core.kernel.work import Work
from odradek.core.partition import ingress
from odradek.core.transactions.verification import Verification
from odradek.record.record_batch import Batch, BatchHeader
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.wire.schema.schema import maker

_answer = maker(ProduceResponse)


def in_slices(call: Call, body: ProduceRequest) -> Slices:
    """Handle the request as `produce.handle` does, in slices; as in Kafka, later requests wait."""
    transactional: list[BatchHeader] = []
    for topic in body.topic_data:
        for part in topic.partition_data:
            transactional += transactional_of(part)
            yield PAUSE
    error = request_error(call, body, transactional)
    if error:
        if body.acks == ACKS_NONE:
            return None
        raise Refused(error)
    verified = yield from txn_verification.verify_all(call, body, transactional)
    if verified is None:
        txn_verification.join_all(call, body, transactional)
    return (yield from stage_in_slices(call, body, verified))


def stage_in_slices(call: Call, body: ProduceRequest, verified: Verification | None) -> Slices:
    waiting = DelayedProduce(body.acks)
    topics = []
    for topic in body.topic_data:
        topics.append((yield from _stage_topic_in_slices(call, body, topic, waiting, verified)))  # noqa: PERF401
    return (yield from _settle_in_slices(call, body, _answer(responses=topics), waiting))


def _settle_in_slices(call: Call, body: ProduceRequest, response: ProduceResponse, waiting: DelayedProduce) -> Slices:
    """Answer as PendingProduce.settle does, in slices. Raise ConnectionAbortedError."""
    if body.acks == ACKS_NONE:
        check_unanswered(response)
        return None
    if waiting.pending:
        yield waiting.parked(None, call.now, body.timeout_ms)
        yield from waiting.settle()
    return response


def _stage_topic_in_slices(
    call: Call,
    body: ProduceRequest,
    topic: TopicProduceData,
    waiting: DelayedProduce,
    verified: Verification | None,
) -> Generator[Wait, object, TopicProduceResponse]:
    """Stage and commit a topic's batches one by one.

    A finished batch leaves only its answer: the rest is most of the memory of a hundred thousand batches.
    """
    parts, named_max = [], named_max_of(body, topic)
    for part in topic.partition_data:
        admitted = yield from _admit(call, topic, part)
        leading = None if isinstance(admitted, Refused) else admitted.leading
        is_first = leading is not None and leading.is_new
        appended: list[ProducePartitionStatus] = []
        parts.append(stage_partition(call, body, part.index, admitted, appended, named_max, verified))
        call.broker.commit(call.now)  # Nothing stays staged while other requests run.
        for status in appended:
            if status.append.refused is not None:
                status.fail(status.append.refused)
            elif status.append.needs_sync or body.acks == ACKS_ALL:
                waiting.add(status)
        if is_first:
            yield from pauses(FIRST_WRITE_PARTS)
        if leading is not None and ingress.needs_record_checks(leading.partition.configs):
            yield from pauses(INSPECTED_PARTS)
        part.records = None
        yield PAUSE
    return topic_answer(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)


def _admit(call: Call, topic: TopicProduceData, part: PartitionProduceData) -> Generator[Wait, object, BatchAdmission]:
    """Admit one batch; a thread inspects its records if that takes long.

    Rights, leadership and the topic's configuration may change while the thread works, so all are checked again.
    """
    inspected: Batch | None = None
    configs: TopicConfigs | None = None
    needs_record_checks = False
    while True:
        name = admit_topic(call, topic)
        if isinstance(name, Refused):
            return name
        try:
            leading = call.broker.leader(name, part.index)
            partition = leading.partition
            needs_record_checks = ingress.needs_record_checks(partition.configs)
            if inspected is not None and partition.configs is configs:
                return AdmittedBatch(leading, ingress.fitting(partition, inspected))
            batch = admit_batch(partition, part.records, call.version, call.now)
            if batch is not None:
                return AdmittedBatch(leading, batch)
            configs = partition.configs
            batch = ingress.checked(partition, part.records, call.now)
            work = Work(partial(ingress.validate_records, partition.topic_partition, configs, batch, call.now))
            result = yield work
        except Refused as refused:
            failed = refused.with_traceback(None)
            break
        assert isinstance(result, Batch)
        inspected = result
    if needs_record_checks:  # The records may have been read.
        yield from pauses(INSPECTED_PARTS)  # Not in the except clause: compiled, it would keep the exception for ever.
    return failed
