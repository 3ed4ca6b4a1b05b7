"""Plain Fetch requests, which return most records: a template match, with records to send.

The templates are in api/templates/fetch_template.py. Reading, handling and answering such a request costs half as much
as in api/fetch/fetch.py. Three kinds of request are left to fetch.py, which has all the rules, before anything is done:
requests that are not plain, find too few records, or would get an error.

A request for a single partition, or without a session, that has to wait for one record waits here. If its answer is
then no longer plain, fetch.py makes it. A fetch in a session of several partitions is plain if it names all that are
due in the session and all of them have records. If it is not plain, fetch.py handles it without parsing it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import cast

from odradek.api.fetch.fetch import TOPIC_IDS_SINCE, answer_in_context, answer_waiting, cached_partition_of, rules_of
from odradek.api.fetch.fetch_params import may_read
from odradek.api.request.call import Call, Peer
from odradek.api.request.outcome import NO_BODY, Encoded, ShortAnswer, Slices, Steps, encoded, has_slices, slice_of
from odradek.api.templates.fetch_template import FetchTemplate, numbers_of
from odradek.api.templates.template_cache import BODY_BYTES_MAX, PARTITIONS_MAX
from odradek.base.errors import Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import NO_EPOCH, CorrelationId, Offset, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.broker.broker import Broker
from odradek.core.fetch.disk_waits import ColdRead
from odradek.core.fetch.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, SESSIONLESS, FetchContext, FetchSession
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.leading import Leading
from odradek.core.partition.local_replica import LogReadInfo
from odradek.core.partition.partition import Partition
from odradek.core.partition.positions import ISOLATION_LEVELS
from odradek.core.partition.replica_selector import preferred_read_replica
from odradek.wire.messages.fetch import FetchRequest, FetchResponse
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.schema.primitives import Splice

_VERSION_MIN = 4
_NO_REPLICA = -1


def answer(broker: Broker, peer: Peer, request: Request, now: Moment) -> Encoded | ParkedRequest[Encoded] | Steps:
    """Answer or park a plain request, or wait for a disk; return None if the request is not plain."""
    found = peer.fetch_templates.match_request(request)
    if found is None:
        return None
    template, numbers = found
    epoch, offsets = template.epoch_and_offsets(numbers)
    session = broker.sessions.find_session(template.session_id)
    if template.session_id == SESSIONLESS:
        if epoch != FINAL_EPOCH:
            return None
    elif session is None or session.epoch != epoch or not _has_all(session, template):
        return None
    fetch = _PlainFetchRequest(broker, peer, request, now, template, session, offsets)
    if session is not None and len(session.partitions) > 1:
        return _answer_session(fetch, session)
    if len(offsets) > 1:
        return _answer_partitions(fetch)
    partition = _partition(fetch, 0)
    readable = None if partition is None else _read(broker, partition, template, 0, offsets[0], template.max_bytes)
    if partition is None or readable is None:
        return None
    size = readable.records.size
    if not size and template.may_wait:
        fetch.advance_session()
        return fetch.parked()
    if not size or size < template.min_bytes:
        return None
    fetch.advance_session()
    return fetch.answered([readable])


def _answer_partitions(fetch: _PlainFetchRequest) -> Encoded | ParkedRequest[Encoded]:
    """Answer or park a request of several partitions without a session."""
    template, found = fetch.template, _read_all(fetch)
    if found is None:
        return None
    if _size_of(found) >= template.min_bytes or template.max_wait_ms <= 0:
        return fetch.answered(found)
    return fetch.parked() if template.may_wait else None


def _answer_session(fetch: _PlainFetchRequest, session: FetchSession) -> Encoded | ParkedRequest[Encoded] | Steps:
    """Answer a request in a session of several partitions; it may name only some that are due."""
    if session.rules != rules_of(fetch.peer.admission, fetch.template.isolation_level):
        return None  # All partitions of the session are sent again.
    if len(session.due) > SLICE_ELEMENTS:
        return None
    found = _read_all(fetch, each_has_records=True) if fetch.names_all_due(session) else None
    fetch.advance_session()
    if found is not None and _size_of(found) >= fetch.template.min_bytes:
        return fetch.answered(found)
    fetch.request.body = NO_BODY
    context = FetchContext([], session, is_incremental=True)
    response = answer_in_context(fetch.call(), fetch.template.body, context)
    return _answer_after_read(fetch.request, response) if has_slices(response) else encoded(fetch.request, response)


def _answer_after_read(request: Request, slices: Slices) -> Steps:
    """Answer a request that has to wait for a disk."""
    try:
        wait = slice_of(slices)
        while True:
            wait = slice_of(slices, (yield wait))
    except StopIteration as done:
        short: ShortAnswer = done.value
        return encoded(request, short.answer)


def _read_all(fetch: _PlainFetchRequest, *, each_has_records: bool = False) -> list[LogReadInfo] | None:
    """Read all partitions that the request names; return None if `_read` does for one of them.

    With `each_has_records`, also return None if a partition has no records: the answer in a session omits it.
    """
    broker, template = fetch.broker, fetch.template
    partitions: list[Partition] = []
    for number, offset in enumerate(fetch.offsets):
        partition = _partition(fetch, number)
        if partition is None:
            return None
        if each_has_records and offset >= partition.readable_end(read_committed=template.is_read_committed):
            return None
        partitions.append(partition)
    left = most = min(template.max_bytes, broker.fetch_bytes_max)
    found = []
    for number, partition in enumerate(partitions):
        readable = _read(broker, partition, template, number, fetch.offsets[number], left, at_least_one=left == most)
        if readable is None or (each_has_records and not readable.records.size):
            return None
        left -= readable.records.size
        found.append(readable)
    return found


def _size_of(found: list[LogReadInfo]) -> int:
    return sum([info.records.size for info in found])


class _PlainFetchRequest:
    """A Fetch request that matches a template."""

    def __init__(  # noqa: PLR0917
        self,
        broker: Broker,
        peer: Peer,
        request: Request,
        now: Moment,
        template: FetchTemplate,
        session: FetchSession | None,
        offsets: tuple[Offset, ...],
    ) -> None:
        self.broker = broker
        self.peer = peer
        self.request = request
        self.now = now
        self.template = template
        self.session = session
        self.offsets = offsets
        # The session's partitions; the session may have ended before the answer is made.
        self.cached_partitions = (
            []
            if session is None
            else [session.partitions[cached_partition.key] for cached_partition in template.cached_partitions]
        )

    def call(self) -> Call:
        request = self.request
        correlation_id = CorrelationId(request.correlation_id)
        return Call(self.broker, self.peer, request.api_version, request.client_id, correlation_id, self.now)

    def has_preferred(self, leading: Leading, number: int) -> bool:
        """Return whether another replica is in the consumer's rack and has the requested offset (KIP-392)."""
        broker, offset = self.broker, self.offsets[number]
        if not broker.selects_by_rack:
            return False
        listener, rack = self.peer.listener, self.template.rack
        return preferred_read_replica(leading, broker.view, listener, rack, offset) is not None

    def names_all_due(self, session: FetchSession) -> bool:
        """Return whether the request names all partitions that are due, in the order of service."""
        if len(session.due) > len(self.offsets):
            return False
        return all(
            due.key == known.key for due, known in zip(session.due, self.template.cached_partitions, strict=False)
        )

    def advance_session(self) -> None:
        """Advance the session: its epoch, and the fetch offsets of the partitions."""
        session = self.session
        if session is None:
            return
        self.broker.sessions.advance_epoch(session, self.now.steady)
        for number, cached_partition in enumerate(self.cached_partitions):
            cached_partition.update_request_params(self.template.cached_partitions[number])
            cached_partition.fetch_offset = self.offsets[number]
            session.due[cached_partition] = None

    def parked(self) -> ParkedRequest[Encoded]:
        """Return the request parked until there is one record."""
        waiting = _DelayedPlainFetch(self)
        return ParkedRequest(waiting, self.now.steady + self.template.max_wait_ms, waiting.answer)

    def answered(self, found: list[LogReadInfo]) -> Encoded:
        """Return the answer's frame with the data read of each partition."""
        rows: list[tuple[int, ...]] = []
        records: list[Splice] = []
        for info in found:
            rows.append((info.high_watermark, info.last_stable_offset, info.log_start_offset))
            records.append(info.records)
        for number, cached_partition in enumerate(self.cached_partitions):
            cached_partition.remember_sent(found[number].high_watermark, found[number].log_start_offset)
        return self.template.answer.frame_with(self.request.correlation_id, rows, records)


