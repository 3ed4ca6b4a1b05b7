"""Plain fetches, which bring most records: they match a template (fetch_template.py), and there is something to send.

Reading, handling and answering one costs half of what it costs in fetch.py.  A request that is not plain, finds less
than it asks for, or would get an error, is left to fetch.py before anything was done: it has all the rules.  One of a
single partition, or without a session, that has to wait for one record waits here; if its answer is not plain then,
fetch.py makes it.  A fetch in a session of several partitions is plain if it names all that are due in the session and
all of them have records; if it is not plain, it need not be read, but fetch.py handles it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import cast

from odradek.api.fetch.fetch import TOPIC_IDS_SINCE, answer_begun, answer_waiting, rules_of, wanted_of
from odradek.api.request.call import Call, Peer
from odradek.api.request.outcome import NO_BODY, Encoded, Short, Slices, Steps, encoded, has_slices, slice_of
from odradek.api.templates.fetch_template import FetchTemplate, numbers_of
from odradek.api.templates.template_cache import BODY_BYTES_MAX, PARTITIONS_MAX
from odradek.base.errors import Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import NO_EPOCH, CorrelationId, Offset, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.broker.broker import Broker
from odradek.core.fetch.disk_waits import Cold
from odradek.core.fetch.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, SESSIONLESS, FetchRound, Session
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.parked import Parked
from odradek.core.partition.leading import Leading
from odradek.core.partition.partition import Partition, Readable
from odradek.core.partition.positions import ISOLATION_LEVELS
from odradek.core.partition.replica_selector import preferred_read_replica
from odradek.wire.messages.fetch import FetchRequest, FetchResponse
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.schema.primitives import Splice

_VERSION_MIN = 4
_NO_REPLICA = -1


def answer(broker: Broker, peer: Peer, request: Request, now: Moment) -> Encoded | Parked[Encoded] | Steps:
    """Answers or parks a plain request, or waits for a disk; returns None if the request is not plain."""
    found = peer.fetch_templates.find(request)
    if found is None:
        return None
    template, numbers = found
    epoch, offsets = template.asked(numbers)
    session = broker.sessions.find(template.session_id)
    if template.session_id == SESSIONLESS:
        if epoch != FINAL_EPOCH:
            return None
    elif session is None or session.epoch != epoch or not _has_all(session, template):
        return None
    asked = _Asked(broker, peer, request, now, template, session, offsets)
    if session is not None and len(session.wanted) > 1:
        return _answer_of_many(asked, session)
    if len(offsets) > 1:
        return _answer_named(asked)
    partition = _partition(asked, 0)
    readable = None if partition is None else _read(broker, partition, template, 0, offsets[0], template.max_bytes)
    if partition is None or readable is None:
        return None
    size = readable.records.size
    if not size and template.may_wait:
        asked.advance_session()
        return asked.parked()
    if not size or size < template.min_bytes:
        return None
    asked.advance_session()
    return asked.answered([readable])


def _answer_named(asked: _Asked) -> Encoded | Parked[Encoded]:
    """Answers or parks a request of several partitions without a session."""
    template, found = asked.template, _read_all(asked)
    if found is None:
        return None
    if _size_of(found) >= template.min_bytes or template.max_wait_ms <= 0:
        return asked.answered(found)
    return asked.parked() if template.may_wait else None


def _answer_of_many(asked: _Asked, session: Session) -> Encoded | Parked[Encoded] | Steps:
    """Answers a request in a session of several partitions; it may not name all that are due."""
    if session.rules != rules_of(asked.peer.admission, asked.template.isolation_level):
        return None  # All partitions of the session are told anew.
    if len(session.due) > SLICE_ELEMENTS:
        return None
    found = _read_all(asked, each_has_records=True) if asked.names_all_that_is_due(session) else None
    asked.advance_session()
    if found is not None and _size_of(found) >= asked.template.min_bytes:
        return asked.answered(found)
    asked.request.body = NO_BODY
    begun = FetchRound([], session, is_incremental=True)
    made = answer_begun(asked.call(), asked.template.body, begun)
    return _when_read(asked.request, made) if has_slices(made) else encoded(asked.request, made)


def _when_read(request: Request, slices: Slices) -> Steps:
    """Answers a request that has to wait for a disk."""
    try:
        wait = slice_of(slices)
        while True:
            wait = slice_of(slices, (yield wait))
    except StopIteration as done:
        short: Short = done.value
        return encoded(request, short.answer)


def _read_all(asked: _Asked, *, each_has_records: bool = False) -> list[Readable] | None:
    """Reads all partitions that the request names; returns None where `_read` does.

    With `each_has_records` also if one has none: the answer in a session leaves it out.
    """
    broker, template = asked.broker, asked.template
    partitions: list[Partition] = []
    for number, offset in enumerate(asked.offsets):
        partition = _partition(asked, number)
        if partition is None:
            return None
        if each_has_records and offset >= partition.readable_end(read_committed=template.is_read_committed):
            return None
        partitions.append(partition)
    left = most = min(template.max_bytes, broker.fetch_bytes_max)
    found = []
    for number, partition in enumerate(partitions):
        readable = _read(broker, partition, template, number, asked.offsets[number], left, at_least_one=left == most)
        if readable is None or (each_has_records and not readable.records.size):
            return None
        left -= readable.records.size
        found.append(readable)
    return found


def _size_of(found: list[Readable]) -> int:
    return sum([one.records.size for one in found])


class _Asked:
    """A fetch request that matches a template."""

    def __init__(  # noqa: PLR0917
        self,
        broker: Broker,
        peer: Peer,
        request: Request,
        now: Moment,
        template: FetchTemplate,
        session: Session | None,
        offsets: tuple[Offset, ...],
    ) -> None:
        self.broker = broker
        self.peer = peer
        self.request = request
        self.now = now
        self.template = template
        self.session = session
        self.offsets = offsets
        # The session's partitions; the session may have ended by the time of the answer.
        self.wanted = [] if session is None else [session.wanted[one.key] for one in template.wanted]

    def call(self) -> Call:
        request = self.request
        correlation_id = CorrelationId(request.correlation_id)
        return Call(self.broker, self.peer, request.api_version, request.client_id, correlation_id, self.now)

    def has_preferred(self, leading: Leading, number: int) -> bool:
        """True if another replica is in the consumer's rack, and has what it asks for (KIP-392)."""
        broker, offset = self.broker, self.offsets[number]
        if not broker.selects_by_rack:
            return False
        listener, rack = self.peer.listener, self.template.rack
        return preferred_read_replica(leading, broker.view, listener, rack, offset) is not None

    def names_all_that_is_due(self, session: Session) -> bool:
        """True if the request names all partitions that are due, in the order in which they would be served."""
        if len(session.due) > len(self.offsets):
            return False
        return all(due.key == known.key for due, known in zip(session.due, self.template.wanted, strict=False))

    def advance_session(self) -> None:
        """Advances the session: its epoch, and the fetch offsets of the partitions."""
        session = self.session
        if session is None:
            return
        self.broker.sessions.goes_on(session, self.now.steady)
        for number, wanted in enumerate(self.wanted):
            wanted.asks_again(self.template.wanted[number])
            wanted.fetch_offset = self.offsets[number]
            session.due[wanted] = None

    def parked(self) -> Parked[Encoded]:
        """Returns the request waiting for one record."""
        waiting = _Waiting(self)
        return Parked(waiting, self.now.steady + self.template.max_wait_ms, waiting.answer)

    def answered(self, found: list[Readable]) -> Encoded:
        """Returns the answer's frame with what was read of each partition."""
        rows: list[tuple[int, ...]] = []
        records: list[Splice] = []
        for one in found:
            rows.append((one.high_watermark, one.last_stable_offset, one.log_start_offset))
            records.append(one.records)
        for number, wanted in enumerate(self.wanted):
            wanted.told(found[number].high_watermark, found[number].log_start_offset)
        return self.template.answer.frame_with(self.request.correlation_id, rows, records)


