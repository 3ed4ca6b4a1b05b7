"""Responses of a leader with followers to producers, ListOffsets and DeleteRecords requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.fetch.list_offsets import EARLIEST, LATEST
from odradek.api.produce import large_produce
from odradek.api.request.admission import Admission
from odradek.api.request.outcome import Encoded
from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER
from odradek.core.kernel.access import ANONYMOUS, Operation, ResourceType
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.record.builder import encode_batch
from odradek.wire.connection import Connection
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
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
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.wire.request import Request
from odradek.wire.schema.api_keys import ApiKey
from support.asking import ALL, LEADER, PRODUCE, produce_request
from support.configuring import BROKER, SET, alter
from support.controlling import OTHER, Controlling
from support.fetching_follower import FetchingFollower, is_parked, offsets_of
from support.in_memory import CLIENT, NOW_MS, US, frame_of
from support.led import ALL_THREE, LAG_MS_MAX, THIRD, Led
from support.rights import Granted, on, on_cluster

WAIT_MS = 500
NOT_KNOWN = {4: ErrorCode.LEADER_NOT_AVAILABLE, 5: ErrorCode.OFFSET_NOT_AVAILABLE}


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return Led(tmp_path)


@pytest.fixture
def other(led: Led) -> FetchingFollower:
    return FetchingFollower(led, OTHER)


@pytest.fixture
def third(led: Led) -> FetchingFollower:
    return FetchingFollower(led, THIRD)


# Producers.


def test_acks_all_produce_times_out_after_its_timeout(led: Led) -> None:
    request = produce_request("t", b"a", timestamp_ms=NOW_MS)
    request.timeout_ms = 100
    waiting = led.harness.send(request, PRODUCE)
    assert led.is_waiting(waiting)
    led.harness.pass_time(100)
    assert not led.is_waiting(waiting)
    assert led.produced(waiting) == (ErrorCode.REQUEST_TIMED_OUT, -1)


def test_min_isr_can_be_raised_at_run_time(led: Led) -> None:
    led.pass_time(2 * LAG_MS_MAX)
    led.answer_proposal(led.take_proposal())
    assert led.state.isr == (US,)
    assert led.produced(led.produce()) == (ErrorCode.NONE, 0)
    request = alter((BROKER, "", [("min.insync.replicas", SET, "2")]))
    (result,) = led.harness.request(request, 1, IncrementalAlterConfigsResponse).responses
    assert result.error_code == ErrorCode.NONE
    assert led.produced(led.produce()) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)


def is_known(led: Led, acks: int) -> bool:
    """Return whether the next such request matches a template."""
    (request_frame,) = Connection().receive_data(
        frame_of(produce_request("t", b"a", acks=acks, timestamp_ms=NOW_MS), PRODUCE, 1, CLIENT)
    )
    peer = led.harness.peer
    return peer.produce_templates.match_request(request_frame, peer.admission.produce_templates) is not None


def test_templated_produce_waits_for_followers(led: Led, other: FetchingFollower, third: FetchingFollower) -> None:
    led.produce(acks=LEADER)
    waiting = [led.produce(acks=ALL)]
    assert is_known(led, LEADER) and is_known(led, ALL)
    waiting.append(led.produce(acks=ALL))
    assert led.produced(led.produce(acks=LEADER)) == (ErrorCode.NONE, 3)
    assert led.visible() == 0, "also what is answered at once"
    third.catch_up()
    other.fetch({0: 2})
    assert [led.is_waiting(one) for one in waiting] == [False, True]
    other.fetch({0: 4})
    assert [led.produced(one) for one in waiting] == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 2)]
    assert led.high_watermark == 4


def test_large_produce_waits_for_followers(led: Led, other: FetchingFollower, third: FetchingFollower) -> None:
    """Its batch is written during the receipt; followers learn of it at the end of the request."""
    led.produce(acks=ALL)
    for follower in (other, third, other):  # The first completes with the records committed by then.
        follower.catch_up()
    fetches = [follower.send({0: 1}, wait=WAIT_MS) for follower in (other, third)]
    body = produce_request("t", b"a" * 900_000, acks=ALL, timestamp_ms=NOW_MS)
    (request,) = Connection().receive_data(frame_of(body, PRODUCE, 1, CLIENT))
    front = Request(ApiKey.PRODUCE, PRODUCE, 1, CLIENT, request.body[:65_536], 0, 0)
    large = large_produce.begin_large_produce(
        led.harness.broker, led.harness.peer, front, len(request.body), led.harness.now
    )
    assert large is not None
    assert all(is_parked(led, one) for one in fetches)
    start = len(request.body) - large.tail_bytes - large.arrival.batch.size
    begun = 65_536 - start
    rest = bytes(request.body[65_536 : len(request.body) - large.tail_bytes])
    assert begun + len(rest) == large.arrival.batch.size
    large.arrival.file.write(large.arrival.position, rest)
    staged = large.finish(large.arrival.batch.crc, b"\0", led.harness.now)
    assert staged is not None
    outcome = staged.finish()
    assert isinstance(outcome, ParkedRequest)
    led.harness.broker.purgatory.park(outcome)
    for follower, fetch in zip((other, third), fetches, strict=True):
        assert not is_parked(led, fetch)
        assert offsets_of(follower.read_response(fetch)[0]) == [1]
    assert led.is_waiting(outcome)
    other.fetch({0: 2})
    third.fetch({0: 2})
    assert not led.is_waiting(outcome)
    answer = led.harness.decoded(outcome.then(), PRODUCE, ProduceResponse).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)


def test_committed_partition_stays_so_while_the_request_waits(tmp_path: Path) -> None:
    led = Led(tmp_path, partitions=2, min_insync_replicas="2")
    followers = [FetchingFollower(led, one) for one in (OTHER, THIRD)]
    for follower in followers:
        follower.catch_up(0, 1)
    batch = encode_batch([(None, b"a", (), NOW_MS)])
    parts = [PartitionProduceData(index=index, records=bytes(batch)) for index in (0, 1)]
    request = ProduceRequest(acks=ALL, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    waiting = led.harness.send(request, PRODUCE)
    for follower in followers:
        follower.fetch({1: 1})
    assert led.is_waiting(waiting)
    assert led.controller.send_leader_and_isr("t", 1, epoch=1, replicas=(US,)) == {}
    led.fetch_as_follower(OTHER, THIRD)
    assert not led.is_waiting(waiting)
    answer = led.harness.decoded(led.harness.finished(waiting), PRODUCE, ProduceResponse)
    results = [(one.error_code, one.base_offset) for one in answer.responses[0].partition_responses]
    assert results == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 0)]


def test_write_does_not_wait_for_a_replica_removed_by_the_controller(led: Led, other: FetchingFollower) -> None:
    """The update of the controller is the only event."""
    other.catch_up()
    waiting = led.produce()
    other.fetch({0: 1})
    assert led.is_waiting(waiting)
    assert led.controller.send_leader_and_isr("t", epoch=1, replicas=(US, OTHER)) == {}
    assert not led.is_waiting(waiting)
    assert led.produced(waiting) == (ErrorCode.NONE, 0)


# Other APIs.


def list_offset(led: Led, timestamp: int, *, broker: int = -1, version: int = 5) -> tuple[ErrorCode, int]:
    part = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=broker, topics=[ListOffsetsTopic(name="t", partitions=[part])])
    (partition,) = led.harness.request(request, version, ListOffsetsResponse).topics[0].partitions
    return ErrorCode(partition.error_code), partition.offset


def test_list_offsets_returns_log_end_to_brokers_and_committed_to_clients(led: Led) -> None:
    led.produce(acks=LEADER)
    assert list_offset(led, LATEST, broker=OTHER) == (ErrorCode.NONE, 1)
    assert list_offset(led, LATEST) == (ErrorCode.NONE, 0)
    assert list_offset(led, EARLIEST, broker=OTHER) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize(("version", "code"), NOT_KNOWN.items())
def test_new_leader_refuses_the_latest_offset_until_it_is_known(led: Led, version: int, code: ErrorCode) -> None:
    """Its high watermark is below the one that its predecessor exposed (KIP-207)."""
    led.produce(acks=LEADER)
    assert led.controller.send_leader_and_isr("t", leader=NO_BROKER, epoch=1, replicas=ALL_THREE) == {}
    assert led.controller.send_leader_and_isr("t", epoch=2, replicas=ALL_THREE) == {}
    assert list_offset(led, LATEST, version=version) == (code, -1)
    assert list_offset(led, NOW_MS + 1, version=version) == (code, -1)
    assert list_offset(led, EARLIEST, version=version) == (ErrorCode.NONE, 0)
    assert list_offset(led, LATEST, broker=OTHER, version=version) == (ErrorCode.NONE, 1)
    led.fetch_as_follower(OTHER, THIRD)
    assert list_offset(led, LATEST, version=version) == (ErrorCode.NONE, 1)
    assert list_offset(led, NOW_MS + 1, version=version) == (ErrorCode.NONE, -1)


@pytest.mark.parametrize("broker", [-1, OTHER])
def test_epoch_end_requires_cluster_action_or_describe(led: Led, broker: int) -> None:
    led.produce(acks=LEADER)
    parts = [OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)]
    request = OffsetForLeaderEpochRequest(replica_id=broker, topics=[OffsetForLeaderTopic(topic="t", partitions=parts)])
    for rules in (on_cluster(Operation.CLUSTER_ACTION), on(ResourceType.TOPIC, "t", may=[Operation.DESCRIBE])):
        led.harness.peer.admission = Admission(ANONYMOUS, Granted([*rules]))
        (part,) = led.harness.request(request, 4, OffsetForLeaderEpochResponse).topics[0].partitions
        assert (part.error_code, part.leader_epoch, part.end_offset) == (ErrorCode.NONE, 0, 1)
    led.harness.peer.admission = Admission(ANONYMOUS, Granted())
    (part,) = led.harness.request(request, 4, OffsetForLeaderEpochResponse).topics[0].partitions
    assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# Deleting records.


def delete_below(led: Led, offset: int) -> Encoded | ParkedRequest[Encoded]:
    parts = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=parts)], timeout_ms=60_000)
    return led.harness.send(request, 2)


def deleted(led: Led, outcome: Encoded | ParkedRequest[Encoded]) -> tuple[ErrorCode, int]:
    answer = led.harness.decoded(led.harness.finished(outcome), 2, DeleteRecordsResponse)
    (part,) = answer.topics[0].partitions
    return ErrorCode(part.error_code), part.low_watermark


@pytest.fixture
def with_records(led: Led, other: FetchingFollower, third: FetchingFollower) -> Led:
    for _ in range(3):
        led.produce(acks=LEADER)
    other.catch_up()
    third.catch_up()
    other.catch_up()
    assert led.high_watermark == 3
    return led


def test_deletion_of_records_waits_for_all_live_replicas(
    with_records: Led, other: FetchingFollower, third: FetchingFollower
) -> None:
    led = with_records
    fetch = other.send({}, wait=WAIT_MS)
    outcome = delete_below(led, 2)
    assert led.is_waiting(outcome)
    assert other.read_response(fetch)[0].log_start_offset == 2, "it need not wait for its time"
    other.log_start = 2
    other.fetch({0: 3})
    assert led.is_waiting(outcome)
    third.log_start = 3
    third.fetch({0: 3})
    assert not led.is_waiting(outcome)
    assert deleted(led, outcome) == (ErrorCode.NONE, 2)
    again = delete_below(led, 1)
    assert deleted(led, again) == (ErrorCode.NONE, 2), "what is gone is gone"


def test_deletion_of_records_ignores_dead_replicas(with_records: Led, other: FetchingFollower) -> None:
    led = with_records
    outcome = delete_below(led, 2)
    led.controller.send_update_metadata({"t": 1}, brokers=(US, OTHER))
    other.log_start = 2
    other.fetch({0: 3})
    assert deleted(led, outcome) == (ErrorCode.NONE, 2)


def test_deletion_of_records_times_out_without_followers(with_records: Led) -> None:
    assert deleted(with_records, delete_below(with_records, 2)) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert with_records.leading.log.start_offset == 2


def test_deletion_of_records_ends_when_the_leader_changes(with_records: Led) -> None:
    outcome = delete_below(with_records, 2)
    assert with_records.is_waiting(outcome)
    assert with_records.controller.send_leader_and_isr("t", leader=NO_BROKER, epoch=1, replicas=ALL_THREE) == {}
    assert not with_records.is_waiting(outcome)
    assert deleted(with_records, outcome)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("flush_messages", [None, "9223372036854775807"])
def test_leader_alone_in_the_isr_waits_for_its_disk(tmp_path: Path, flush_messages: str | None) -> None:
    """As without followers, and also for earlier records, unless flush.messages is configured."""
    led = Led(tmp_path, **({} if flush_messages is None else {"flush_messages": flush_messages}))
    before = led.produce()
    led.pass_time(2 * LAG_MS_MAX)
    broker, positions = led.harness.broker, led.leading.positions
    assert (positions.high_watermark, positions.durable_end) == (0, 0 if flush_messages else 1)
    led.answer_proposal(led.take_proposal())
    after = led.produce()
    if flush_messages is not None:
        assert not isinstance(after, ParkedRequest), "nobody waits for the disk"
        assert not broker.flushes.has_pending
        return
    assert positions.high_watermark == positions.durable_end == 1
    assert broker.flushes.has_pending
    assert led.produced(before) == (ErrorCode.NONE, 0)
    assert led.produced(after) == (ErrorCode.NONE, 1)
    assert positions.high_watermark == positions.durable_end == 2


def test_partition_without_followers_is_not_synced_on_election(tmp_path: Path) -> None:
    harness = Led(tmp_path).harness
    controller = Controlling(harness)
    assert controller.send_leader_and_isr("lone", 0, is_new=True) == {}
    harness.send(produce_request("lone", b"a", acks=LEADER, timestamp_ms=NOW_MS), PRODUCE)
    assert controller.send_leader_and_isr("lone", 0, epoch=2) == {}
    assert not harness.broker.flushes.has_pending
