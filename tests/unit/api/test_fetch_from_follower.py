"""Consumer fetch from a follower (KIP-392): visible records, and completion of parked fetches."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.fetch import plain_fetch
from odradek.base.errors import ErrorCode
from odradek.base.units import ProducerEpoch, ProducerId
from odradek.core.fetch.fetch_sessions import INITIAL_EPOCH
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from support.asking import FETCH
from support.fetching_follower import offsets_of
from support.followed import Followed, batch
from support.in_memory import NOW_MS

WAIT_MS = 60_000
COMMITTED = 1
PRODUCER = 7


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def marker(base: int, *, commit: bool) -> bytes:
    """Return the end marker of the producer's transaction, as written by the leader."""
    made = end_marker_batch(EndMarker(commit, 0), ProducerId(PRODUCER), ProducerEpoch(0), NOW_MS)  # type: ignore[arg-type]
    made.stamp(base, 0)  # type: ignore[arg-type]
    return bytes(made.view)


def error_of(data: PartitionData) -> ErrorCode:
    return ErrorCode(data.error_code)


# Visible records.


@pytest.mark.parametrize("version", [11, 12, 13, 17])
def test_records_are_visible_up_to_the_local_high_watermark(followed: Followed, version: int) -> None:
    followed.replicate(batch(0), batch(1), batch(2), high_watermark=2)
    response = followed.response_of(followed.fetch(0, version=version), version)
    assert (error_of(response), response.high_watermark, response.last_stable_offset) == (ErrorCode.NONE, 2, 2)
    assert offsets_of(response) == [0, 1], "the third may be cut off yet"
    assert response.preferred_read_replica == -1


@pytest.mark.parametrize("version", [4, 10])
def test_old_client_version_is_sent_to_the_leader(followed: Followed, version: int) -> None:
    followed.replicate(batch(0), high_watermark=1)
    assert (
        error_of(followed.response_of(followed.fetch(0, version=version), version)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def test_offset_outside_the_log_is_out_of_range(followed: Followed) -> None:
    followed.replicate(batch(0), batch(1), batch(2), high_watermark=3, start=1)
    assert error_of(followed.response_of(followed.fetch(0))) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert error_of(followed.response_of(followed.fetch(4))) is ErrorCode.OFFSET_OUT_OF_RANGE, "the leader may have it"


def test_an_offset_above_the_high_watermark_has_no_records_yet(followed: Followed) -> None:
    followed.replicate(batch(0), batch(1), batch(2), high_watermark=1)
    response = followed.response_of(followed.fetch(2))
    assert (error_of(response), response.high_watermark, offsets_of(response)) == (ErrorCode.NONE, 1, [])


def test_leader_epochs_are_checked(followed: Followed) -> None:
    followed.start_leader_epoch()
    followed.replicate(batch(0), high_watermark=1)
    codes = [error_of(followed.response_of(followed.fetch(0, leader_epoch=epoch))) for epoch in (0, 1, 2)]
    assert codes == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH]


def test_consumer_with_a_diverging_log_gets_the_divergence(followed: Followed) -> None:
    followed.replicate(batch(0), batch(1), high_watermark=2)
    followed.start_leader_epoch()
    followed.start_leader_epoch()
    followed.replicate(batch(2, 2), high_watermark=3)
    response = followed.response_of(followed.fetch(3, last_fetched_epoch=1))
    assert (response.diverging_epoch.epoch, response.diverging_epoch.end_offset) == (0, 2)
    response = followed.response_of(followed.fetch(3, last_fetched_epoch=3))
    assert error_of(response) is ErrorCode.OFFSET_OUT_OF_RANGE, "no record of that epoch has come here"


def test_offline_log_returns_a_storage_error(followed: Followed) -> None:
    followed.replicate(batch(0), high_watermark=1)
    followed.partition().take_offline()
    assert error_of(followed.response_of(followed.fetch(0))) is ErrorCode.KAFKA_STORAGE_ERROR


# Committed records.


def test_committed_reads_end_at_the_local_last_stable_offset(followed: Followed) -> None:
    followed.replicate(batch(0), batch(1, producer=PRODUCER, sequence=0), marker(2, commit=True), high_watermark=2)
    response = followed.response_of(followed.fetch(0, isolation_level=COMMITTED))
    assert (response.last_stable_offset, offsets_of(response)) == (1, [0]), "the marker is not committed yet"
    followed.replicate(high_watermark=3)
    response = followed.response_of(followed.fetch(0, isolation_level=COMMITTED))
    assert (response.last_stable_offset, offsets_of(response)) == (3, [0, 1, 2])
    assert response.aborted_transactions == []


def test_aborted_transactions_are_listed_in_the_response(followed: Followed) -> None:
    followed.replicate(batch(0, producer=PRODUCER, sequence=0), marker(1, commit=False), high_watermark=2)
    response = followed.response_of(followed.fetch(0, isolation_level=COMMITTED))
    aborted = [(one.producer_id, one.first_offset) for one in response.aborted_transactions or ()]
    assert (offsets_of(response), aborted) == ([0, 1], [(PRODUCER, 0)])


# Parked fetches.


@pytest.mark.parametrize("is_plain", [False, True])
def test_parked_fetch_completes_at_the_high_watermark_not_the_log_end(followed: Followed, is_plain: bool) -> None:
    followed.replicate(batch(0), high_watermark=1)
    if is_plain:
        followed.response_of(followed.fetch(1, wait_ms=WAIT_MS))  # The next request like it uses the template.
    waiting = followed.fetch(1, wait_ms=WAIT_MS)
    assert isinstance(waiting, ParkedRequest)
    assert isinstance(waiting.condition, plain_fetch._DelayedPlainFetch) == is_plain
    followed.replicate(batch(1), batch(2), high_watermark=1)
    assert followed.is_waiting(waiting)
    followed.replicate(high_watermark=2)
    assert not followed.is_waiting(waiting)
    assert offsets_of(followed.response_of(waiting)) == [1]


def test_templated_fetch_reads_the_same_records(followed: Followed) -> None:
    followed.replicate(batch(0), batch(1), high_watermark=1)
    first, second = (followed.response_of(followed.fetch(0)) for _ in range(2))
    assert offsets_of(first) == offsets_of(second) == [0]
    assert len(followed.harness.peer.fetch_templates) == 1


@pytest.mark.parametrize("is_plain", [False, True])
def test_parked_fetch_completes_at_a_new_leader_epoch(followed: Followed, is_plain: bool) -> None:
    followed.replicate(batch(0), high_watermark=1)
    if is_plain:
        followed.response_of(followed.fetch(1, wait_ms=WAIT_MS, leader_epoch=0))
    waiting = followed.fetch(1, wait_ms=WAIT_MS, leader_epoch=0)
    assert isinstance(waiting, ParkedRequest)
    assert isinstance(waiting.condition, plain_fetch._DelayedPlainFetch) == is_plain
    followed.start_leader_epoch()
    assert not followed.is_waiting(waiting)
    assert error_of(followed.response_of(waiting)) is ErrorCode.FENCED_LEADER_EPOCH


def test_parked_fetch_completes_when_the_replica_stops(followed: Followed) -> None:
    waiting = followed.fetch(0, wait_ms=WAIT_MS)
    assert followed.controller.send_stop_replica("t") == {}
    assert not followed.is_waiting(waiting)
    assert error_of(followed.response_of(waiting)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


# Sessions.


class Session:
    """A consumer's session with several partitions of a follower."""

    def __init__(self, followed: Followed) -> None:
        self.followed = followed
        self.id, self.epoch = 0, INITIAL_EPOCH

    def send(self, offsets: dict[int, int], *, wait_ms: int = 0) -> object:
        parts = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in offsets.items()
        ]
        topics = [FetchTopic(topic="t", partitions=parts)] if parts else []
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, session_id=self.id, session_epoch=self.epoch, topics=topics
        )
        self.epoch += 1
        return self.followed.harness.send(request, FETCH)

    def offsets_by_partition(self, outcome: object) -> dict[int, list[int]]:
        harness = self.followed.harness
        answer = harness.decoded(harness.finished(outcome), FETCH, FetchResponse)  # type: ignore[arg-type]
        self.id = answer.session_id
        return {part.partition_index: offsets_of(part) for topic in answer.responses for part in topic.partitions}


