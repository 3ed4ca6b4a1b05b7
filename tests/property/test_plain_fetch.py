"""Fetch requests recognised by a template: they have the same effects as parsed ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random

import pytest

from odradek.api.conversation import Conversation
from odradek.api.fetch import plain_fetch
from odradek.api.request.outcome import Encoded
from odradek.api.templates.template_cache import NumbersTemplates
from odradek.base.errors import ErrorCode
from odradek.base.limits import FETCH_TEMPLATES_MAX
from odradek.base.units import INT32_MAX, ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.fetch.fetch_sessions import CachedPartition
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.log.files.disk import FileSlice
from odradek.log.log.durability import begin_flush
from odradek.log.log.flush import Flush
from odradek.record.builder import encode_batch
from odradek.wire.client_codec import decode_response, encode_request
from odradek.wire.connection import Connection
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.wire.schema.malformed import Malformed
from support.alike import Damage, Usual, lengthen
from support.in_memory import NOW_MS, Harness

VERSIONS = range(4, 19)
STEPS = 4_000
TOPIC_IDS_SINCE = 13


Event = Callable[["Side"], None]


class Side(Harness):
    """A broker with a topic of two partitions, and the outcomes of all requests."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, fetch_max_bytes="5000", transaction_partition_verification_enable="false")
        self.create()
        self.recognised = 0
        self.waited = 0
        self.waited_for_several = 0
        self.woken: list[bool] = []  # How parked requests completed: by an event, or by their deadline.

    def create(self) -> None:
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        self.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)

    def delete(self) -> None:
        self.request(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 3, DeleteTopicsResponse)

    def produce(self, index: int, batch: bytes) -> None:
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=index, records=batch)])
        request = ProduceRequest(transactional_id="tx", acks=1, timeout_ms=1_000, topic_data=[data])
        self.request(request, 9, ProduceResponse)

    def end_transaction(self, index: int, producer: int, *, commit: bool) -> None:
        name = TopicPartition(TopicName("t"), index)
        partition = self.broker.partitions.get(name)
        if partition is not None:
            epoch = ProducerEpoch(0)
            partition.leader().end_transaction(ProducerId(producer), epoch, 0, commit=commit, now=self.now)
            partition.flushed(_flushed(begin_flush(partition.log)), self.now)

    def play(self, frame: bytes, event: Event | None = None) -> tuple[bool, bytes | str]:
        """Return whether the request had to wait, and its response. `event` runs if it waits."""
        (request,) = Connection().receive_data(frame)
        self.recognised += self.peer.fetch_templates.match_request(request) is not None
        try:
            outcome = self.send_frame(frame)
            has_waited = isinstance(outcome, ParkedRequest)
            if isinstance(outcome, ParkedRequest) and isinstance(outcome.condition, plain_fetch._DelayedPlainFetch):
                self.waited += 1
                self.waited_for_several += len(outcome.condition.keys) > 1
            chunks = self.finished(outcome) if event is None else self.finished_after(outcome, event)
        except Malformed as closed:
            return False, str(closed)
        assert chunks is not None
        return has_waited, b"".join(map(_bytes, chunks))

    def finished_after(self, outcome: Encoded | ParkedRequest[Encoded], event: Event) -> Encoded:
        """Return the response of a request after an event that may complete it or not."""
        if not isinstance(outcome, ParkedRequest):
            return outcome
        event(self)
        is_woken = not any(outcome in bucket for bucket in self.broker.purgatory._by_bucket.values())
        self.woken.append(is_woken)
        if not is_woken:
            return self.finished(outcome)
        self.broker.purgatory.take_completed()
        talk = outcome.owner
        assert isinstance(talk, Conversation)
        talk.answer_parked(outcome, self.now)
        return talk.data_to_send()

    def sessions(self) -> list[object]:
        """Return the sessions, to be compared by the state of their clients."""
        return [
            (one.id, one.uses_ids, one.epoch, one.last_used, set(map(_facts, one.partitions.values())))
            for one in self.broker.sessions._sessions.values()
        ]