def _partition(fetch: _PlainFetchRequest, number: int) -> Partition | None:
    """Return a partition that this broker may serve in the request's leader epoch; None for any other."""
    template = fetch.template
    partition = template.partitions[number].find_replica(fetch.broker)
    if partition is None:
        return None
    leading = partition.leading
    if leading is None:
        if not (template.allows_any_replica and partition.is_online):
            return None
    elif template.rack and fetch.has_preferred(leading, number):
        return None
    epoch = template.cached_partitions[number].current_leader_epoch
    return partition if epoch in (NO_EPOCH, partition.info.leader_epoch) else None


def _has_all(session: FetchSession, template: FetchTemplate) -> bool:
    """Return whether the session has all partitions of the template."""
    return all(cached_partition.key in session.partitions for cached_partition in template.cached_partitions)


def _read(  # noqa: PLR0917
    broker: Broker,
    partition: Partition,
    template: FetchTemplate,
    number: int,
    offset: Offset,
    bytes_max: int,
    at_least_one: bool = True,
) -> LogReadInfo | None:
    """Read one partition.

    Return None for an error, an aborted transaction to return, or data that is not in memory.
    """
    cached_partition = template.cached_partitions[number]
    bytes_max = min(cached_partition.max_bytes, bytes_max, broker.fetch_bytes_max)
    try:
        if partition.diverging_epoch(cached_partition.last_fetched_epoch, offset) is not None:
            return None
        readable = partition.read(
            offset, bytes_max, at_least_one=at_least_one, read_committed=template.is_read_committed, cached=True
        )
    except (Refused, ColdRead):
        return None
    return None if readable.aborted else readable


