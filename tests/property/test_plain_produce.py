"""Produce requests recognised by a template: they have the same effects as parsed ones."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from odradek.api.request.admission import Admission
from odradek.api.templates.produce_template import ProduceTemplates
from odradek.api.templates.template_cache import BODY_BYTES_MAX
from odradek.base.limits import PRODUCE_TEMPLATES_IN_COMMON_MAX, PRODUCE_TEMPLATES_MAX
from odradek.base.units import ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.log.files.disk import FileSlice
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.wire.client_codec import encode_request
from odradek.wire.connection import Connection
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.schema.malformed import Malformed
from support.in_memory import NOW_MS, Harness

VERSIONS = range(3, 14)
REQUESTS = 2_000
TOPICS = {"orders": 3, "a-longer-name": 1}


class Side(Harness):
    """A broker with two topics, and the outcomes of all requests."""

    def __init__(self, directory: Path, **configs: str) -> None:
        super().__init__(directory, transaction_partition_verification_enable="false", **configs)
        for name, partitions in TOPICS.items():
            topic = CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
            )
            self.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)
        self.outcomes: list[bytes | str | None] = []
        self.has_waited = False
        self.recognised = 0

    def play(self, frame: bytes) -> None:
        (request,) = Connection().receive_data(frame)
        with suppress(Malformed):
            found = self.peer.produce_templates.match_request(request, self.peer.admission.produce_templates)
            self.recognised += found is not None
        try:
            outcome = self.send_frame(frame)
            self.has_waited = isinstance(outcome, ParkedRequest)
            chunks = self.finished(outcome)
        except (Malformed, ConnectionAbortedError) as closed:
            self.outcomes.append(str(closed))
            return
        self.outcomes.append(None if chunks is None else b"".join(map(_bytes, chunks)))

    def end_transactions(self) -> None:
        for partition in self.broker.partitions.values():
            for producer in list(partition.log.producers):
                partition.leader().end_transaction(producer.id, producer.epoch, 0, commit=True, now=self.now)

    def logs(self) -> dict[str, object]:
        return {
            str(name): (one.log.segments[-1].file.pread(0, 1 << 20), one.last_stable_offset, list(one.log.producers))
            for name, one in self.broker.partitions.items()
        }


def _bytes(chunk: object) -> bytes:
    assert isinstance(chunk, bytes | FileSlice)
    return chunk if isinstance(chunk, bytes) else chunk.read()


class Forgetful(Side):
    """A client whose every request is the first of its connection."""

    def play(self, frame: bytes) -> None:
        self.peer.produce_templates = ProduceTemplates()
        self.peer.admission = Admission()
        super().play(frame)


class Producers:
    """Two idempotent producers, and many others."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.next = {5: 0, 6: 0}

    def batch(self) -> bytes:
        random = self.random
        values = [random.randbytes(random.choice([0, 10, 200])) for _ in range(random.randint(1, 3))]
        producer_id = random.choice([-1, -1, 5, 5, 6])
        sequence = -1
        if producer_id >= 0:
            sequence = self.next[producer_id]
            if random.random() < 0.7:
                self.next[producer_id] += len(values)
        return bytes(
            encode_batch(
                [(None, value, (), NOW_MS) for value in values],
                random.choice(list(Codec)),
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(0 if producer_id >= 0 else random.choice([-1, 0])),
                base_sequence=sequence,
                is_transactional=producer_id >= 0 and random.random() < 0.7,
            )
        )


class Damage(NamedTuple):
    """A changed byte, counted from the end of the frame or of its records, or a truncated or extended frame."""

    place: int
    change: int
    from_records: bool
    grown: int

    def apply_to(self, frame: bytearray, records: bytes) -> None:
        start = frame.rfind(records) if self.from_records else len(frame)
        frame[max(start - self.place, 20)] ^= self.change
        if self.grown < 0:
            del frame[self.grown :]
        frame += bytes(max(self.grown, 0))
        struct.pack_into(">i", frame, 0, len(frame) - 4)


class Sent(NamedTuple):
    version: int
    request: ProduceRequest
    damage: Damage | None


def damage(random: Random) -> Damage | None:
    change = random.choice([1, 2, 127, 128])
    return random.choice(
        [
            None,
            None,
            None,
            Damage(random.randint(1, 4), change, from_records=True, grown=0),  # The records' length.
            Damage(random.randint(1, 4), change, from_records=False, grown=0),  # The tags.
            Damage(random.randint(1, 80), change, from_records=False, grown=0),
            Damage(1, 0, from_records=False, grown=random.choice([-3, -1, 1, 3])),
        ]
    )


def story(random: Random) -> Iterator[Sent]:
    """Yield similar requests, so that most match a template."""
    producers = Producers(random)
    versions = random.sample(VERSIONS, random.choice([1, 2, 4]))
    many = random.choice([1, 2, 3])
    for _ in range(REQUESTS):
        parts = [
            PartitionProduceData(index=random.choice([0, 0, 0, 0, 1, 3]), records=producers.batch())
            for _ in range(random.choice([1, 1, 1, 2, many]))
        ]
        request = ProduceRequest(
            transactional_id=random.choice([None, None, "t"]),
            acks=random.choice([1, 1, 1, -1, -1, 0, 2]),
            timeout_ms=1_000,
            topic_data=[TopicProduceData(name=random.choice(["orders", *TOPICS, "unknown"]), partition_data=parts)],
        )
        if random.random() < 0.1:
            request.topic_data.insert(0, TopicProduceData(name="unknown", partition_data=random.choice([[], parts])))
        yield Sent(random.choice(versions), request, damage(random))