def _facts(partition: CachedPartition) -> object:
    requested = (
        partition.fetch_offset,
        partition.max_bytes,
        partition.current_leader_epoch,
        partition.last_fetched_epoch,
    )
    return partition.key, *requested, partition.sent_high_watermark, partition.sent_log_start


def _flushed(flush: Flush) -> Flush:
    flush.run()
    return flush


def _bytes(chunk: object) -> bytes:
    assert isinstance(chunk, bytes | FileSlice)
    return chunk if isinstance(chunk, bytes) else chunk.read()


class Forgetful(Side):
    """A client whose every request is the first of its connection."""

    def play(self, frame: bytes, event: Event | None = None) -> tuple[bool, bytes | str]:
        self.peer.fetch_templates = NumbersTemplates(FETCH_TEMPLATES_MAX)
        return super().play(frame, event)


class Habits:
    """Common properties of one consumer's requests, mostly ordinary."""

    def __init__(self, random: Random) -> None:
        usually = Usual(random, 0.8)
        self.version = random.choice(VERSIONS)
        self.has_session = self.version >= 7 and random.random() < 0.5
        self.partitions = random.choice([[0], [0], [0], [1], [0, 1], [0, 1], [1, 0], [7], []])
        self.partition_max_bytes = usually(1000, 0, 1, 10_000, -1)
        self.current_leader_epoch = usually(-1, 0, 1, -2) if self.version >= 9 else -1
        self.last_fetched_epoch = usually(-1, 0, 1) if self.version >= 12 else -1
        self.replica_id = usually(-1, -2, 1)
        self.max_wait_ms = usually(100, 0)
        self.min_bytes = usually(1, 0, 500, 50_000)
        self.max_bytes = usually(INT32_MAX, 0, 200, -1)
        self.isolation_level = random.choice([0, 0, 0, 1, 1, 1, 1, 2])
        self.rack_id = random.choice(["", "a"]) if self.version >= 11 else ""
        self.mixes_names_and_ids = random.random() < 0.1
        self.forgotten = [random.choice([0, 1])] if self.version >= 7 and random.random() < 0.1 else []
        self.closes = self.has_session and random.random() < 0.1
        self.damage = Damage(random, 80, 0.8) if random.random() < 0.3 else None
        self.is_old = random.random() < 0.2  # It does not learn that the topic was recreated.


