"""Fetch sessions that read only due partitions: their responses equal those of sessions that read all partitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from odradek.api.conversation import Conversation
from odradek.base.errors import ErrorCode
from odradek.base.units import INT32_MAX, ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.core.fetch.fetch_sessions import FetchSession
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.log.files.disk import FileSlice
from odradek.log.log.durability import begin_flush
from odradek.record.builder import encode_batch
from odradek.wire.connection import Connection
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.in_memory import CLIENT, NOW_MS, Harness, frame_of
from support.invariants import check

VERSION = 12
PARTITIONS = 6
STEPS = 800
WAIT_MS = 200
TOPICS = ("a", "b")

Happens = Callable[["Side"], None]
Fetched = dict[tuple[str, int], tuple[object, ...]]


class Side(Harness):
    """A broker, and a client of it with one session."""

    def __init__(self, directory: Path, *, reads_all: bool) -> None:
        super().__init__(directory, transaction_partition_verification_enable="false")
        self.reads_all = reads_all
        self.read = self.woken = self.recognised = 0
        for topic in TOPICS:
            self.create(topic)

    def create(self, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
        self.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)

    def delete(self, name: str) -> None:
        self.request(DeleteTopicsRequest(topic_names=[name], timeout_ms=1_000), 3, DeleteTopicsResponse)

    def replace(self, name: str, *, for_long: bool) -> None:
        self.delete(name)
        if not for_long:
            self.create(name)

    def repair(self) -> None:
        """Restore all that was broken."""
        partitions = self.broker.partitions
        for name in TOPICS:
            mine = [partitions.get(TopicPartition(TopicName(name), index)) for index in range(PARTITIONS)]
            if not all(one is not None and one.is_online for one in mine):
                self.replace(name, for_long=False)

    def produce(self, at: TopicPartition, batch: bytes, acks: int) -> None:
        data = TopicProduceData(name=at.topic, partition_data=[PartitionProduceData(index=at.partition, records=batch)])
        self.request(
            ProduceRequest(acks=acks, timeout_ms=1_000, transactional_id="tx", topic_data=[data]), 9, ProduceResponse
        )

    def end_transaction(self, at: TopicPartition, *, commit: bool) -> None:
        partition = self.broker.partitions.get(at)
        if partition is not None and partition.is_online:
            epoch = ProducerEpoch(0)
            partition.leader().end_transaction(ProducerId(1), epoch, 0, commit=commit, now=self.now)
            flush = begin_flush(partition.log)
            flush.run()
            partition.flushed(flush, self.now)

    def fetch(self, request: FetchRequest, events: list[Happens]) -> tuple[int, int, Fetched]:
        """Return the error, the session's id, and the response of each partition."""
        session = self.broker.sessions.find_session(request.session_id)
        if session is not None:
            self._all_due(session)
            self.read += len(session.due)
        (request_frame,) = Connection().receive_data(frame_of(request, VERSION, 1, CLIENT))
        self.recognised += self.peer.fetch_templates.match_request(request_frame) is not None
        outcome = self.send(request, VERSION)
        if isinstance(outcome, ParkedRequest):
            for happens in events:
                happens(self)
            outcome = self._answered(outcome, session)
        answer = self.decoded(self.finished(outcome), VERSION, FetchResponse)
        fetched = {
            (topic.topic, part.partition_index): (
                part.error_code,
                part.high_watermark,
                part.last_stable_offset,
                part.log_start_offset,
                _bytes(part.records),
                tuple((one.producer_id, one.first_offset) for one in part.aborted_transactions or ()),
            )
            for topic in answer.responses
            for part in topic.partitions
        }
        return answer.error_code, answer.session_id, fetched

    def _answered(self, parked: ParkedRequest[object], session: FetchSession | None) -> object:
        """Complete the fetch by events since it was parked, or by its deadline."""
        if session is not None:
            self._all_due(session)
        if any(parked in bucket for bucket in self.broker.purgatory._by_bucket.values()):
            return parked
        self.woken += 1
        talk = parked.owner
        assert isinstance(talk, Conversation)
        talk.answer_parked(parked, self.now)  # type: ignore[arg-type]
        return talk.data_to_send()

    def _all_due(self, session: FetchSession) -> None:
        if self.reads_all:
            session.due.update(dict.fromkeys(session.partitions.values()))


def _bytes(records: object) -> bytes:
    return records.read() if isinstance(records, FileSlice) else bytes(records or b"")  # type: ignore[arg-type]