def _partition(asked: _Asked, number: int) -> Partition | None:
    """Returns a partition that is read from here, in the leader epoch that the request names; None for any other."""
    template = asked.template
    partition = template.partitions[number].find(asked.broker)
    if partition is None:
        return None
    leading = partition.leading
    if leading is None:
        if not (template.may_ask_any and partition.is_online):
            return None
    elif template.rack and asked.has_preferred(leading, number):
        return None
    epoch = template.wanted[number].current_leader_epoch
    return partition if epoch in (NO_EPOCH, partition.info.leader_epoch) else None


def _has_all(session: Session, template: FetchTemplate) -> bool:
    """True if the session has all partitions of the template."""
    return all(one.key in session.wanted for one in template.wanted)


def _read(  # noqa: PLR0917
    broker: Broker,
    partition: Partition,
    template: FetchTemplate,
    number: int,
    offset: Offset,
    bytes_max: int,
    at_least_one: bool = True,
) -> Readable | None:
    """Reads one partition; returns None for an error, an aborted transaction to tell of, or a disk to wait for."""
    wanted = template.wanted[number]
    bytes_max = min(wanted.max_bytes, bytes_max, broker.fetch_bytes_max)
    try:
        if partition.diverging_epoch(wanted.last_fetched_epoch, offset) is not None:
            return None
        readable = partition.read(
            offset, bytes_max, at_least_one=at_least_one, read_committed=template.is_read_committed, cached=True
        )
    except (Refused, Cold):
        return None
    return None if readable.aborted else readable


