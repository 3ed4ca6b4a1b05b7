"""The fetch that brings most: one partition, records there, and a request like one before (fetch_outlines.py).

Reading, handling and answering it costs half of what it costs in fetch.py.  Whatever is not plain, finds nothing to
send, or would get an error, is left to fetch.py before anything was done: it has all the rules.
"""

from __future__ import annotations

from odradek.api.call import Peer
from odradek.api.fetch import TOPIC_IDS_SINCE, wanted_of
from odradek.api.fetch_outlines import FetchOutline
from odradek.api.isolation import ISOLATION_LEVELS
from odradek.api.outcome import Encoded
from odradek.base.errors import Refused
from odradek.base.units import NO_EPOCH, Offset, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.access import Operation, ResourceType
from odradek.core.broker import Broker
from odradek.core.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, SESSIONLESS, Session
from odradek.core.moment import Moment
from odradek.core.partition import Partition, Readable
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.request import Request

_VERSION_MIN = 4
_NO_REPLICA = -1


def answer(broker: Broker, peer: Peer, request: Request, now: Moment) -> Encoded:
    """None if it is not plain."""
    found = peer.fetch_outlines.find(request)
    if found is None:
        return None
    outline, epoch, offset = found
    partition = _partition(broker, outline)
    if partition is None or offset >= partition.positions.high_watermark:
        return None
    session = None
    if outline.session_id != SESSIONLESS:
        session = broker.sessions.find(outline.session_id)
        if session is None or not _is_next_of(session, epoch, outline):
            return None
    elif epoch != FINAL_EPOCH:
        return None
    readable = _read(broker, partition, outline, offset)
    if readable is None:
        return None
    if session is not None:
        broker.sessions.goes_on(session, now.steady)
        wanted = session.wanted[outline.wanted.key]
        wanted.asks_again(outline.wanted)
        wanted.fetch_offset = offset
        wanted.is_news(readable.high_watermark, readable.log_start_offset)
    return outline.answer.encode(
        request,
        readable.high_watermark,
        readable.last_stable_offset,
        readable.log_start_offset,
        readable.records,
    )


def _partition(broker: Broker, outline: FetchOutline) -> Partition | None:
    partition = outline.find(broker)
    if partition is None or outline.wanted.current_leader_epoch not in (NO_EPOCH, partition.info.leader_epoch):
        return None
    return partition


def _is_next_of(session: Session, epoch: int, outline: FetchOutline) -> bool:
    """And asks for all that the session has."""
    return session.epoch == epoch and len(session.wanted) == 1 and outline.wanted.key in session.wanted


def _read(broker: Broker, partition: Partition, outline: FetchOutline, offset: Offset) -> Readable | None:
    """None if there is less than was asked for, an error, or an aborted transaction to tell of."""
    max_bytes = min(outline.wanted.max_bytes, outline.max_bytes, broker.fetch_bytes_max)
    try:
        if partition.diverging_epoch(outline.wanted.last_fetched_epoch, offset) is not None:
            return None
        readable = partition.read(offset, max_bytes, at_least_one=True, read_committed=outline.is_read_committed)
    except Refused:
        return None
    size = readable.records.size
    return readable if size and size >= outline.min_bytes and not readable.aborted else None


def learn(broker: Broker, peer: Peer, request: Request, received: memoryview, body: FetchRequest) -> None:
    """A request was read from `received`: the next one like it may be plain."""
    version, known = request.api_version, peer.fetch_outlines
    if version < _VERSION_MIN or not _is_learnable(body) or not known.may_learn(version, received.tobytes()):
        return
    (topic,) = body.topics
    (part,) = topic.partitions
    by_id = version >= TOPIC_IDS_SINCE
    name = broker.view.names.get(Uuid(topic.topic_id)) if by_id else TopicName(topic.topic)
    if name is None or not peer.admission.rights.allows(Operation.READ, ResourceType.TOPIC, name):
        return
    if (at := TopicPartition(name, part.partition)) in broker.partitions:
        known.learn(version, body, at, wanted_of(topic, part, by_id), received.tobytes())


def _is_learnable(body: FetchRequest) -> bool:
    """A consumer's, for one partition, not the first of a session or its last."""
    if body.isolation_level not in ISOLATION_LEVELS:
        return False
    if body.replica_id != _NO_REPLICA or body.replica_state.replica_id != _NO_REPLICA or body.forgotten_topics_data:
        return False
    if body.session_epoch == INITIAL_EPOCH or (body.session_epoch == FINAL_EPOCH) != (body.session_id == SESSIONLESS):
        return False
    if len(body.topics) != 1 or len(body.topics[0].partitions) != 1:
        return False
    (part,) = body.topics[0].partitions
    return min(body.max_bytes, part.partition_max_bytes, part.current_leader_epoch + 1) >= 0