class Story:
    """Events on both sides."""

    def __init__(self, seed: int, *sides: Side) -> None:
        self.random = Random(seed)
        self.sides = sides
        self.sequences: dict[TopicPartition, int] = {}
        self.offsets: dict[tuple[str, int], int] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.session, self.epoch = 0, 0
        self.change_habits()

    def play(self) -> None:
        for _ in range(STEPS):
            if self.random.random() < 0.7:
                self.fetch()
            else:
                happens = self.event()
                for side in self.sides:
                    happens(side)
            for side in self.sides:
                check(side.broker)

    def event(self) -> Happens:
        random = self.random
        if random.random() < 0.05:
            return Side.repair
        topic = random.choice(TOPICS)
        at = TopicPartition(TopicName(topic), random.randrange(PARTITIONS))
        match random.random():
            case chance if chance < 0.8:
                return self.production(at)
            case chance if chance < 0.955:
                commit = random.random() < 0.5
                return lambda side: side.end_transaction(at, commit=commit)
            case chance if chance < 0.96:
                return lambda side: side.broker.partitions[at].take_offline() if at in side.broker.partitions else None
            case chance:
                for index in range(PARTITIONS):
                    self.sequences.pop(TopicPartition(TopicName(topic), index), None)
                return lambda side: side.replace(topic, for_long=chance > 0.99)

    def production(self, at: TopicPartition) -> Happens:
        random = self.random
        values = [random.randbytes(random.choice([0, 10, 400])) for _ in range(random.randint(1, 3))]
        producer, acks, sequence = random.choice([-1, -1, 1]), random.choice([1, -1]), -1
        if producer >= 0:
            sequence = self.sequences.get(at, 0)
            self.sequences[at] = sequence + len(values)
        batch = encode_batch(
            [(None, value, (), NOW_MS) for value in values],
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(min(producer, 0)),
            base_sequence=sequence,
            is_transactional=producer >= 0,
        )
        return lambda side: side.produce(at, bytes(batch), acks)

    def fetch(self) -> None:
        request = self.request()
        events = [self.event() for _ in range(self.random.choice([0, 0, 1, 2]))]
        quick, thorough = (side.fetch(request, events) for side in self.sides)
        for key in quick[2] | thorough[2]:
            assert quick[2].get(key) == thorough[2].get(key), (key, request)
        assert quick == thorough
        code, session, fetched = quick
        if code:
            assert code != ErrorCode.INVALID_REQUEST
            self.session = self.epoch = 0
        else:
            self.session, self.epoch = session, self.epoch + 1 if session else 0
        for key, (error, high_watermark, *_) in fetched.items():
            self.ends[key] = -1 if error else high_watermark  # type: ignore[assignment]

    def change_habits(self) -> None:
        """Change the client's requests: similar ones need not be parsed (api/fetch/plain_fetch)."""
        self.max_wait_ms = self.random.choice([0, WAIT_MS])
        self.min_bytes = self.random.choice([1, 1, 1, 700, 0])
        self.isolation_level = self.random.choice([0, 1])

    def request(self) -> FetchRequest:
        random = self.random
        if random.random() < 0.02:
            self.change_habits()
        if random.random() < 0.03:
            self.session, self.epoch = random.choice([(self.session, 0), (0, 0), (self.session, -1)])
        keys = [(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
        if self.epoch > 0:  # Partitions that it has read on in, adds, or requests again.
            keys = [key for key in keys if random.random() < (0.7 if self._has_unread(key) else 0.03)]
        forgotten = [ForgottenTopic(topic="a", partitions=[1])] if random.random() < 0.05 and self.epoch > 0 else []
        named: dict[str, list[FetchPartition]] = {}
        for key in keys:
            topic, index = key
            part = FetchPartition(partition=index, fetch_offset=self._offset(key), partition_max_bytes=100_000)
            named.setdefault(topic, []).append(part)
        return FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=INT32_MAX,
            isolation_level=self.isolation_level,
            session_id=self.session,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic=topic, partitions=parts) for topic, parts in named.items()],
            forgotten_topics_data=forgotten,
        )

    def _has_unread(self, key: tuple[str, int]) -> bool:
        return self.offsets.get(key, 0) != self.ends.get(key, 0)

    def _offset(self, key: tuple[str, int]) -> int:
        self.offsets[key] = offset = max(self.ends.get(key, 0), 0)
        return offset if self.random.random() < 0.95 else self.random.choice([0, offset + 1])


@pytest.mark.parametrize("seed", range(3))
def test_sessions_miss_no_change_by_reading_due_partitions_only(tmp_path: Path, seed: int) -> None:
    quick, thorough = Side(tmp_path / "quick", reads_all=False), Side(tmp_path / "thorough", reads_all=True)
    Story(seed, quick, thorough).play()
    assert quick.read < 0.7 * thorough.read
    assert quick.woken
    assert quick.recognised > 10