class _Waiting:
    """A plain fetch that waits for one record, of a single partition or without a session; also makes its answer.

    It is answered by the rights that it came with.
    """

    def __init__(self, asked: _Asked) -> None:
        self.keys = asked.template.numbers  # A partition and its number in the request.
        self._asked = asked
        self._call = asked.call()
        asked.request.body = NO_BODY

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        """True if there is a record, or if the fetch is not plain any more."""
        asked = self._asked
        number = self.keys[cast(TopicPartition, key)]
        partition = _partition(asked, number)
        if partition is None:
            return True
        offset = asked.offsets[number]
        if offset < partition.readable_end(read_committed=asked.template.is_read_committed):
            return True
        return _read(asked.broker, partition, asked.template, number, offset, asked.template.max_bytes) is None

    def answer(self) -> Encoded:
        """Answers with what can be read now."""
        asked = self._asked
        found = _read_all(asked)
        if found is None:
            return self._answer_in_full()
        if found[0].records.size or not asked.wanted:
            return asked.answered(found)
        if asked.wanted[0].is_news(found[0].high_watermark, found[0].log_start_offset):
            return asked.answered(found)
        return encode_response(asked.request, FetchResponse(session_id=asked.template.session_id, responses=[]))

    def _answer_in_full(self) -> Encoded:
        asked = self._asked
        wanted = asked.wanted or [
            one.at(offset) for one, offset in zip(asked.template.wanted, asked.offsets, strict=True)
        ]
        begun = FetchRound(wanted, asked.session, is_incremental=asked.session is not None)
        return encode_response(asked.request, answer_waiting(self._call, asked.template.body, begun))


def learn(broker: Broker, peer: Peer, request: Request, received: memoryview, body: FetchRequest) -> None:
    """Makes a template of a request that was read from `received`, so that the next one like it may be plain."""
    version, known = request.api_version, peer.fetch_templates
    if version < _VERSION_MIN or len(received) > BODY_BYTES_MAX:
        return
    if not _is_learnable(body) or not known.make_room():
        return
    text = received.tobytes()
    if known.find_body(version, text) is not None:
        return
    by_id = version >= TOPIC_IDS_SINCE
    names, wanted = [], []
    for topic in body.topics:
        name = broker.view.names.get(Uuid(topic.topic_id)) if by_id else TopicName(topic.topic)
        if name is None or not peer.admission.rights.allows(Operation.READ, ResourceType.TOPIC, name):
            return
        names += [TopicPartition(name, part.partition) for part in topic.partitions]
        wanted += [wanted_of(topic, part, by_id) for part in topic.partitions]
    kind = tuple(names)
    if known.has_given_up(kind) or (len(names) > 1 and not known.note(kind)):
        return
    if all(name in broker.partitions for name in names):
        template = FetchTemplate(version, body, names, wanted)
        if not known.learn(numbers_of(version, body), text, template, len(names)):
            known.give_up(kind)


def _is_learnable(body: FetchRequest) -> bool:
    """True for a consumer's fetch of some partitions that neither begins nor ends a session."""
    if body.isolation_level not in ISOLATION_LEVELS:
        return False
    if body.replica_id != _NO_REPLICA or body.replica_state.replica_id != _NO_REPLICA or body.forgotten_topics_data:
        return False
    if body.session_epoch == INITIAL_EPOCH or (body.session_epoch == FINAL_EPOCH) != (body.session_id == SESSIONLESS):
        return False
    if len(body.topics) > PARTITIONS_MAX or not all(topic.partitions for topic in body.topics):
        return False
    parts = [part for topic in body.topics for part in topic.partitions]
    if not 0 < len(parts) <= PARTITIONS_MAX or body.max_bytes < 0 or not _are_named_once(body):
        return False
    return all(min(part.partition_max_bytes, part.current_leader_epoch + 1) >= 0 for part in parts)


def _are_named_once(body: FetchRequest) -> bool:
    """True if each partition is named once; a template's answer has one place for it."""
    if len({(topic.topic, topic.topic_id) for topic in body.topics}) < len(body.topics):
        return False
    return all(len({part.partition for part in topic.partitions}) == len(topic.partitions) for topic in body.topics)
