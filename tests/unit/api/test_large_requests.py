"""Memory of very large requests: one is decoded at a time, and refused ones are freed immediately."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.api.conversation import Conversation
from odradek.base.errors import ErrorCode
from odradek.base.limits import LARGE_REQUEST_BYTES, REQUEST_ELEMENTS_MAX
from odradek.core.kernel.work import Work
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.schema.malformed import Malformed
from support.in_memory import Harness, frame_of

pytestmark = pytest.mark.slow

MANY = 5_000
# Memory of a request beside its elements: frames, a generator.
LEFT_MAX = 200


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def large_request(name: str = "a-name-that-is-long-enough-for-it-{}", count: int = MANY) -> bytes:
    topics = [MetadataRequestTopic(name=name.format(number)) for number in range(count)]
    return frame_of(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9, 1, "test")


def send_data(harness: Harness, data: bytes) -> Conversation:
    """Return a connection that sent the request; a thread decodes it if it has the turn."""
    talk = harness.talk()
    talk.receive_data(data)
    while talk.step(harness.now, 0):
        pass
    return talk


def woken(harness: Harness, talk: Conversation) -> None:
    for parked in harness.broker.purgatory.take_completed():
        assert parked.owner is talk
        talk.answer_parked(parked, harness.now)  # type: ignore[arg-type]
    while talk.step(harness.now, 0):
        pass


def is_being_read(talk: Conversation) -> bool:
    return isinstance(talk.waits_for, Work)


def test_next_large_request_is_decoded_after_the_response_to_the_first(harness: Harness) -> None:
    data = large_request()
    assert len(data) > LARGE_REQUEST_BYTES
    first, second = send_data(harness, data), send_data(harness, data)
    assert is_being_read(first) and not is_being_read(second)
    harness.resume(first)
    assert first.data_to_send()
    woken(harness, second)
    assert is_being_read(second)
    harness.resume(second)
    assert second.data_to_send()


def test_smaller_request_passes_a_large_one(harness: Harness) -> None:
    first, other = send_data(harness, large_request()), send_data(harness, large_request("{}"))
    assert is_being_read(first) and is_being_read(other)


@pytest.mark.parametrize("end", [Conversation.leave, Conversation.stop])
def test_large_request_of_a_closed_connection_gives_up_its_turn(
    harness: Harness, end: Callable[[Conversation], object]
) -> None:
    data = large_request()
    first, second, third = (send_data(harness, data) for _ in range(3))
    end(second)
    end(first)
    woken(harness, third)
    assert is_being_read(third)


def test_stalled_large_request_gives_up_its_turn(harness: Harness) -> None:
    """For example, its peer does not read, so it is not stepped."""
    data = large_request()
    first, second = send_data(harness, data), send_data(harness, data)
    for work in harness.broker.works:
        work.run()
        work.on_finished()
    harness.broker.works.clear()
    first.step(harness.now, 0)
    assert first.can_continue(harness.now)
    while not is_being_read(second):
        due = harness.broker.next_due()
        assert due is not None
        harness.pass_time(due - harness.now.steady)
        woken(harness, second)
    harness.resume(first)
    harness.resume(second)
    assert first.data_to_send() and second.data_to_send()


@contextmanager
def leaves_no_garbage() -> Iterator[None]:
    """Check that all objects are freed with their last reference.

    The collector of a broker's process visits old cycles rarely.
    """
    gc.collect()
    gc.disable()
    try:
        yield
        assert gc.collect() < LEFT_MAX
    finally:
        gc.enable()


def test_oversized_commit_leaves_no_garbage(harness: Harness) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5, CreateTopicsResponse)

    def commit(count: int) -> ErrorCode:
        parts = [
            OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="x" * 1000)
            for _ in range(count)
        ]
        topics = [OffsetCommitRequestTopic(name="t", partitions=parts)]
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)
        return ErrorCode(harness.request(request, 8, OffsetCommitResponse).topics[0].partitions[0].error_code)

    harness.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, FindCoordinatorResponse)
    assert commit(1) == ErrorCode.NONE
    with leaves_no_garbage():
        assert commit(2_000) == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    "data", [large_request()[:-40], large_request(count=REQUEST_ELEMENTS_MAX + 1)], ids=["cut", "many"]
)
def test_undecodable_body_leaves_no_garbage(harness: Harness, data: bytes) -> None:
    data = (len(data) - 4).to_bytes(4, "big") + data[4:]
    with leaves_no_garbage():
        talk = send_data(harness, data)
        harness.resume(talk)
        assert talk.ending is not None and isinstance(talk.ending.reason, Malformed)
        talk.leave()
        del talk