class Story:
    """Similar requests, so that most match a template, and changes of the broker between them."""

    def __init__(self, seed: int, *sides: Side) -> None:
        self.random = Random(seed)
        self.sides = sides
        self.number = 0
        self.topic_id = ZERO_UUID
        self.sequences: dict[tuple[int, int], int] = {}
        self.begin()

    def begin(self) -> None:
        """Begin as another consumer, now and then on another connection."""
        for side in self.sides:
            if self.number % 5 == 0:
                side.peer.fetch_templates = NumbersTemplates(FETCH_TEMPLATES_MAX)
        self.habits = Habits(self.random)
        self.session = (0, 0) if self.habits.has_session else (0, -1)  # Its id, and the epoch of the next request.
        self.offsets = dict.fromkeys((0, 1, 7), self.random.choice([0, 0, 3]))

    def play(self) -> None:
        for _ in range(STEPS):
            self.step()
            assert self.sides[0].sessions() == self.sides[1].sessions()

    def step(self) -> None:
        match self.random.random():
            case chance if chance < 0.1:
                self.produce()
            case chance if chance < 0.11:
                self.replace_topic(for_long=chance < 0.102)
            case chance if chance < 0.17:
                self.end_transactions()
            case chance if chance < 0.21:
                self.begin()
            case _:
                self.fetch()

    def produce(self) -> None:
        happens = self.production()
        for side in self.sides:
            happens(side)

    def production(self) -> Event:
        """Produce a batch; its sequence counts once it is written."""
        values = [self.random.randbytes(self.random.choice([0, 10, 400])) for _ in range(self.random.randint(1, 4))]
        index, producer = self.random.choice([0, 0, 0, 1]), self.random.choice([-1, -1, -1, 0, 1])
        sequence = -1
        if producer >= 0:  # For either partition; a recreated topic accepts any.
            sequence = self.sequences.get((index, producer), 0)
        batch = encode_batch(
            [(None, value, (), NOW_MS) for value in values],
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(min(producer, 0)),
            base_sequence=sequence,
            is_transactional=producer >= 0,
        )

        def happens(side: Side) -> None:
            if producer >= 0:
                self.sequences[index, producer] = sequence + len(values)
            side.produce(index, bytes(batch))

        return happens

    def end_transactions(self) -> None:
        happens = self.ending()
        for side in self.sides:
            happens(side)

    def ending(self) -> Event:
        commit = self.random.random() < 0.4

        def happens(side: Side) -> None:
            for index, producer in product((0, 1), (0, 1)):
                side.end_transaction(index, producer, commit=commit)
                side.broker.purgatory.happened(TopicPartition(TopicName("t"), index))

        return happens

    def replacement(self, for_long: bool) -> Event:
        is_there = TopicName("t") in self.sides[0].broker.view.topics

        def happens(side: Side) -> None:
            if is_there:
                side.delete()
            if not (is_there and for_long):
                side.create()

        return happens

    def random_event(self) -> Event | None:
        match self.random.random():
            case chance if chance < 0.5:
                return None
            case chance if chance < 0.9:
                return self.production()
            case chance if chance < 0.97:
                return self.ending()
            case chance:
                return self.replacement(for_long=chance < 0.98)

    def replace_topic(self, for_long: bool) -> None:
        happens = self.replacement(for_long)
        for side in self.sides:
            happens(side)
        if self.sides[0].broker.partitions:
            self.produce()

    def fetch(self) -> None:
        version = self.habits.version
        request = self.request(version)
        frame = bytearray(b"".join(map(_bytes, encode_request(request, version, self.number, "tests"))))
        self.number += 1
        if self.habits.damage is not None:
            self.habits.damage.hit(frame)
        lengthen(frame, self.random)
        event = self.random_event()
        answers = [side.play(bytes(frame), event) for side in self.sides]
        assert answers[0] == answers[1], (version, request)
        assert self.sides[0].woken[-1:] == self.sides[1].woken[-1:], (version, request)
        if isinstance(answers[0][1], bytes):
            self.learn(decode_response(FetchResponse, version, answers[0][1][4:])[1])

    def request(self, version: int) -> FetchRequest:
        random, habits = self.random, self.habits
        parts = [
            FetchPartition(
                partition=index,
                fetch_offset=self.offset_of(index),
                partition_max_bytes=habits.partition_max_bytes if random.random() < 0.9 else 2000,
                current_leader_epoch=habits.current_leader_epoch,
                last_fetched_epoch=habits.last_fetched_epoch,
            )
            for index in habits.partitions
        ]
        session_id, epoch = self.session
        if version >= 7 and random.random() < 0.1:
            session_id, epoch = random.choice([session_id, 0, 1]), random.choice([epoch, -1, 0, 1, 5])
        if habits.closes and random.random() < 0.3:
            epoch = -1
        if random.random() < 0.02:
            habits.partitions = random.choice([[0], [1], [0, 1]])
        topic, topic_id = self.topic(version)
        return FetchRequest(
            replica_id=habits.replica_id if version < 15 else -1,
            replica_state=ReplicaState(replica_id=habits.replica_id if version >= 15 else -1),
            max_wait_ms=habits.max_wait_ms,
            min_bytes=habits.min_bytes,
            max_bytes=habits.max_bytes,
            isolation_level=habits.isolation_level,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=parts)],
            forgotten_topics_data=[ForgottenTopic(topic=topic, topic_id=topic_id, partitions=habits.forgotten)]
            if habits.forgotten
            else [],
            rack_id=habits.rack_id,
        )

    def offset_of(self, index: int) -> int:
        known = self.offsets[index]
        return known if self.random.random() < 0.9 else self.random.choice([0, -1, known + 1, 1 << 40])

    def topic(self, version: int) -> tuple[str, Uuid]:
        """Return the topic's name or id as that version has it."""
        if version < TOPIC_IDS_SINCE:
            return "t", ZERO_UUID
        known = self.sides[0].broker.view.topics.get(TopicName("t"))
        if known is not None and not self.habits.is_old:
            self.topic_id = known.id
        return "", self.topic_id

    def learn(self, answer: FetchResponse) -> None:
        if answer.error_code:
            self.session = (0, 0) if self.habits.has_session else (0, -1)
        elif answer.session_id:
            session = self.sides[0].broker.sessions.find_session(answer.session_id)
            self.session = (answer.session_id, session.epoch if session else 0)
        if self.habits.mixes_names_and_ids and self.random.random() < 0.3:
            self.habits.version = self.random.choice([12, 13])
        if answer.responses and self.random.random() < 0.7:
            jumps_to_the_end = self.random.random() < 0.4
            for part in answer.responses[0].partitions:
                if part.partition_index not in self.offsets:
                    continue  # The request was damaged.
                offset, high_watermark = self.offsets[part.partition_index], part.high_watermark
                offset = offset + 1 if offset < high_watermark else 0
                self.offsets[part.partition_index] = max(high_watermark, 0) if jumps_to_the_end else offset


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(6))
def test_recognised_fetches_have_the_effects_of_parsed_ones(tmp_path: Path, seed: int) -> None:
    quick, slow = Side(tmp_path / "quick"), Forgetful(tmp_path / "slow")
    Story(seed, quick, slow).play()
    assert quick.recognised > 300
    assert quick.waited > 30
    assert quick.waited_for_several > 2
    assert {True, False} == set(quick.woken)
    assert not slow.waited
    assert not slow.recognised


