"""Cost of a request to one partition, measured in function calls, however many partitions exist.

Compiled code hides most calls from the count; the counts that remain must still be equal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from odradek.base.errors import ErrorCode
from odradek.core.broker.housekeeping import CHECKED_PER_SLICE
from odradek.wire.messages.create_topics import CreateTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.asking import CREATE_TOPICS, FETCH, PRODUCE, create_request, produce_request
from support.in_memory import NOW_MS, Harness

FEW, MANY = 4, 1200
LATEST = -1
CALLS_EACH_MAX = 15  # Half of it is needed.
ENDED = object()
CHANCE = 20  # Calls more or fewer, as a timer is due or not; one for each partition would be 1,196.


def calls_of(work: Callable[[], object]) -> int:
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def with_partitions(folder: Path, others: int) -> Harness:
    """Return a broker with a topic of two partitions and a topic with the given number of others."""
    harness = Harness(folder)
    for name, partitions in (("t", 2), ("others", others)):
        made = harness.request(create_request(name, partitions=partitions), CREATE_TOPICS, CreateTopicsResponse)
        assert made.topics[0].error_code == ErrorCode.NONE
    return harness


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Harness, Harness]:
    few, many = (with_partitions(tmp_path_factory.mktemp("data"), others) for others in (FEW, MANY))
    return few, many


def fetch(**session: int) -> FetchRequest:
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    topics = [FetchTopic(topic="t", partitions=partitions)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics, forgotten_topics_data=[], **session)


REQUESTS: dict[str, tuple[object, int]] = {
    "produce": (produce_request("t", b"value", acks=1, timestamp_ms=NOW_MS), PRODUCE),
    "fetch": (fetch(), FETCH),
    "list offsets": (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])],
        ),
        7,
    ),
    "metadata of one topic": (
        MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False),
        9,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REQUESTS)
def test_request_cost_is_independent_of_partition_count(brokers: tuple[Harness, Harness], name: str) -> None:
    def cost(harness: Harness) -> int:
        message, version = REQUESTS[name]
        for _ in range(3):  # Exclude one-time setup from the count.
            harness.send(message, version)
            harness.settle()
        return calls_of(lambda: (harness.send(message, version), harness.settle()))

    few, many = brokers
    assert cost(many) - cost(few) < CHANCE


def test_incremental_fetch_cost_is_independent_of_session_size(brokers: tuple[Harness, Harness]) -> None:
    def cost(harness: Harness, others: int) -> int:
        partitions = [
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(others)
        ]
        first = fetch(session_epoch=0)
        first.topics.append(FetchTopic(topic="others", partitions=partitions))
        session = harness.request(first, FETCH, FetchResponse).session_id
        assert session
        for epoch in (1, 2):
            harness.send(fetch(session_id=session, session_epoch=epoch), FETCH)
        return calls_of(lambda: harness.send(fetch(session_id=session, session_epoch=3), FETCH))

    few, many = brokers
    assert cost(many, MANY) - cost(few, FEW) < CHANCE


def test_a_round_of_housekeeping_over_idle_partitions_is_cheap_and_in_slices(brokers: tuple[Harness, Harness]) -> None:
    def steps(harness: Harness) -> list[int]:
        harness.pass_time(1000)
        round_of = harness.broker.run_housekeeping(harness.now)
        found, yielded = list[int](), list[object]()
        while ENDED not in yielded:
            found.append(calls_of(lambda: yielded.append(next(round_of, ENDED))))
        return found

    few, many = brokers
    for harness in brokers:
        harness.run_housekeeping()  # Finish the tasks that are due at startup.
    more = sum(steps(many)) - sum(steps(few))
    assert more / (MANY - FEW) < CALLS_EACH_MAX
    assert max(steps(many)) < CHECKED_PER_SLICE * CALLS_EACH_MAX
