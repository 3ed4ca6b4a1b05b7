"""Templates: a message recognized, or built, by its bytes equals the decoded, or encoded, message."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from odradek.base.number_places import places
from odradek.base.uuids import Uuid
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.compile import decode, encode
from odradek.wire.schema.primitives import Chunk
from odradek.wire.template import AnswerTemplate, NumbersTemplate, RecordsTemplate

TOPIC_ID = Uuid(b"\xff" * 16)
NAME = "\u00ff" * 9  # UTF-8 contains no byte 0xff.
COUNTS = ((1,), (3,), (1, 2))
FETCH_PATHS = ("session_epoch", "topics.partitions.fetch_offset")
PRODUCE_PATHS = ("topic_data.partition_data.records",)
PRODUCED = tuple(
    f"responses.partition_responses.{name}" for name in ("base_offset", "log_append_time_ms", "log_start_offset")
)
FETCHED = tuple(
    f"responses.partitions.{name}" for name in ("high_watermark", "last_stable_offset", "log_start_offset", "records")
)


class Slice(NamedTuple):
    """A slice of a file with records."""

    text: bytes

    @property
    def size(self) -> int:
        return len(self.text)


def fetch(counts: tuple[int, ...], random: Random) -> FetchRequest:
    offsets = iter([random.choice([0, -1, 255, 1 << 62]) for _ in range(sum(counts))])
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        session_id=-1,
        session_epoch=random.choice([1, -1, 1 << 30]),
        topics=[
            FetchTopic(
                topic=NAME[number:],
                topic_id=TOPIC_ID,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=next(offsets), partition_max_bytes=-1)
                    for index in range(count)
                ],
            )
            for number, count in enumerate(counts)
        ],
    )


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("version", range(4, 19))
def test_requests_that_differ_only_in_numbers_have_the_same_key(version: int, counts: tuple[int, ...]) -> None:
    random = Random(version)
    body = fetch(counts, random)
    before = encode(body, version)
    template = NumbersTemplate(body, version, FETCH_PATHS)
    assert encode(body, version) == before, "the message is as it was"
    for _ in range(20):
        other = fetch(counts, random)
        text = encode(other, version)
        assert template.size == len(text)
        assert template.key(text) == template.own_key
        numbers = [part.fetch_offset for topic in other.topics for part in topic.partitions]
        assert list(template.values(text)) == ([other.session_epoch] if version >= 7 else []) + numbers
        differs = bytearray(text)
        differs[random.randrange(len(text))] ^= 1 << random.randrange(8)
        is_same_but_for_numbers = template.key(bytes(differs)) == template.own_key
        assert is_same_but_for_numbers == (_without_numbers(bytes(differs), version) == _without_numbers(text, version))


def _without_numbers(text: bytes, version: int) -> object:
    try:
        body = decode(FetchRequest, version, text)
    except ValueError:
        return None
    body.session_epoch = 0
    for topic in body.topics:
        for part in topic.partitions:
            part.fetch_offset = 0
    return body


def produce(counts: tuple[int, ...], records: list[bytes]) -> ProduceRequest:
    left = iter(records)
    return ProduceRequest(
        transactional_id=NAME,
        acks=-1,
        timeout_ms=-1,
        topic_data=[
            TopicProduceData(
                name=NAME[number:],
                topic_id=TOPIC_ID,
                partition_data=[PartitionProduceData(index=index, records=next(left)) for index in range(count)],
            )
            for number, count in enumerate(counts)
        ],
    )


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("version", range(3, 14))
def test_records_of_a_known_request_are_found(version: int, counts: tuple[int, ...]) -> None:
    random, count = Random(version), sum(counts)
    known = RecordsTemplate(produce(counts, [b""] * count), version, PRODUCE_PATHS)
    for _ in range(20):
        records = [random.randbytes(random.choice([16, 126, 127, 128, 16_384, 40_000])) for _ in range(count)]
        text = encode(produce(counts, records), version)
        found = known.records(memoryview(text))
        assert found is not None
        assert [bytes(one) for one in found] == records
        assert known.records(memoryview(text + b"\0")) is None
        assert known.records(memoryview(text[:-1])) is None
        start = known.only_records(memoryview(text[: len(known.beginning) + 20]), len(text))
        assert text[start : start + len(records[0])] == records[0] if count == 1 else not start


@pytest.mark.parametrize("size", range(60))
def test_truncated_request_has_no_records(size: int) -> None:
    for version in (8, 9):
        known = RecordsTemplate(produce((2,), [b"", b""]), version, PRODUCE_PATHS)
        text = encode(produce((2,), [bytes(40), bytes(40)]), version)
        assert known.records(memoryview(text[: len(known.beginning) + size])) is None


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("version", range(3, 14))
def test_packed_numbers_match_the_encoded_response(version: int, counts: tuple[int, ...]) -> None:
    def answer(rows: list[tuple[int, ...]]) -> ProduceResponse:
        left = iter(rows)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=NAME[number:],
                    topic_id=TOPIC_ID,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=index,
                            error_code=0,
                            base_offset=row[0],
                            log_append_time_ms=row[1],
                            log_start_offset=row[2],
                        )
                        for index, row in enumerate(next(left) for _ in range(count))
                    ],
                )
                for number, count in enumerate(counts)
            ]
        )

    random, count = Random(version), sum(counts)
    template = AnswerTemplate(answer([(0, 0, 0)] * count), version, PRODUCED)
    rows: list[tuple[int, ...]] = [(random.getrandbits(60), -1, random.getrandbits(9)) for _ in range(count)]
    request = Request(ApiKey.PRODUCE, version, 77, None, memoryview(b""), 0, 0)
    assert [template.frame(77, rows)] == encode_response(request, answer(rows))


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("version", range(4, 19))
def test_packed_responses_with_records_match_the_encoded_response(version: int, counts: tuple[int, ...]) -> None:
    def answer(rows: list[tuple[int, ...]], records: list[Slice]) -> FetchResponse:
        left = iter(zip(rows, records, strict=True))
        return FetchResponse(
            session_id=5 if version >= 7 else 0,
            responses=[
                FetchableTopicResponse(
                    topic=NAME[number:],
                    topic_id=TOPIC_ID,
                    partitions=[
                        PartitionData(
                            partition_index=index,
                            error_code=0,
                            high_watermark=row[0],
                            last_stable_offset=row[1],
                            log_start_offset=row[2],
                            aborted_transactions=None,
                            records=one,
                        )
                        for index, (row, one) in enumerate(next(left) for _ in range(count))
                    ],
                )
                for number, count in enumerate(counts)
            ],
        )

    random, count = Random(version), sum(counts)
    template = AnswerTemplate(answer([(0, 0, 0)] * count, [Slice(b"")] * count), version, FETCHED)
    request = Request(ApiKey.FETCH, version, 77, None, memoryview(b""), 0, 0)
    for _ in range(10):
        rows: list[tuple[int, ...]] = [(random.getrandbits(60), random.getrandbits(9), 0) for _ in range(count)]
        records = [Slice(random.randbytes(random.choice([0, 0, 126, 127, 20_000]))) for _ in range(count)]
        packed = template.frame_with(77, rows, list(records))
        assert whole(packed) == whole(encode_response(request, answer(rows, records)))


def whole(chunks: list[Chunk]) -> bytes:
    return b"".join(chunk.text if isinstance(chunk, Slice) else bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]


def test_adjacent_numbers_are_distinguished() -> None:
    assert places(b"ab" + bytes(14) + b"c", b"ab" + b"\xff" * 14 + b"c", [4, 8, 2]) == [2, 6, 14]


@pytest.mark.slow
def test_other_differences_are_detected() -> None:
    with pytest.raises(AssertionError, match="nothing else"):
        places(bytes(8), b"\xff" * 4 + b"\1\0\0\0", [4])