def plain(
    version: int,
    session: tuple[int, int],
    topic_id: Uuid = ZERO_UUID,
    *,
    index: int = 0,
    offset: int = 0,
    max_wait_ms: int = 100,
    forgotten: int | None = None,
) -> bytes:
    name = "" if version >= TOPIC_IDS_SINCE else "t"
    part = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=[part])],
        forgotten_topics_data=[]
        if forgotten is None
        else [ForgottenTopic(topic=name, topic_id=topic_id, partitions=[forgotten])],
    )
    return b"".join(map(_bytes, encode_request(request, version, 1, "tests")))


@pytest.fixture
def side(tmp_path: Path) -> Side:
    side = Side(tmp_path)
    for _ in range(5):
        side.produce(0, bytes(encode_batch([(None, b"value", (), NOW_MS)])))
    return side


def play(side: Side, frame: bytes, version: int) -> FetchResponse:
    _, answer = side.play(frame)
    assert isinstance(answer, bytes)
    return decode_response(FetchResponse, version, answer[4:])[1]


def id_of(side: Side, version: int) -> Uuid:
    return side.broker.view.topics[TopicName("t")].id if version >= TOPIC_IDS_SINCE else ZERO_UUID


@pytest.mark.parametrize("version", VERSIONS)
def test_the_next_similar_fetch_is_recognised(side: Side, version: int) -> None:
    """Otherwise the comparison above would compare nothing."""
    topic_id = id_of(side, version)
    for offset in range(4):
        side.play(plain(version, (0, -1), topic_id, offset=offset))
        assert side.recognised == offset
    if version < 7:
        return
    session_id = play(side, plain(version, (0, 0), topic_id), version).session_id
    before = side.recognised
    for epoch in range(1, 5):
        side.play(plain(version, (session_id, epoch), topic_id, offset=epoch))
    assert side.recognised == before + 3


