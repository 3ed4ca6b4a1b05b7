"""CompactPartitions: the request completes when the log is compacted up to its end, and returns the space reclaimed."""

from __future__ import annotations

import errno
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from odradek.api.request.admission import Admission
from odradek.api.request.outcome import Encoded
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, LeaderEpoch, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.broker.effects import Changed
from odradek.core.cleaner.cleaning_steps import Clean
from odradek.core.kernel.access import Operation, Principal, ResourceType
from odradek.core.kernel.cluster_view import PartitionInfo, TopicInfo
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.partition import Partition
from odradek.log.files.disk import DiskFailed
from odradek.log.log.durability import flush_now
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.compact_partitions import (
    CompactPartitionsPartitionResult,
    CompactPartitionsRequest,
    CompactPartitionsResponse,
    CompactPartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.in_memory import Harness, frame_of
from support.rights import Granted, on

SECOND = 1_000
A_DAY = 86_400_000
KEYS, TIMES = 10, 5
ROLLED_PER_SLICE_MAX = 8


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    make(made, "table", 2)
    write(made, "table", 0)
    return made


def make(harness: Harness, name: str, partitions: int = 1, **configs: str) -> None:
    texts = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
    texts |= {key.replace("_", "."): value for key, value in configs.items()}
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in texts.items()],
    )
    answer = harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


def write(harness: Harness, name: str, partition: int = 0, *, keys: int = KEYS, times: int = TIMES, **of: int) -> None:
    """Write each key the given number of times, in one batch each."""
    for _ in range(times):
        records = [(b"k%d" % key, b"v" * 50, (), harness.now.wall) for key in range(keys)]
        part = PartitionProduceData(index=partition, records=bytes(encode_batch(records, **of)))  # type: ignore[arg-type]
        data = [TopicProduceData(name=name, partition_data=[part])]
        answer = harness.request(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=data), 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def log_of(harness: Harness, name: str = "table", partition: int = 0) -> Partition:
    return harness.broker.partitions[TopicPartition(TopicName(name), partition)]


def request(*named: tuple[str, int], timeout_ms: int = A_DAY) -> CompactPartitionsRequest:
    topics = [CompactPartitionsTopic(name=name, partitions=[index]) for name, index in named]
    return CompactPartitionsRequest(topics=topics, timeout_ms=timeout_ms)


def send_request(harness: Harness, *named: tuple[str, int], timeout_ms: int = A_DAY) -> ParkedRequest[Encoded]:
    waiting = harness.send(request(*named, timeout_ms=timeout_ms), 0)
    assert isinstance(waiting, ParkedRequest)
    return waiting


def later(harness: Harness) -> Moment:
    return Moment(TimestampMs(harness.now.wall + SECOND), harness.now.steady + SECOND)


def rounds(harness: Harness, count: int = 1) -> None:
    for _ in range(count):
        harness.now = later(harness)
        harness.run_housekeeping()


def results_of(harness: Harness, waiting: ParkedRequest[Encoded]) -> list[CompactPartitionsPartitionResult]:
    """Return the results of the completed request."""
    talk = waiting.owner
    talk.answer_parked(waiting, harness.now)  # type: ignore[attr-defined]  # A conversation.
    answer = harness.decoded(talk.data_to_send(), 0, CompactPartitionsResponse)  # type: ignore[attr-defined]
    return [part for topic in answer.topics for part in topic.partitions]


def compact(harness: Harness, *named: tuple[str, int]) -> list[CompactPartitionsPartitionResult]:
    """Send the request, and run rounds until it completes."""
    waiting = send_request(harness, *named)
    for _ in range(30):
        rounds(harness)
        if waiting in harness.broker.purgatory.take_completed():
            return results_of(harness, waiting)
    raise AssertionError("half a minute was not enough")


def refusal(harness: Harness, name: str, index: int = 0) -> tuple[ErrorCode, str | None]:
    """Return the immediate response."""
    answer = harness.decoded(outcome(harness, name, index), 0, CompactPartitionsResponse)
    (part,) = answer.topics[0].partitions
    assert (answer.topics[0].name, part.partition_index, part.bytes_before) == (name, index, -1)
    return ErrorCode(part.error_code), part.error_message


