"""The fetch that brings most: it names one partition, and is like a request before (fetch_outlines.py).

Reading, handling and answering it costs half of what it costs in fetch.py.  Whatever is not plain, finds less than was
asked for, or would get an error, is left to fetch.py before anything was done: it has all the rules.  One that is to
wait for the first record waits here; if its answer is not plain then, fetch.py makes it.  That of a session with more
partitions is plain if nothing else is due; if not it need not be read, but fetch.py handles it.
"""

from __future__ import annotations

from collections.abc import Hashable

from odradek.api.call import Call, Peer
from odradek.api.fetch import TOPIC_IDS_SINCE, answer_begun, answer_waiting, rules_of, wanted_of
from odradek.api.fetch_outlines import FetchOutline
from odradek.api.isolation import ISOLATION_LEVELS
from odradek.api.outcome import NO_BODY, Encoded, encoded
from odradek.base.errors import Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import NO_EPOCH, CorrelationId, Offset, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.access import Operation, ResourceType
from odradek.core.broker import Broker
from odradek.core.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, SESSIONLESS, FetchRound, Session
from odradek.core.moment import Moment
from odradek.core.parked import Parked
from odradek.core.partition import Partition, Readable
from odradek.wire.messages.fetch import FetchRequest, FetchResponse
from odradek.wire.request import Request
from odradek.wire.response import encode_response

_VERSION_MIN = 4
_NO_REPLICA = -1


def answer(broker: Broker, peer: Peer, request: Request, now: Moment) -> Encoded | Parked[Encoded]:
    """None if it is not plain."""
    found = peer.fetch_outlines.find(request)
    if found is None:
        return None
    outline, epoch, offset = found
    partition = _partition(broker, outline)
    if partition is None:
        return None
    session = broker.sessions.find(outline.session_id)
    if not _is_next_of(session, epoch, outline):
        return None
    if session is not None and len(session.wanted) > 1:
        return _answer_of_many(broker, peer, request, now, outline, session, offset)
    readable = _read(broker, partition, outline, offset)
    if readable is None:
        return None
    size = readable.records.size
    if not size and outline.may_wait:
        if session is not None:
            _goes_on(broker, session, outline, offset, now)
        waiting = _Waiting(_call(broker, peer, request, now), request, outline, partition, session, offset)
        return Parked(waiting, now.steady + outline.max_wait_ms, waiting.answer)
    if not size or size < outline.min_bytes:
        return None
    if session is not None:
        _goes_on(broker, session, outline, offset, now)
        session.wanted[outline.wanted.key].told(readable.high_watermark, readable.log_start_offset)
    return _encoded(request, outline, readable)


def _answer_of_many(  # noqa: PLR0917
    broker: Broker,
    peer: Peer,
    request: Request,
    now: Moment,
    outline: FetchOutline,
    session: Session,
    offset: Offset,
) -> Encoded | Parked[Encoded]:
    """The session has more partitions than the request names."""
    if session.rules != rules_of(peer.admission, outline.isolation_level) or len(session.due) > SLICE_ELEMENTS:
        return None
    _goes_on(broker, session, outline, offset, now)
    if len(session.due) == 1:
        partition = _partition(broker, outline)
        readable = None if partition is None else _read(broker, partition, outline, offset)
        if readable is not None and readable.records.size >= max(outline.min_bytes, 1):
            session.wanted[outline.wanted.key].told(readable.high_watermark, readable.log_start_offset)
            return _encoded(request, outline, readable)
    request.body = NO_BODY
    begun = FetchRound([], session, is_incremental=True)
    return encoded(request, answer_begun(_call(broker, peer, request, now), outline.body, begun))


def _call(broker: Broker, peer: Peer, request: Request, now: Moment) -> Call:
    correlation_id = CorrelationId(request.correlation_id)
    return Call(broker, peer, request.api_version, request.client_id, correlation_id, now)


def _goes_on(broker: Broker, session: Session, outline: FetchOutline, offset: Offset, now: Moment) -> None:
    broker.sessions.goes_on(session, now.steady)
    wanted = session.wanted[outline.wanted.key]
    wanted.asks_again(outline.wanted)
    wanted.fetch_offset = offset
    session.due[wanted] = None


def _encoded(request: Request, outline: FetchOutline, readable: Readable) -> Encoded:
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


def _is_next_of(session: Session | None, epoch: int, outline: FetchOutline) -> bool:
    """And asks for what the session has; or the request is of none."""
    if outline.session_id == SESSIONLESS:
        return epoch == FINAL_EPOCH
    return session is not None and session.epoch == epoch and outline.wanted.key in session.wanted


def _read(broker: Broker, partition: Partition, outline: FetchOutline, offset: Offset) -> Readable | None:
    """None if there is an error, or an aborted transaction to tell of."""
    max_bytes = min(outline.wanted.max_bytes, outline.max_bytes, broker.fetch_bytes_max)
    try:
        if partition.diverging_epoch(outline.wanted.last_fetched_epoch, offset) is not None:
            return None
        readable = partition.read(offset, max_bytes, at_least_one=True, read_committed=outline.is_read_committed)
    except Refused:
        return None
    return None if readable.aborted else readable


class _Waiting:
    """A fetch that waits for the first record: its condition, and its answer, by the rights it came with."""

    def __init__(  # noqa: PLR0917
        self,
        call: Call,
        request: Request,
        outline: FetchOutline,
        partition: Partition,
        session: Session | None,
        offset: Offset,
    ) -> None:
        self.keys = (outline.name,)
        self._call = call
        self._request = request
        request.body = NO_BODY
        self._outline = outline
        self._partition = partition
        self._session = session
        self._wanted = None if session is None else session.wanted[outline.wanted.key]
        self._offset = offset

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        """True for a record, or if it is not plain any more."""
        end = self._partition.readable_end(read_committed=self._outline.is_read_committed)
        return self._offset < end or self._read() is None

    def _read(self) -> Readable | None:
        broker = self._call.broker
        partition = _partition(broker, self._outline)
        return None if partition is None else _read(broker, partition, self._outline, self._offset)

    def answer(self) -> Encoded:
        """Whatever there is by now."""
        readable = self._read()
        if readable is None:
            return self._answer_in_full()
        wanted = self._wanted
        if wanted is not None:
            is_news = wanted.is_news(readable.high_watermark, readable.log_start_offset)
            if not is_news and not readable.records.size:
                return encode_response(self._request, FetchResponse(session_id=self._outline.session_id, responses=[]))
            wanted.told(readable.high_watermark, readable.log_start_offset)
        return _encoded(self._request, self._outline, readable)

    def _answer_in_full(self) -> Encoded:
        wanted = self._wanted or self._outline.wanted.at(self._offset)
        begun = FetchRound([wanted], self._session, is_incremental=self._session is not None)
        return encode_response(self._request, answer_waiting(self._call, self._outline.body, begun))


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