def test_session_gets_each_change_once(tmp_path: Path) -> None:
    followed = Followed(tmp_path, partitions=3)
    session = Session(followed)
    assert session.offsets_by_partition(session.send({0: 0, 1: 0, 2: 0})) == {0: [], 1: [], 2: []}
    assert session.offsets_by_partition(session.send({})) == {}
    broker_session = followed.harness.broker.sessions.find_session(session.id)
    assert broker_session is not None and not broker_session.due, "none of them is read again"
    waiting = session.send({}, wait_ms=WAIT_MS)
    followed.replicate(batch(0), high_watermark=0, index=2)
    assert followed.is_waiting(waiting)  # type: ignore[arg-type]
    followed.replicate(high_watermark=1, index=2)
    assert not followed.is_waiting(waiting)  # type: ignore[arg-type]
    assert session.offsets_by_partition(waiting) == {2: [0]}
    assert session.offsets_by_partition(session.send({2: 1})) == {}
    followed.replicate(high_watermark=1, start=1, index=2)
    assert session.offsets_by_partition(session.send({})) == {2: []}, "its log begins elsewhere"


# Other requests to replicas.


@pytest.mark.parametrize(
    ("replica_id", "expected"),
    [(-1, (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)), (3, (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)), (-2, (0, 3))],
)
def test_only_debugging_clients_get_the_log_end_of_a_follower(
    followed: Followed, replica_id: int, expected: tuple[int, int]
) -> None:
    followed.replicate(batch(0), batch(1), batch(2), high_watermark=1)
    parts = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    request = ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=parts)])
    answer = followed.harness.request(request, 7, ListOffsetsResponse)
    (part,) = answer.topics[0].partitions
    assert (part.error_code, part.offset) == expected


def test_epoch_end_request_is_sent_to_the_leader(followed: Followed) -> None:
    followed.replicate(batch(0), high_watermark=1)
    parts = [OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)]
    topics = [OffsetForLeaderTopic(topic="t", partitions=parts)]
    answer = followed.harness.request(OffsetForLeaderEpochRequest(topics=topics), 4, OffsetForLeaderEpochResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
