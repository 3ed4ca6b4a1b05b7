"""Random requests: each is answered in its version or Malformed, and the broker keeps working."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName
from odradek.wire.catalog import APIS
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.malformed import Malformed
from support.hostile import CASES, batch, forge_for, frame_of, mutated
from support.in_memory import Harness

REQUESTS_PER_CASE = 100
REQUESTS_PER_SOAK = 5_000
WITNESS = TopicName("witness")
ONE_SHARD = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


def topic_ids(harness: Harness) -> dict[str, bytes]:
    return {topic.name: topic.id for topic in harness.broker.view.topics.values()}


def check_answer(harness: Harness, key: ApiKey, version: int, frame: bytes) -> None:
    """Send one request; its response decodes, or its bytes were invalid."""
    try:
        answer = harness.finished(harness.send_frame(frame))
    except (Malformed, ConnectionAbortedError):
        return
    if answer is not None:
        harness.decoded(answer, version, APIS[key][1])


def check_alive(harness: Harness) -> None:
    """Check that another topic accepts a record and returns it."""
    if WITNESS not in harness.broker.view.topics:
        topic = CreatableTopic(name=WITNESS, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        (made,) = harness.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse).topics
        assert made.error_code == ErrorCode.NONE
        for key_type in (0, 1):  # Coordinators are available for requests.
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
            assert harness.request(request, 4, FindCoordinatorResponse).coordinators[0].error_code == ErrorCode.NONE
    parts = [PartitionProduceData(index=0, records=batch())]
    topics = [TopicProduceData(name=WITNESS, partition_data=parts)]
    answer = harness.request(ProduceRequest(acks=-1, timeout_ms=100, topic_data=topics), 9, ProduceResponse)
    (part,) = answer.responses[0].partition_responses
    assert part.error_code == ErrorCode.NONE, part
    partitions = [FetchPartition(partition=0, fetch_offset=part.base_offset, partition_max_bytes=1 << 20)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=WITNESS, partitions=partitions)], forgotten_topics_data=[]
    )
    fetched = harness.request(request, 12, FetchResponse).responses[0].partitions[0]
    assert fetched.records and len(fetched.records) == len(batch())  # type: ignore[arg-type]


def fuzz(directory: Path, key: ApiKey, version: int, requests: int) -> None:
    random = Random(f"{key.name} {version}")
    harness = Harness(directory, log_segment_bytes="1048576", **ONE_SHARD)
    check_alive(harness)
    for _ in range(requests):
        frame = frame_of(forge_for(random, topic_ids(harness)).message(APIS[key][0], version), version)
        if random.random() < 0.4:
            frame = mutated(random, frame)
        check_answer(harness, key, version, frame)
        if random.random() < 0.1:
            harness.run_housekeeping()
    check_alive(harness)
    harness.restart()
    check_alive(harness)


def ident(case: object) -> str:
    return case.name if isinstance(case, ApiKey) else str(case)


@pytest.mark.parametrize(("key", "version"), CASES, ids=ident)
def test_random_requests_are_answered_or_malformed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: ApiKey, version: int
) -> None:
    with caplog.at_level(logging.ERROR):
        fuzz(tmp_path, key, version, REQUESTS_PER_CASE)
    assert not caplog.records, caplog.text


@pytest.mark.soak
@pytest.mark.parametrize(("key", "version"), CASES, ids=ident)
def test_many_more_random_requests_are_answered_or_malformed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: ApiKey, version: int
) -> None:
    with caplog.at_level(logging.ERROR):
        fuzz(tmp_path, key, version, REQUESTS_PER_SOAK)
    assert not caplog.records, caplog.text


def test_random_requests_of_all_kinds_are_answered_by_one_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(1)
    harness = Harness(tmp_path, **ONE_SHARD)
    check_alive(harness)
    with caplog.at_level(logging.ERROR):
        for _ in range(1500):
            key, version = random.choice(CASES)
            frame = frame_of(forge_for(random, topic_ids(harness)).message(APIS[key][0], version), version)
            check_answer(harness, key, version, frame)
            if random.random() < 0.02:
                harness.run_housekeeping()
                check_alive(harness)
    assert not caplog.records, caplog.text