@pytest.mark.share(5)
@pytest.mark.parametrize(
    ("seed", "configs"),
    [*((seed, {}) for seed in range(8)), *((seed, {"odradek_record_validation": "records"}) for seed in range(2))],
)
def test_recognised_produces_have_the_effects_of_parsed_ones(
    tmp_path: Path, seed: int, configs: dict[str, str]
) -> None:
    quick, slow = Side(tmp_path / "quick", **configs), Forgetful(tmp_path / "slow", **configs)
    for number, sent in enumerate(story(Random(seed))):
        frame = frame_for(quick, sent, number)
        quick.play(frame)
        slow.play(frame)
        assert (quick.outcomes[-1], quick.has_waited) == (slow.outcomes[-1], slow.has_waited), (number, sent)
        if number % 20 == 0:
            quick.end_transactions()
            slow.end_transactions()
    assert quick.logs() == slow.logs()
    assert quick.recognised > REQUESTS / 50
    assert not slow.recognised


def frame_for(side: Side, sent: Sent, number: int) -> bytes:
    for topic in sent.request.topic_data:
        known = side.broker.view.topics.get(TopicName(topic.name))
        topic.topic_id = ZERO_UUID if known is None or sent.version < 13 else known.id
    frame = bytearray(b"".join(map(_bytes, encode_request(sent.request, sent.version, number, "tests"))))
    if sent.damage is not None:
        sent.damage.apply_to(frame, bytes(topic.partition_data[-1].records or b""))
    return bytes(frame)


def plain(version: int, timeout_ms: int, partitions: tuple[int, ...] = (0,)) -> Sent:
    batch = bytes(encode_batch([(None, b"value", (), NOW_MS)]))
    parts = [PartitionProduceData(index=index, records=batch) for index in partitions]
    topic = TopicProduceData(name="orders", partition_data=parts)
    transactional_id = "t" if version % 2 and len(parts) == 1 else None
    request = ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=timeout_ms, topic_data=[topic])
    return Sent(version, request, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_request_is_recognised(tmp_path: Path, version: int) -> None:
    """Otherwise the comparison above would compare nothing."""
    side = Side(tmp_path)
    seen = []
    for number in range(3):
        frame = frame_for(side, plain(version, 1_000), number)
        (request,) = Connection().receive_data(frame)
        seen.append(
            side.peer.produce_templates.match_request(request, side.peer.admission.produce_templates) is not None
        )
        side.play(frame)
    assert seen == [False, True, True]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_request_for_several_partitions_is_recognised(tmp_path: Path, version: int) -> None:
    """The named partitions may change; a set that was named twice is known."""
    side = Side(tmp_path)
    for number, partitions in enumerate([(0, 1), (0, 2), (2, 0, 1)] * 3):
        side.play(frame_for(side, plain(version, 1_000, partitions), number))
        assert side.recognised == max(number - 5, 0)
    assert len(side.peer.produce_templates) == 2 + 2 + 3, "partitions are counted"


def test_unusual_encodings_get_no_template(tmp_path: Path) -> None:
    side = Side(tmp_path)
    for number in range(3):
        frame = bytearray(frame_for(side, plain(9, 1_000), number))
        frame[-1:] = bytes((1, 99, 0))  # An unknown tagged field.
        struct.pack_into(">i", frame, 0, len(frame) - 4)
        side.play(bytes(frame))
    assert not side.recognised
    assert not len(side.peer.produce_templates)
    assert side.peer.produce_templates.has_given_up((TopicPartition(TopicName("orders"), 0),))


def test_long_request_headers_get_no_template(tmp_path: Path) -> None:
    side = Side(tmp_path)
    for number in range(3):
        sent = plain(9, 1_000)
        sent.request.transactional_id = "t" * BODY_BYTES_MAX
        side.play(frame_for(side, sent, number))
    assert not len(side.peer.produce_templates)


def test_connections_of_the_same_admission_share_templates(tmp_path: Path) -> None:
    side = Side(tmp_path)
    (request,) = Connection().receive_data(frame_for(side, plain(9, 1_000), 0))
    side.play(frame_for(side, plain(9, 1_000), 1))
    assert ProduceTemplates().match_request(request, side.peer.admission.produce_templates) is not None
    assert ProduceTemplates().match_request(request, Admission().produce_templates) is None
    later = ProduceTemplates()
    assert later.match_request(request, side.peer.admission.produce_templates)
    assert later.match_request(request, Admission().produce_templates)
    for timeout_ms in range(PRODUCE_TEMPLATES_IN_COMMON_MAX + 100):
        side.peer.produce_templates = ProduceTemplates()
        side.play(frame_for(side, plain(9, timeout_ms), timeout_ms))
    assert len(side.peer.admission.produce_templates) == PRODUCE_TEMPLATES_IN_COMMON_MAX


def test_templates_are_bounded(tmp_path: Path) -> None:
    side = Side(tmp_path)
    for timeout_ms in range(PRODUCE_TEMPLATES_MAX + 100):
        side.play(frame_for(side, plain(9, timeout_ms), timeout_ms))
    assert len(side.peer.produce_templates) == PRODUCE_TEMPLATES_MAX
