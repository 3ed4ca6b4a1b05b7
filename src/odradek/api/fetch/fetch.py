"""Fetch, versions 4 to 18.

Returns whole record batches, as they are on disk. A fetch offset inside a batch returns that batch. A consumer with
isolation level read_committed gets records below the last stable offset, and the list of aborted transactions among
them. A follower names its broker id and reads up to the end of the log; the leader learns from its fetches which
records the follower has. The broker divides a fetch of many partitions into slices and serves other connections in
between. Later requests of the same connection wait for it, as in Kafka.

- v5: log start offset.
- v7: incremental sessions (KIP-227).
- v9: the client's leader epoch is checked (KIP-320).
- v11: followers serve consumers, and a leader names a follower in the client's rack (KIP-392).
- v12: flexible. The response contains the point where the reader's log diverges (KIP-595).
- v13: topics by id (KIP-516).
- v15: the replica id is a tagged field (KIP-903).
- v16: returns the current leader when the request reached the wrong broker (KIP-951).

Differences from Apache Kafka:

- The last batch of a response is never cut short.
- A session's partition that the request does not name, and that has no new data, gets no hint of a better replica to
  read from. The hint comes with the partition's next record.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias

from odradek.api.fetch.delayed_fetch import DelayedFetch
from odradek.api.fetch.fetch_read import FetchRead
from odradek.api.fetch.fetch_response import error_result
from odradek.api.fetch.follower_fetch import follower_of
from odradek.api.request.admission import Admission
from odradek.api.request.call import Call
from odradek.api.request.outcome import ShortAnswer, Slices, Wait
from odradek.api.request.sliced_response import Parts, first_wait, nothing, whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.tuples import new_tuple
from odradek.base.units import NO_BROKER, NO_EPOCH, BrokerId
from odradek.base.uuids import Uuid
from odradek.core.fetch.fetch_sessions import CachedPartition, FetchContext, FetchKey, ReadPermissions
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.positions import ISOLATION_LEVELS
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

TOPIC_IDS_SINCE = 13
TOP_LEVEL_ERROR_SINCE = 7
Answering: TypeAlias = Generator[Wait, object, FetchResponse | ParkedRequest[FetchResponse]]


def handle(call: Call, body: FetchRequest) -> FetchResponse | ParkedRequest[FetchResponse] | Slices:
    if body.isolation_level not in ISOLATION_LEVELS:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown isolation level {body.isolation_level}")
    if _is_long(call, body):
        return _in_slices(call, body)
    try:
        context = whole(_new_context(call, body))
    except Refused as refusal:
        return FetchResponse(error_code=refusal.code, responses=[])
    return answer_in_context(call, body, context)


def answer_in_context(
    call: Call, body: FetchRequest, context: FetchContext
) -> FetchResponse | ParkedRequest[FetchResponse] | Slices:
    """Answer or park a short request whose partitions are in `context`, or due in its session."""
    answering = _answer(call, body, FetchRead(call, body, context))
    try:
        return _answer_after_wait(answering, first_wait(answering))
    except StopIteration as done:
        answer: FetchResponse | ParkedRequest[FetchResponse] = done.value
        return answer


def _answer(call: Call, body: FetchRequest, fetch: FetchRead) -> Answering:
    deadline = call.now.steady + body.max_wait_ms
    read = yield from fetch.read_after_loading()
    if body.max_wait_ms <= 0 or fetch.is_enough:
        return whole(fetch.respond(read))
    delayed = whole(DelayedFetch(fetch).watch(read))
    # A follower's progress can end a transaction on this broker, whose markers are in partitions that were already
    # read.
    if fetch.params.follower is not None and delayed.recheck():
        return fetch.answer()
    return ParkedRequest(delayed, deadline, fetch.answer)


def _answer_after_wait(answering: Answering, wait: Wait) -> Slices:
    yield wait
    return ShortAnswer((yield from answering))


def answer_waiting(call: Call, body: FetchRequest, context: FetchContext) -> FetchResponse:
    """Answer a short request that waited elsewhere, with the data that can be read now."""
    return FetchRead(call, body, context).answer()


def _is_long(call: Call, body: FetchRequest) -> bool:
    """Return whether one slice is too short for all partitions.

    Most partitions that an incremental fetch names are due already.
    """
    session = call.broker.sessions.find_session(body.session_id)
    if session is not None:
        is_as_before = session.rules == _rules(call, body)
        if len(session.due if is_as_before else session.partitions) > SLICE_ELEMENTS:
            return True
    count = sum(len(topic.partitions) for topic in body.topics)
    count += sum(len(topic.partitions) for topic in body.forgotten_topics_data)
    return count > SLICE_ELEMENTS


def _in_slices(call: Call, body: FetchRequest) -> Slices:
    deadline = call.now.steady + body.max_wait_ms
    try:
        fetch = FetchRead(call, body, (yield from _new_context(call, body)))
    except Refused as refusal:
        return FetchResponse(error_code=refusal.code, responses=[])
    call.free_later(fetch)
    read = yield from fetch.read_after_loading()
    call.free_later(read)
    if body.max_wait_ms > 0 and not fetch.is_enough:
        arrived = yield from DelayedFetch(fetch).watch(read)
        if not arrived.recheck():
            yield ParkedRequest(arrived, deadline, nothing)
        read = yield from fetch.read_after_loading()
        call.free_later(read)
    return (yield from fetch.respond(read))


def refuse(call: Call, body: FetchRequest, code: ErrorCode) -> FetchResponse:
    if call.version >= TOP_LEVEL_ERROR_SINCE:
        return FetchResponse(error_code=code, responses=[])
    parts = ((topic.topic, part.partition) for topic in body.topics for part in topic.partitions)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(topic=topic, partitions=[error_result(index, code)]) for topic, index in parts
        ]
    )


def cached_partition_of(topic: FetchTopic, part: FetchPartition, by_id: bool) -> CachedPartition:
    return CachedPartition(
        new_tuple(FetchKey, (Uuid(topic.topic_id) if by_id else topic.topic, part.partition)),
        part.fetch_offset,
        part.partition_max_bytes,
        max(part.current_leader_epoch, NO_EPOCH),  # Any negative number means that no epoch is given.
        part.last_fetched_epoch,
        part.log_start_offset,
    )


def _new_context(call: Call, body: FetchRequest) -> Parts[FetchContext]:
    """Merge the request into its session. Raise Refused."""
    by_id = call.version >= TOPIC_IDS_SINCE
    cached_partitions: dict[FetchKey, CachedPartition] = {}
    call.free_later(cached_partitions)
    for topic in body.topics:
        for part in topic.partitions:
            cached_partition = cached_partition_of(topic, part, by_id)
            cached_partitions[cached_partition.key] = cached_partition
            yield
    forgotten = []
    for forgotten_topic in body.forgotten_topics_data:
        named = Uuid(forgotten_topic.topic_id) if by_id else forgotten_topic.topic
        for index in forgotten_topic.partitions:
            forgotten.append(FetchKey(named, index))
            yield
    call.peer.is_follower = _is_privileged(call, body)
    context = yield from call.broker.sessions.begin_round(
        body.session_id,
        body.session_epoch,
        cached_partitions,
        forgotten,
        uses_ids=by_id,
        steady=call.now.steady,
        is_privileged=call.peer.is_follower,
    )
    session = context.session
    if session is not None and session.rules != (rules := _rules(call, body)):
        session.rules = rules
        for cached_partition in list(session.partitions.values()):
            if cached_partition.session is session:  # Another request may have forgotten it, or closed the session.
                session.due[cached_partition] = None
            yield
    return context


def _is_privileged(call: Call, body: FetchRequest) -> bool:
    """Return whether the request is a follower's, whose session has priority over a consumer's."""
    return follower_of(body, call.version) is not None and call.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)


def _rules(call: Call, body: FetchRequest) -> ReadPermissions:
    follower = follower_of(body, call.version)
    return rules_of(call.admission, body.isolation_level, NO_BROKER if follower is None else follower.broker)


def rules_of(admission: Admission, isolation_level: int, follower: BrokerId = NO_BROKER) -> ReadPermissions:
    return ReadPermissions(admission.principal, admission.version, isolation_level, follower)
