"""Whatever is asked is answered in its version or is Malformed, never anything else, and the broker goes on working."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import pytest

from odradek.api.table import BY_KEY
from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName
from odradek.base.uuids import ZERO_UUID
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.wire.api_keys import ApiKey
from odradek.wire.catalog import APIS
from odradek.wire.client import encode_request
from odradek.wire.errors import Malformed
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.forge import Forge
from support.in_memory import NOW_MS, Harness

CASES = [(api.key, version) for api in BY_KEY.values() for version in api.versions]
REQUESTS_PER_CASE = 100
REQUESTS_PER_SOAK = 5_000
WITNESS = TopicName("witness")


def batch(codec: Codec = Codec.NONE, **fields: int) -> bytes:
    return bytes(encode_batch([(b"k", b"v", (("h", None),), NOW_MS)] * 3, codec=codec, **fields))  # type: ignore[arg-type]


BATCHES = [
    *(batch(codec) for codec in Codec),
    batch(producer_id=7, producer_epoch=0, base_sequence=0),
    batch()[:-1],
    batch() + batch(),
    batch() + b"\0",
    batch()[:61],
    bytes(61),
    b"",
    b"rubbish",
    None,
]


STRINGS = [
    "t",
    "u",
    "v.w",
    "v_w",
    "a/b",
    "",
    ".",
    "x" * 249,
    "x" * 250,
    "\u00e9",
    "\0",
    "nowhere",
    "1",
    "-1",
    "compact",
]
CONFIGS = ["retention.ms", "cleanup.policy", "max.message.bytes", "compression.type", "flush.messages", "no.such"]


def forge_for(harness: Harness, random: Random) -> Forge:
    topics = harness.broker.view.topics
    names = [*topics, *topics, "new", "t"]
    favourites: dict[str, list[object]] = {
        "acks": [-1, 0, 1],
        "topic": [*names],
        "topic_name": [*names],
        "resource_name": [*names, "1", ""],
        "resource_type": [2, 4],
        "configuration_keys": [None, CONFIGS],
        "endpoint_type": [1],
        "replica_id": [-1],
        "session_epoch": [-1, 0, 1, 2],
        "session_id": [0, *range(1, 20)],
        "count": [2, 3],
        "broker_ids": [[1]],
        "name": [*names, *names, *CONFIGS],
        "index": [0],
        "partition": [0],
        "partition_index": [0],
        "current_leader_epoch": [-1, 0],
        "last_fetched_epoch": [-1, 0],
        "fetch_offset": [0, 1, 3, 4],
        "partition_max_bytes": [0, 1, 100, 1 << 20],
        "max_bytes": [0, 1, 100, 1 << 20],
        "timestamp": [*range(-6, 1), NOW_MS, NOW_MS + 1],
        "value": ["1000", "lz4", "compact", "2147483647"],
        "software_name": ["fuzz"],
        "timeout_ms": [0, 1000],
        "max_wait_ms": [0, 1, 500],
    }
    ids = [ZERO_UUID, b"\x05" * 16, *(topic.id for topic in topics.values())]
    return Forge(random, [*STRINGS, *names], ids, BATCHES, favourites)


def frame_of(message: object, version: int) -> bytes:
    return b"".join(chunk for chunk in encode_request(message, version, 7, "fuzz") if isinstance(chunk, bytes))


def check_answer(harness: Harness, key: ApiKey, version: int, frame: bytes) -> None:
    """One request; its answer decodes, or the bytes were none."""
    try:
        answer = harness.finished(harness.send_frame(frame))
    except (Malformed, ConnectionAbortedError):
        return
    if answer is not None:
        harness.decoded(answer, version, APIS[key][1])


def check_alive(harness: Harness) -> None:
    """Somebody else's topic takes a record and gives it back."""
    if WITNESS not in harness.broker.view.topics:
        topic = CreatableTopic(name=WITNESS, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        (made,) = harness.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse).topics
        assert made.error_code == ErrorCode.NONE
    parts = [PartitionProduceData(index=0, records=batch())]
    topics = [TopicProduceData(name=WITNESS, partition_data=parts)]
    answer = harness.ask(ProduceRequest(acks=-1, timeout_ms=100, topic_data=topics), 9, ProduceResponse)
    (part,) = answer.responses[0].partition_responses
    assert part.error_code == ErrorCode.NONE, part
    asked = [FetchPartition(partition=0, fetch_offset=part.base_offset, partition_max_bytes=1 << 20)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=WITNESS, partitions=asked)], forgotten_topics_data=[]
    )
    fetched = harness.ask(request, 12, FetchResponse).responses[0].partitions[0]
    assert fetched.records and len(fetched.records) == len(batch())  # type: ignore[arg-type]


def fuzz(directory: Path, key: ApiKey, version: int, requests: int) -> None:
    random = Random(f"{key.name} {version}")
    harness = Harness(directory, log_segment_bytes="1048576")
    check_alive(harness)
    for _ in range(requests):
        frame = frame_of(forge_for(harness, random).message(APIS[key][0], version), version)
        if random.random() < 0.4:
            frame = mutated(random, frame)
        check_answer(harness, key, version, frame)
        if random.random() < 0.1:
            harness.keep_house()
    check_alive(harness)
    harness.restart()
    check_alive(harness)


def mutated(random: Random, frame: bytes) -> bytes:
    """Some bytes are others, gone, or more; key, version and length stay true."""
    body = bytearray(frame[8:])
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(body) + 1)
        match random.randrange(4):
            case 0 if at < len(body):
                body[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            case 1:
                del body[at : at + random.choice((1, 2, 4, 8))]
            case 2:
                body[at:at] = random.randbytes(random.choice((1, 2, 4)))
            case _:
                del body[at:]
    return (4 + len(body)).to_bytes(4, "big") + frame[4:8] + body


def ident(case: object) -> str:
    return case.name if isinstance(case, ApiKey) else str(case)


@pytest.mark.parametrize(("key", "version"), CASES, ids=ident)
def test_any_request(tmp_path: Path, caplog: pytest.LogCaptureFixture, key: ApiKey, version: int) -> None:
    with caplog.at_level(logging.ERROR):
        fuzz(tmp_path, key, version, REQUESTS_PER_CASE)
    assert not caplog.records, caplog.text


@pytest.mark.soak
@pytest.mark.parametrize(("key", "version"), CASES, ids=ident)
def test_very_many_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture, key: ApiKey, version: int) -> None:
    with caplog.at_level(logging.ERROR):
        fuzz(tmp_path, key, version, REQUESTS_PER_SOAK)
    assert not caplog.records, caplog.text


def test_requests_of_all_kinds_to_one_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    random = Random(1)
    harness = Harness(tmp_path)
    check_alive(harness)
    with caplog.at_level(logging.ERROR):
        for _ in range(1500):
            key, version = random.choice(CASES)
            frame = frame_of(forge_for(harness, random).message(APIS[key][0], version), version)
            check_answer(harness, key, version, frame)
            if random.random() < 0.02:
                harness.keep_house()
                check_alive(harness)
    assert not caplog.records, caplog.text