def test_a_fetch_by_the_id_of_a_deleted_topic_fails(side: Side) -> None:
    topic_id = id_of(side, 13)
    for _ in range(2):
        assert play(side, plain(13, (0, -1), topic_id), 13).responses[0].partitions[0].error_code == ErrorCode.NONE
    side.delete()
    side.create()
    side.produce(0, bytes(encode_batch([(None, b"value", (), NOW_MS)])))
    (topic,) = play(side, plain(13, (0, -1), topic_id), 13).responses
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert side.recognised == 2


def test_a_recognised_fetch_extends_its_session(side: Side) -> None:
    side.produce(1, bytes(encode_batch([(None, b"value", (), NOW_MS)])))
    session_id = play(side, plain(12, (0, 0), index=1), 12).session_id
    play(side, plain(12, (session_id, 1), index=0), 12)
    play(side, plain(12, (session_id, 2), index=1, forgotten=0), 12)
    play(side, plain(12, (session_id, 3), index=0), 12)
    assert side.recognised == 1
    session = side.broker.sessions.find_session(session_id)
    assert session is not None
    assert {key.partition for key in session.partitions} == {0, 1}


def test_a_parked_fetch_is_answered_after_its_session_ended(side: Side) -> None:
    def ends(side: Side) -> None:
        side.broker.sessions._close(session_id)
        side.produce(0, bytes(encode_batch([(None, b"value", (), NOW_MS)])))

    session_id = play(side, plain(12, (0, 0)), 12).session_id
    play(side, plain(12, (session_id, 1), offset=4), 12)
    has_waited, answer = side.play(plain(12, (session_id, 2), offset=5), ends)
    assert has_waited
    assert side.waited
    assert isinstance(answer, bytes)
    (topic,) = decode_response(FetchResponse, 12, answer[4:])[1].responses
    assert topic.partitions[0].high_watermark == 6


@pytest.mark.parametrize("index", [0, 1])
def test_one_record_wakes_a_fetch_of_several_partitions(side: Side, index: int) -> None:
    def happens(side: Side) -> None:
        side.produce(index, bytes(encode_batch([(None, b"value", (), NOW_MS)])))

    parts = [
        FetchPartition(partition=at, fetch_offset=end, partition_max_bytes=1 << 20) for at, end in enumerate((5, 0))
    ]
    topics = [FetchTopic(topic="t", partitions=parts)]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, session_epoch=-1, topics=topics)
    frame = b"".join(map(_bytes, encode_request(request, 12, 1, "tests")))
    for _ in range(3):  # The second request creates the template.
        has_waited, answer = side.play(frame)
        assert has_waited
    assert side.recognised == side.waited_for_several == 1
    has_waited, answer = side.play(frame, happens)
    assert has_waited
    assert side.woken == [True]
    assert isinstance(answer, bytes)
    (topic,) = decode_response(FetchResponse, 12, answer[4:])[1].responses
    assert [part.high_watermark for part in topic.partitions] == [5 + (index == 0), int(index == 1)]
    assert [bool(part.records) for part in topic.partitions] == [index == 0, index == 1]


def test_the_brokers_size_limit_applies(side: Side) -> None:
    for _ in range(10):
        side.produce(0, bytes(encode_batch([(None, bytes(1000), (), NOW_MS)])))
    sizes = [len(side.play(plain(12, (0, -1)))[1]) for _ in range(2)]
    assert side.recognised == 1
    assert sizes[0] == sizes[1] < 5100


def test_fetch_templates_are_bounded(side: Side) -> None:
    for max_wait_ms in range(FETCH_TEMPLATES_MAX + 100):
        side.play(plain(12, (0, -1), max_wait_ms=max_wait_ms))
    assert len(side.peer.fetch_templates) == FETCH_TEMPLATES_MAX
