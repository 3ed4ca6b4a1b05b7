"""Requested compactions: each step follows the end of the one before, without waiting for a housekeeping round."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.units import LeaderEpoch, TopicName, TopicPartition
from odradek.core.broker.effects import Changed
from odradek.core.cleaner.cleaning_steps import Clean
from odradek.core.cleaner.compaction_queue import ADVANCED_PER_SLICE
from odradek.core.cleaner.compaction_request import Compaction, CompactionResult
from odradek.core.partition.partition import Partition
from odradek.log.log.durability import flush_now, synced_to
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from support.in_memory import Harness

KEYS = 10
GROUPS = 3
SEGMENTS = 16 * GROUPS  # log.cleaner.SEGMENTS_PER_GROUP_MAX


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def table(harness: Harness, partitions: int = 1, ratio: str = "1") -> list[Partition]:
    texts = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": ratio}
    topic = CreatableTopic(
        name="table",
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in texts.items()],
    )
    harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5, CreateTopicsResponse)
    return [harness.broker.partitions[TopicPartition(TopicName("table"), index)] for index in range(partitions)]


def write(harness: Harness, partition: Partition, times: int = 5, *, rolls: bool = False) -> None:
    """Write each key the given number of times to a log that is fully synced and visible before."""
    now, log = harness.now.wall, partition.log
    for _ in range(times):
        raw = encode_batch([(b"k%d" % key, b"v" * 50, (), now) for key in range(KEYS)])
        log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), now)
        if rolls:
            log.roll(now)
    flush_now(log, now)
    partition.positions.advance_durable_end(log.end_offset)
    partition.positions.advance_high_watermark(log.end_offset)


def request_compactions(harness: Harness, *partitions: Partition) -> list[Compaction]:
    compactions = [harness.broker.cleaner.request_compaction(partition) for partition in partitions]
    harness.broker.cleaner.advance_compactions(harness.now)
    return compactions


def won(compaction: Compaction) -> CompactionResult:
    assert isinstance(compaction.outcome, CompactionResult), compaction.answer
    return compaction.outcome


def test_small_log_is_compacted_without_a_housekeeping_round(harness: Harness) -> None:
    (partition,) = table(harness)
    write(harness, partition)
    (compaction,) = request_compactions(harness, partition)
    assert compaction.to == 5 * KEYS, "it begins at once"
    assert synced_to(partition.log) < compaction.to, "and is to be synced first"
    harness.settle()
    assert won(compaction).removed_records == 4 * KEYS
    assert partition.log.compaction.cleaned_to == 5 * KEYS


def test_all_segment_groups_are_compacted_without_a_housekeeping_round(harness: Harness) -> None:
    (partition,) = table(harness)
    write(harness, partition, SEGMENTS, rolls=True)
    (compaction,) = request_compactions(harness, partition)
    harness.settle()
    assert won(compaction).removed_records == (SEGMENTS - 1) * KEYS
    assert not partition.log.compaction.is_swapping


def test_request_for_newer_records_is_compacted_immediately_after(harness: Harness) -> None:
    (partition,) = table(harness)
    write(harness, partition)
    (first,) = request_compactions(harness, partition)
    (same,) = request_compactions(harness, partition)
    assert same is first, "nothing was written since"
    write(harness, partition, 1)
    (second,) = request_compactions(harness, partition)
    assert second is not first
    harness.settle()
    assert (won(first).compacted_to, won(second).compacted_to) == (5 * KEYS, 6 * KEYS)


def test_requested_compaction_follows_the_running_pass(harness: Harness) -> None:
    (partition,) = table(harness, ratio="0")
    write(harness, partition, 2, rolls=True)
    harness.run_housekeeping_in_slices()
    effects = harness.broker.take_effects()
    (step,) = [one for one in effects if isinstance(one, Clean)]
    write(harness, partition, 2)
    (compaction,) = request_compactions(harness, partition)
    harness.settle()
    assert compaction.outcome is None, "one pass at a time"
    harness.broker.on_event(step.run(lambda _: None), harness.now)
    harness.settle()
    assert won(compaction).compacted_to == 4 * KEYS


def test_each_slice_starts_a_limited_number_of_compactions(harness: Harness) -> None:
    """Rolling a log takes some hundred microseconds, and an event must not take more than some milliseconds."""
    partitions = table(harness, 3 * ADVANCED_PER_SLICE)
    for partition in partitions:
        write(harness, partition)
    compactions = request_compactions(harness, *partitions)
    assert sum(one.to is not None for one in compactions) == ADVANCED_PER_SLICE
    harness.broker.cleaner.advance_compactions(harness.now)
    assert sum(one.to is not None for one in compactions) == 2 * ADVANCED_PER_SLICE
    harness.settle()
    assert all(won(one).removed_records == 4 * KEYS for one in compactions), "one event after the other goes on"


def test_compaction_of_a_deleted_partition_ends(harness: Harness) -> None:
    (partition,) = table(harness)
    write(harness, partition)
    (compaction,) = request_compactions(harness, partition)
    harness.learn(Changed(0, {TopicName("table"): None}))
    harness.settle()
    harness.run_housekeeping()
    assert not isinstance(compaction.answer, CompactionResult)
    assert not harness.broker.cleaner.awaits_rename
    assert not harness.broker.cleaner._requested._unsynced
