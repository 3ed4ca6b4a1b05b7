"""Fetches of many partitions in slices; events between two slices are not missed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from odradek.api.conversation import Conversation
from odradek.base.errors import ErrorCode
from odradek.base.limits import PARTITIONS_PER_FETCH_SESSION_MAX, SLICE_ELEMENTS
from odradek.core.fetch.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, SESSIONLESS
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.record.builder import encode_batch
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from support.in_memory import NOW_MS, Harness, frame_of

pytestmark = pytest.mark.slow

VERSION = 12
MANY = 2 * SLICE_ELEMENTS + 20
BATCH = bytes(encode_batch([(b"k", b"v", (), NOW_MS)]))
WAIT_MS = 500


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    topic = CreatableTopic(name="t", num_partitions=MANY, replication_factor=1, assignments=[], configs=[])
    (result,) = made.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 7, CreateTopicsResponse).topics
    assert not result.error_code
    return made


def produce(harness: Harness, *indexes: int) -> None:
    parts = [PartitionProduceData(index=index, records=BATCH) for index in indexes]
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    (topic,) = harness.request(request, 9, ProduceResponse).responses
    assert not any(part.error_code for part in topic.partition_responses)


def fetch(
    indexes: Iterable[int] = range(MANY),
    *,
    wait: int = WAIT_MS,
    session: int = SESSIONLESS,
    epoch: int = FINAL_EPOCH,
    min_bytes: int = 1,
    topic: str = "t",
    forgotten: Iterable[int] = (),
) -> FetchRequest:
    parts = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in indexes]
    return FetchRequest(
        max_wait_ms=wait,
        min_bytes=min_bytes,
        max_bytes=100_000,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=parts)] if parts else [],
        forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=[*forgotten])] if forgotten else [],
    )


def send_fetch(harness: Harness, request: FetchRequest) -> FetchResponse:
    return harness.request(request, VERSION, FetchResponse)


def served_partitions(response: FetchResponse) -> list[int]:
    """Return the partitions whose response has records."""
    return [part.partition_index for topic in response.responses for part in topic.partitions if part.records]


def count_partitions(response: FetchResponse) -> int:
    return sum(len(topic.partitions) for topic in response.responses)


def began(harness: Harness, request: FetchRequest, slices: int) -> Conversation:
    """Return a conversation after some slices of the request."""
    talk = harness.talk()
    talk.receive_data(frame_of(request, VERSION, 1, "c"))
    for _ in range(slices):
        assert talk.step(harness.now, 0), "there is more to do"
    return talk


def rest(harness: Harness, talk: Conversation) -> FetchResponse:
    """Return the response, without waiting for any event."""
    harness.resume(talk)
    return harness.decoded(talk.data_to_send(), VERSION, FetchResponse)


def test_partitions_are_returned_in_request_order(harness: Harness) -> None:
    produce(harness, 0, 7, MANY - 1)
    response = send_fetch(harness, fetch([*range(MANY), MANY]))
    (topic,) = response.responses
    assert [part.partition_index for part in topic.partitions] == [*range(MANY + 1)]
    assert served_partitions(response) == [0, 7, MANY - 1]
    codes = [part.error_code for part in topic.partitions]
    assert codes == [ErrorCode.NONE] * MANY + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_session_returns_only_new_records(harness: Harness) -> None:
    first = send_fetch(harness, fetch(epoch=INITIAL_EPOCH, wait=0))
    assert count_partitions(first) == MANY
    produce(harness, MANY - 1)
    second = send_fetch(harness, fetch([], session=first.session_id, epoch=1))
    assert (second.session_id, served_partitions(second), count_partitions(second)) == (first.session_id, [MANY - 1], 1)
    rest_of_it = fetch([MANY - 1], session=first.session_id, epoch=2, forgotten=range(MANY - 1))
    assert served_partitions(send_fetch(harness, rest_of_it)) == [MANY - 1]
    session = harness.broker.sessions.find_session(first.session_id)
    assert session is not None and len(session.partitions) == 1


def test_parked_fetch_completes_at_any_partition_and_delays_no_other(harness: Harness) -> None:
    waiting = harness.send(fetch(), VERSION)
    assert isinstance(waiting, ParkedRequest) and isinstance(waiting.owner, Conversation)
    talk = waiting.owner
    other_talk = harness.talk()
    other_talk.receive_data(frame_of(fetch([0], wait=0), VERSION, 2, "c"))
    harness.resume(other_talk)
    assert other_talk.data_to_send(), "another connection is answered"
    produce(harness, MANY // 2)
    assert harness.broker.purgatory.take_completed() == [waiting]
    talk.answer_parked(waiting, harness.now)
    assert served_partitions(rest(harness, talk)) == [MANY // 2]


def test_record_between_two_slices_is_returned_immediately(harness: Harness) -> None:
    """Partition 0 was read before its record arrived."""
    talk = began(harness, fetch(wait=60_000), slices=3)
    produce(harness, 0)
    assert served_partitions(rest(harness, talk)) == [0]


def test_bytes_during_slices_and_wait_are_added(harness: Harness) -> None:
    """The first batch arrives between two slices, the second while the fetch is parked."""
    talk = began(harness, fetch(wait=60_000, min_bytes=2 * len(BATCH)), slices=3)
    produce(harness, 0)
    harness.resume(talk)
    waiting = talk.waits_for
    assert isinstance(waiting, ParkedRequest)
    produce(harness, 0)
    assert harness.broker.purgatory.take_completed() == [waiting]
    talk.answer_parked(waiting, harness.now)
    assert served_partitions(rest(harness, talk)) == [0]


def test_topic_deleted_between_two_slices_returns_an_error_immediately(harness: Harness) -> None:
    talk = began(harness, fetch(wait=60_000), slices=3)
    harness.request(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5, DeleteTopicsResponse)
    (topic,) = rest(harness, talk).responses
    assert topic.partitions[0].error_code == ErrorCode.NONE, "it was there when it was read"
    assert topic.partitions[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deadline_starts_at_the_arrival_of_the_request(harness: Harness) -> None:
    talk = began(harness, fetch(), slices=2)
    harness.pass_time(WAIT_MS - 10)
    harness.resume(talk)
    assert isinstance(talk.waits_for, ParkedRequest)
    harness.pass_time(10)
    assert harness.broker.purgatory.take_completed() == [talk.waits_for]


def test_disconnect_between_two_slices_leaves_no_state(harness: Harness) -> None:
    talk = began(harness, fetch(), slices=3)
    talk.leave()
    waiting = harness.send(fetch(), VERSION)
    assert isinstance(waiting, ParkedRequest) and isinstance(waiting.owner, Conversation)
    waiting.owner.leave()
    produce(harness, *range(MANY))
    assert not harness.broker.purgatory and not harness.broker.purgatory.take_completed()


def test_session_partitions_are_bounded(harness: Harness) -> None:
    half = range(PARTITIONS_PER_FETCH_SESSION_MAX // 2)
    first = send_fetch(harness, fetch(half, topic="nobody's", epoch=INITIAL_EPOCH))
    second = send_fetch(harness, fetch(half, topic="nobody's, too", session=first.session_id, epoch=1))
    assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.NONE) and second.session_id
    third = send_fetch(harness, fetch([0], topic="one more", session=first.session_id, epoch=2))
    assert third.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and not len(harness.broker.sessions)
    whole = send_fetch(harness, fetch(range(2 * len(half) + 1), topic="nobody's", epoch=INITIAL_EPOCH))
    assert (whole.error_code, whole.session_id, count_partitions(whole)) == (
        ErrorCode.NONE,
        SESSIONLESS,
        2 * len(half) + 1,
    )


@pytest.mark.parametrize("version", [4, VERSION])
def test_long_request_is_refused_like_a_short_one(harness: Harness, version: int) -> None:
    request = fetch(range(2_000))
    request.isolation_level = 7
    refused = harness.request(request, version, FetchResponse)
    if version == VERSION:
        assert (refused.error_code, refused.responses) == (ErrorCode.INVALID_REQUEST, [])
    else:
        codes = [part.error_code for topic in refused.responses for part in topic.partitions]
        assert codes == [ErrorCode.INVALID_REQUEST] * 2_000