class _DelayedPlainFetch:
    """A plain fetch, of one partition or without a session, that waits for one record and then answers.

    It is answered with the rights that the request had on arrival.
    """

    def __init__(self, fetch: _PlainFetchRequest) -> None:
        self.keys = fetch.template.numbers  # Each partition and its number in the request.
        self._fetch = fetch
        self._call = fetch.call()
        fetch.request.body = NO_BODY

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        """Return whether there is a record, or the fetch is no longer plain."""
        fetch = self._fetch
        number = self.keys[cast(TopicPartition, key)]
        partition = _partition(fetch, number)
        if partition is None:
            return True
        offset = fetch.offsets[number]
        if offset < partition.readable_end(read_committed=fetch.template.is_read_committed):
            return True
        return _read(fetch.broker, partition, fetch.template, number, offset, fetch.template.max_bytes) is None

    def answer(self) -> Encoded:
        """Answer with the data that can be read now."""
        fetch = self._fetch
        found = _read_all(fetch)
        if found is None:
            return self._answer_in_full()
        if found[0].records.size or not fetch.cached_partitions:
            return fetch.answered(found)
        if fetch.cached_partitions[0].must_respond(found[0].high_watermark, found[0].log_start_offset):
            return fetch.answered(found)
        return encode_response(fetch.request, FetchResponse(session_id=fetch.template.session_id, responses=[]))

    def _answer_in_full(self) -> Encoded:
        fetch = self._fetch
        cached_partitions = fetch.cached_partitions or [
            cached_partition.at(offset)
            for cached_partition, offset in zip(fetch.template.cached_partitions, fetch.offsets, strict=True)
        ]
        context = FetchContext(cached_partitions, fetch.session, is_incremental=fetch.session is not None)
        return encode_response(fetch.request, answer_waiting(self._call, fetch.template.body, context))


def learn(broker: Broker, peer: Peer, request: Request, received: memoryview, body: FetchRequest) -> None:
    """Make a template of a request read from `received`, so that the next one like it may be plain."""
    version, known = request.api_version, peer.fetch_templates
    if version < _VERSION_MIN or len(received) > BODY_BYTES_MAX:
        return
    if not _is_learnable(body) or not known.make_room():
        return
    text = received.tobytes()
    if known.find_body(version, text) is not None:
        return
    by_id = version >= TOPIC_IDS_SINCE
    names, cached_partitions = [], []
    for topic in body.topics:
        name = broker.view.names.get(Uuid(topic.topic_id)) if by_id else TopicName(topic.topic)
        if name is None or not may_read(peer.admission.rights, name):
            return
        names += [TopicPartition(name, part.partition) for part in topic.partitions]
        cached_partitions += [cached_partition_of(topic, part, by_id) for part in topic.partitions]
    kind = tuple(names)
    if known.has_given_up(kind) or (len(names) > 1 and not known.note(kind)):
        return
    if all(name in broker.partitions for name in names):
        template = FetchTemplate(version, body, names, cached_partitions)
        if not known.learn(numbers_of(version, body), text, template, len(names)):
            known.give_up(kind)


def _is_learnable(body: FetchRequest) -> bool:
    """Return whether this is a consumer's fetch that neither starts nor ends a session."""
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
    """Return whether each partition is named once; a template's answer has one place for each."""
    if len({(topic.topic, topic.topic_id) for topic in body.topics}) < len(body.topics):
        return False
    return all(len({part.partition for part in topic.partitions}) == len(topic.partitions) for topic in body.topics)