def outcome(harness: Harness, name: str, index: int) -> Encoded:
    answer = harness.send(request((name, index)), 0)
    assert not isinstance(answer, ParkedRequest)
    return answer


def damage(partition: Partition) -> None:
    path = Path(partition.log.segments[0].path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_response_has_the_space_reclaimed(harness: Harness) -> None:
    log = log_of(harness).log
    before = log.size
    (won,) = compact(harness, ("table", 0))
    assert (won.error_code, won.error_message, won.held_back_by) == (ErrorCode.NONE, None, None)
    assert (won.bytes_before, won.bytes_after) == (before, log.size)
    assert won.bytes_after < before / (TIMES - 1)
    assert won.removed_records == KEYS * (TIMES - 1)
    assert won.compacted_to == log.compaction.cleaned_to == log.end_offset == KEYS * TIMES
    assert 0 < won.duration_ms < 10 * SECOND
    assert log.segments[-1].base_offset == log.end_offset, "the active segment was rolled"


def test_second_compaction_has_nothing_to_do(harness: Harness) -> None:
    log = log_of(harness).log
    compact(harness, ("table", 0))
    size, passes = log.size, harness.broker.cleaner.stats.passes
    answer = harness.decoded(outcome(harness, "table", 0), 0, CompactPartitionsResponse)
    (won,) = answer.topics[0].partitions
    assert (won.bytes_before, won.bytes_after, won.removed_records) == (size, size, 0)
    assert (won.compacted_to, won.duration_ms) == (KEYS * TIMES, 0)
    assert harness.broker.cleaner.stats.passes == passes


def test_partition_led_by_another_broker_is_refused(harness: Harness) -> None:
    """Broker 2 has the first partition of `spread` alone, and leads the second, with a replica here."""
    other, us = BrokerId(2), harness.broker.id
    led_by = [(other, (other,)), (other, (other, us)), (us, (us, other))]
    partitions = tuple(PartitionInfo(leader, LeaderEpoch(0), replicas, replicas) for leader, replicas in led_by)
    name = TopicName("spread")
    topic = TopicInfo(name, Uuid(bytes(15) + b"s"), partitions, {"cleanup.policy": "compact"})
    harness.learn(Changed(0, {name: topic}))
    for index in (0, 1):
        assert refusal(harness, name, index) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    for unknown, index in ((name, 3), (name, -1), ("nowhere", 0)):
        assert refusal(harness, unknown, index) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    answer = harness.decoded(outcome(harness, name, 2), 0, CompactPartitionsResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE, "it is empty, so that nothing is to be done"


def test_several_partitions_are_compacted_and_unknown_ones_refused(harness: Harness) -> None:
    named = (("table", 0), ("table", 1), ("table", 9), ("table", 0))
    first, empty, unknown = compact(harness, *named)  # A repeated partition has one result.
    assert first.removed_records == KEYS * (TIMES - 1)
    assert (empty.error_code, empty.bytes_before, empty.bytes_after) == (ErrorCode.NONE, 0, 0)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_empty_request_completes_immediately(harness: Harness) -> None:
    answer = harness.send(CompactPartitionsRequest(topics=[], timeout_ms=A_DAY), 0)
    assert not isinstance(answer, ParkedRequest)
    assert harness.decoded(answer, 0, CompactPartitionsResponse).topics == []


def test_api_is_hidden_from_kafka_clients(harness: Harness) -> None:
    api_versions = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    keys = {one.api_key for one in harness.request(api_versions, 3, ApiVersionsResponse).api_keys}
    assert max(keys) < 1_000


@pytest.mark.parametrize(
    ("name", "index", "code"),
    [
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("table", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_unknown_partition_is_refused(harness: Harness, name: str, index: int, code: ErrorCode) -> None:
    assert refusal(harness, name, index) == (code, None)


def test_topic_without_compaction_is_refused(harness: Harness) -> None:
    make(harness, "stream", cleanup_policy="delete")
    code, message = refusal(harness, "stream")
    assert code is ErrorCode.INVALID_CONFIG
    assert message == "topic stream is not compacted: set cleanup.policy=compact first"


def test_disabled_cleaner_refuses_compaction(tmp_path: Path) -> None:
    harness = Harness(tmp_path, log_cleaner_enable="false")
    make(harness, "table")
    code, message = refusal(harness, "table")
    assert code is ErrorCode.INVALID_REQUEST
    assert message is not None and "log.cleaner.enable=true" in message


def test_offline_log_is_refused(harness: Harness) -> None:
    log_of(harness).take_offline()
    assert refusal(harness, "table") == (ErrorCode.KAFKA_STORAGE_ERROR, "the log of table-0 is offline")


def test_compaction_requires_the_right_to_alter_the_topic(harness: Harness) -> None:
    make(harness, "others")
    rights = Granted([*on(ResourceType.TOPIC, "table", may=[Operation.ALTER_CONFIGS])])
    harness.peer.admission = Admission(Principal("User", "tester"), rights)
    assert refusal(harness, "others") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    assert refusal(harness, "nowhere") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    assert compact(harness, ("table", 0))[0].error_code == ErrorCode.NONE


def test_damaged_log_returns_the_reason_each_time(harness: Harness) -> None:
    rounds(harness)
    damage(log_of(harness))
    for _ in range(2):  # Each request repeats the attempt.
        (failed,) = compact(harness, ("table", 0))
        assert failed.error_code == ErrorCode.CORRUPT_MESSAGE
        assert failed.error_message is not None
        assert failed.error_message.startswith("failed to compact table-0: ") and "checksum" in failed.error_message


def test_full_disk_returns_a_storage_error(harness: Harness) -> None:
    waiting = send_request(harness, ("table", 0))
    step = begin_pass(harness)
    harness.broker.on_event(step.run(lambda _: None)._replace(failure=full()), harness.now)
    assert harness.broker.purgatory.take_completed() == [waiting]
    (failed,) = results_of(harness, waiting)
    assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert failed.error_message is not None and "no room" in failed.error_message
    assert compact(harness, ("table", 0))[0].removed_records > 0, "it is tried at once when somebody asks"


def full() -> DiskFailed:
    return DiskFailed(errno.ENOSPC, "no room", "somewhere")


def steps(harness: Harness) -> list[Clean]:
    """Run one round and return the steps of passes for the caller to execute."""
    harness.now = later(harness)
    harness.run_housekeeping_in_slices()
    found = []
    for effect in harness.broker.take_effects():
        if isinstance(effect, Clean):
            found.append(effect)
        else:
            harness._carry_out(effect)
    return found


def begin_pass(harness: Harness) -> Clean:
    """Return the first step of the next pass."""
    for _ in range(20):
        for step in steps(harness):
            return step
    raise AssertionError("no pass has begun")


def test_response_names_the_minimum_lag_that_held_back_compaction(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    make(harness, "table", min_compaction_lag_ms="100000")
    write(harness, "table")
    (kept,) = compact(harness, ("table", 0))
    assert kept.error_code == ErrorCode.NONE
    assert (kept.compacted_to, kept.removed_records, kept.held_back_by) == (0, 0, "min.compaction.lag.ms")
    assert kept.bytes_before == kept.bytes_after > 0
    rounds(harness, 100)
    write(harness, "table")
    (won,) = compact(harness, ("table", 0))
    assert (won.compacted_to, won.held_back_by) == (KEYS * TIMES, "min.compaction.lag.ms")
    assert won.removed_records == KEYS * (TIMES - 1)


def test_response_names_the_open_transaction_that_held_back_compaction(harness: Harness) -> None:
    partition = log_of(harness)
    write(harness, "table", 1, times=3)
    of = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    raw = encode_batch([(b"k", b"v", (), harness.now.wall)], is_transactional=True, **of)  # type: ignore[arg-type]
    partition.log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), harness.now.wall)
    write(harness, "table", times=1)
    (won,) = compact(harness, ("table", 0))
    assert (won.compacted_to, won.held_back_by) == (KEYS * TIMES, "an open transaction")
    assert won.removed_records == KEYS * (TIMES - 1)


def test_request_times_out_while_the_compaction_continues(harness: Harness) -> None:
    waiting = send_request(harness, ("table", 0), timeout_ms=500)
    harness.pass_time(600)
    assert harness.broker.purgatory.take_completed() == [waiting]
    (late,) = results_of(harness, waiting)
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert late.error_message == "table-0 is not compacted yet; the broker continues to compact it in the background"
    rounds(harness, 6)
    assert log_of(harness).log.compaction.cleaned_to == KEYS * TIMES


@pytest.mark.parametrize("timeout_ms", [0, -1, -(1 << 31)])
def test_request_with_no_timeout_completes_immediately(harness: Harness, timeout_ms: int) -> None:
    waiting = send_request(harness, ("table", 0), timeout_ms=timeout_ms)
    harness.pass_time(5)
    assert harness.broker.purgatory.take_completed() == [waiting]


def test_next_request_of_the_connection_does_not_wait(harness: Harness) -> None:
    talk = harness.talk()
    talk.receive_data(frame_of(request(("table", 0)), 0, 1, "c"))
    harness.resume(talk)
    topic = CreatableTopic(name="next", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    talk.receive_data(frame_of(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, 2, "c"))
    harness.resume(talk)
    harness.settle()
    assert "next" in harness.broker.view.topics
    assert not talk.data_to_send(), "answers are in order"


def test_closed_connections_leave_no_parked_requests(harness: Harness) -> None:
    for _ in range(3):
        send_request(harness, ("table", 0), ("table", 1)).owner.leave()  # type: ignore[attr-defined]
    assert len(harness.broker.purgatory) == 0
    assert not harness.broker.purgatory._by_key
    rounds(harness, 6)
    assert log_of(harness).log.compaction.cleaned_to == KEYS * TIMES
    assert len(harness.broker.cleaner._requested) == 0


def test_stop_completes_parked_requests(harness: Harness) -> None:
    waiting = send_request(harness, ("table", 0))
    harness.broker.purgatory.complete_all()
    assert harness.broker.purgatory.take_completed() == [waiting]
    assert results_of(harness, waiting)[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_thousands_of_requests_share_the_passes(harness: Harness) -> None:
    first = [send_request(harness, ("table", 0)) for _ in range(1_000)]
    step = begin_pass(harness)
    write(harness, "table")
    later = [send_request(harness, ("table", 0)) for _ in range(1_000)]
    requests = harness.broker.cleaner._requested
    assert (len(requests), len(requests._next)) == (1, 1)
    harness.broker.on_event(step.run(lambda _: None), harness.now)
    completed: list[ParkedRequest[object]] = []
    for _ in range(10):
        rounds(harness)
        completed += harness.broker.purgatory.take_completed()
    assert completed == first + later
    assert results_of(harness, first[0])[0].compacted_to == KEYS * TIMES
    assert results_of(harness, later[0])[0].compacted_to == KEYS * TIMES * 2
    assert harness.broker.cleaner.stats.passes == 2
    assert len(requests) == 0


def test_records_written_during_compaction_do_not_extend_it(harness: Harness) -> None:
    """Otherwise a constant producer would prevent its end."""
    waiting = send_request(harness, ("table", 0))
    for _ in range(10):
        rounds(harness)
        write(harness, "table", times=1)
        log_of(harness).log.roll(harness.now.wall)
        flush_now(log_of(harness).log, harness.now.wall)
        if waiting in harness.broker.purgatory.take_completed():
            break
    (won,) = results_of(harness, waiting)
    assert won.compacted_to == KEYS * TIMES == log_of(harness).log.compaction.cleaned_to
    assert won.bytes_after < won.bytes_before / (TIMES - 1)
    assert log_of(harness).log.end_offset > won.compacted_to


def test_pass_started_before_the_request_does_not_complete_it(harness: Harness) -> None:
    make(harness, "dirty", min_cleanable_dirty_ratio="0")
    write(harness, "dirty")
    log = log_of(harness, "dirty").log
    log.roll(harness.now.wall)
    step = begin_pass(harness)
    waiting = send_request(harness, ("dirty", 0))
    assert steps(harness) == []
    harness.broker.on_event(step.run(lambda _: None), harness.now)
    harness.settle()
    assert step.cleaning.dropped_records == KEYS * (TIMES - 1)
    rounds(harness, 3)
    assert harness.broker.purgatory.take_completed() == [waiting]
    (won,) = results_of(harness, waiting)
    assert (won.bytes_before, won.bytes_after, won.removed_records) == (log.size, log.size, 0)
    assert won.compacted_to == KEYS * TIMES


def test_compaction_disabled_while_waiting_fails_the_request(harness: Harness) -> None:
    waiting = send_request(harness, ("table", 0))
    log = log_of(harness).log
    log.config = replace(log.config, cleanup_compact=False)
    rounds(harness)
    assert harness.broker.purgatory.take_completed() == [waiting]
    assert results_of(harness, waiting)[0].error_code == ErrorCode.INVALID_CONFIG
    assert log.compaction.cleaned_to == 0


def test_small_offset_map_takes_several_passes(tmp_path: Path) -> None:
    keys = 60_000
    harness = Harness(tmp_path, log_cleaner_dedupe_buffer_size=str(1 << 20))
    make(harness, "table", max_message_bytes=str(1 << 24))
    write(harness, "table", keys=keys, times=3)
    (won,) = compact(harness, ("table", 0))
    assert harness.broker.cleaner.stats.passes > 1
    assert (won.removed_records, won.compacted_to) == (2 * keys, 3 * keys)
    assert won.bytes_after == log_of(harness).log.size


def test_topic_deletion_completes_the_request(harness: Harness) -> None:
    waiting = send_request(harness, ("table", 0))
    harness.request(DeleteTopicsRequest(topic_names=["table"], timeout_ms=1_000), 1, DeleteTopicsResponse)
    make(harness, "table", 2)
    rounds(harness)
    assert harness.broker.purgatory.take_completed() == [waiting]
    (deleted,) = results_of(harness, waiting)
    assert (deleted.error_code, deleted.error_message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "partition table-0 was deleted",
    )


def test_topic_deletion_amid_a_pass_completes_the_request(harness: Harness) -> None:
    waiting = send_request(harness, ("table", 0))
    step = begin_pass(harness)
    harness.request(DeleteTopicsRequest(topic_names=["table"], timeout_ms=1_000), 1, DeleteTopicsResponse)
    harness.broker.on_event(step.run(lambda _: None), harness.now)
    rounds(harness)
    assert harness.broker.purgatory.take_completed() == [waiting]
    assert results_of(harness, waiting)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offline_log_completes_the_request(harness: Harness) -> None:
    waiting = send_request(harness, ("table", 0))
    log_of(harness).take_offline()
    rounds(harness)
    assert harness.broker.purgatory.take_completed() == [waiting]
    (offline,) = results_of(harness, waiting)
    assert (offline.error_code, offline.error_message) == (
        ErrorCode.KAFKA_STORAGE_ERROR,
        "the log of table-0 is offline",
    )


def test_requested_compaction_precedes_automatic_ones(harness: Harness) -> None:
    for number in range(3):
        make(harness, f"dirty-{number}", min_cleanable_dirty_ratio="0")
        write(harness, f"dirty-{number}")
        log_of(harness, f"dirty-{number}").log.roll(harness.now.wall)
    first = begin_pass(harness)
    send_request(harness, ("table", 0))
    for _ in range(4):  # Until the log is synced.
        assert steps(harness) == []
    following = first
    while following.partition is first.partition:
        harness.broker.on_event(following.run(lambda _: None), harness.now)
        (following,) = harness.broker.take_effects()  # type: ignore[assignment]  # One thread, one pass.
    assert following.partition is log_of(harness)


def test_each_slice_rolls_a_limited_number_of_logs(harness: Harness) -> None:
    """A roll creates four files: a request with a hundred partitions would block others for a tenth of a second."""
    many = 60
    make(harness, "tables", many)
    for index in range(many):
        write(harness, "tables", index, times=1)
    topics = [CompactPartitionsTopic(name="tables", partitions=[*range(many)])]
    talk = harness.talk()
    talk.receive_data(frame_of(CompactPartitionsRequest(topics=topics, timeout_ms=0), 0, 1, "c"))
    rolled, has_more = [0], True
    while has_more:
        has_more = talk.step(harness.now, 0)
        logs = (harness.broker.replica(TopicName("tables"), index).log for index in range(many))
        rolled.append(sum(len(log.segments) > 1 for log in logs))
    assert rolled[-1] == many
    assert max(after - before for before, after in pairwise(rolled)) <= ROLLED_PER_SLICE_MAX
