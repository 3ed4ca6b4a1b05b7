"""The log cleaner: selection of logs to compact, and treatment of damaged logs."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from odradek.app.doctor.findings import State
from odradek.app.doctor.set_aside_logs import known_damage, uncleanable
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import LeaderEpoch, Offset, TimestampMs, TopicName, TopicPartition
from odradek.core.broker.effects import Changed
from odradek.core.cleaner.cleaning_steps import Clean
from odradek.core.kernel.moment import Moment
from odradek.core.partition.partition import Partition
from odradek.log.compaction.cleaner import Uncleanable
from odradek.log.files.disk import DiskFailed, RealDisk
from odradek.log.log.durability import flush_now
from odradek.log.log.retention import advance_start, delete_below_start
from odradek.log.log.truncation import truncate_fully
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch, iter_batches
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from support.in_memory import Harness

COMPACT = {"cleanup.policy": "compact"}
SECOND = 1_000


def create(harness: Harness, name: str, **configs: str) -> Partition:
    texts = COMPACT | {key.replace("_", "."): value for key, value in configs.items()}
    topic = CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in texts.items()],
    )
    harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5, CreateTopicsResponse)
    return harness.broker.partitions[TopicPartition(TopicName(name), 0)]


def write(harness: Harness, partition: Partition, keys: int, times: int, *, rolls: bool = True) -> None:
    """Write each key the given number of times and roll the log; everything is synced and visible."""
    now = harness.now.wall
    for _ in range(times):
        raw = encode_batch([(b"k%d" % key, b"v" * 50, (), now) for key in range(keys)])
        partition.log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), now)
    if rolls:
        partition.log.roll(now)
    flush_now(partition.log, now)
    partition.positions.advance_high_watermark(partition.log.end_offset)
    partition.positions.advance_durable_end(partition.log.end_offset)


def passed(harness: Harness, seconds: int) -> None:
    later = seconds * SECOND
    harness.now = Moment(TimestampMs(harness.now.wall + later), harness.now.steady + later)


def run_housekeeping(harness: Harness, rounds: int = 5) -> None:
    for _ in range(rounds):
        passed(harness, 1)
        harness.run_housekeeping()


def begin_pass(harness: Harness) -> Clean:
    """Run one round and return the first step of the only pass that has started."""
    passed(harness, 60)
    harness.run_housekeeping_in_slices()
    (step,) = [one for one in harness.broker.take_effects() if isinstance(one, Clean)]
    return step


def steps(harness: Harness) -> list[str]:
    """Run one round and return the topics whose passes have started; the passes are not executed."""
    passed(harness, 60)
    harness.run_housekeeping_in_slices()
    found = [one.partition for one in harness.broker.take_effects() if isinstance(one, Clean)]
    return [str(partition.topic_partition.topic) for partition in found]


def test_a_log_is_compacted_by_its_dirty_ratio(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness(tmp_path)
    partition = create(harness, "table", min_cleanable_dirty_ratio="0.6")
    write(harness, partition, keys=10, times=10)
    with caplog.at_level(logging.INFO, "odradek.core.cleaner.log_cleaner"):
        run_housekeeping(harness)
    assert partition.log.compaction.cleaned_to == 100
    size = partition.log.size
    assert caplog.messages == [
        f"compacted table-0 up to offset 100: size reduced from {harness.broker.cleaner.stats.read_bytes} to "
        f"{size} bytes, 90 records removed"
    ]
    write(harness, partition, keys=10, times=1)
    run_housekeeping(harness, 60)
    assert partition.log.compaction.cleaned_to == 100, "half of it is dirty, which is not enough"
    write(harness, partition, keys=10, times=1)
    run_housekeeping(harness, 60)
    assert partition.log.compaction.cleaned_to == 120
    assert partition.log.start_offset == 0
    harness.restart()
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\ntable 0 120\n"
    again = harness.broker.partitions[partition.topic_partition]
    assert again.log.compaction.cleaned_to == 120
    assert again.log.size == partition.log.size


def test_single_thread_cleans_the_dirtiest_log_first(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    for name, times in (("some", 2), ("most", 9), ("more", 5)):
        partition = create(harness, name, min_cleanable_dirty_ratio="0.1")
        write(harness, partition, keys=10, times=3)
        run_housekeeping(harness)
        write(harness, partition, keys=10, times=times)
    assert steps(harness) == ["most"]
    assert steps(harness) == []


def test_cleaner_runs_one_pass_per_thread(tmp_path: Path) -> None:
    harness = Harness(tmp_path, log_cleaner_threads="2")
    for name in ("a", "b", "c"):
        write(harness, create(harness, name), keys=10, times=3)
    assert len(steps(harness)) == 2


def test_disabled_cleaner_compacts_nothing(tmp_path: Path) -> None:
    harness = Harness(tmp_path, log_cleaner_enable="false")
    write(harness, create(harness, "table"), keys=10, times=3)
    assert steps(harness) == []


def test_records_younger_than_the_minimum_lag_are_kept(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    partition = create(harness, "table", min_compaction_lag_ms=str(100 * SECOND))
    write(harness, partition, keys=10, times=3)
    run_housekeeping(harness, 60)
    assert partition.log.compaction.cleaned_to == 0
    run_housekeeping(harness, 60)
    assert partition.log.compaction.cleaned_to == 30


def test_records_older_than_the_maximum_lag_are_compacted_in_a_quiet_log(tmp_path: Path) -> None:
    """The active segment is rolled for it; otherwise a quiet topic is never compacted (KAFKA-20664)."""
    harness = Harness(tmp_path)
    partition = create(harness, "table", min_cleanable_dirty_ratio="1", max_compaction_lag_ms=str(100 * SECOND))
    write(harness, partition, keys=10, times=3, rolls=False)
    run_housekeeping(harness, 60)
    assert (partition.log.compaction.cleaned_to, len(partition.log.segments)) == (0, 1)
    run_housekeeping(harness, 120)
    assert partition.log.compaction.cleaned_to == 30
    assert len(partition.log.segments) == 2


def test_open_transaction_delays_compaction(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    partition = create(harness, "table")
    write(harness, partition, keys=10, times=3)
    raw = encode_batch(
        [(b"k1", b"v", (), harness.now.wall)], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    partition.log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), harness.now.wall)
    write(harness, partition, keys=10, times=3)
    run_housekeeping(harness, 60)
    assert partition.log.compaction.cleaned_to == 30


def damage(partition: Partition) -> None:
    path = Path(partition.log.segments[0].path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_damaged_log_is_quarantined_and_others_are_cleaned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness(tmp_path)
    bad, good = create(harness, "bad"), create(harness, "good")
    write(harness, bad, keys=10, times=5)
    damage(bad)
    write(harness, good, keys=10, times=3)
    run_housekeeping(harness, 60)
    assert good.log.compaction.cleaned_to == 30
    assert bad.log.compaction.cleaned_to == 0
    assert bad.is_online
    (reason,) = harness.broker.cleaner.set_aside.reasons.values()
    assert "checksum" in reason
    logged = [record for record in caplog.records if record.name == "odradek.core.cleaner.log_cleaner"]
    assert [record.getMessage() for record in logged] == [
        f"bad-0 is marked as uncleanable and no longer compacted; other logs are not affected: {reason}"
    ]
    assert not list(tmp_path.rglob("*.cleaned"))
    (found,) = uncleanable(str(tmp_path))
    assert found.message == f"1 log in {tmp_path} cannot be compacted: bad-0"
    assert found.advice is not None and reason in found.advice
    harness.broker.cleaner.request_compaction(bad)
    run_housekeeping(harness)
    assert len(harness.broker.cleaner.set_aside.reasons) == 1, "who asks has it tried again"
    harness.restart()
    assert not list(uncleanable(str(tmp_path))), "so does a start"


def test_damage_found_by_the_cleaner_is_not_served(tmp_path: Path) -> None:
    """Apache Kafka's cleaner also stops at the damage, but its broker still serves the batch."""
    harness = Harness(tmp_path)
    bad = create(harness, "bad")
    write(harness, bad, keys=10, times=5)
    damage(bad)
    assert read(bad, 20), "nobody has looked into it yet"
    run_housekeeping(harness, 60)
    for offset, is_served in ((10, True), (20, False), (30, True)):
        if is_served:
            assert read(bad, offset) == [offset]
        else:
            with pytest.raises(Refused) as refused:
                read(bad, offset)
            assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    (found,) = known_damage(str(tmp_path))
    assert found.state is State.WRONG
    where = f"bad-0 at byte {bad.log.segments[0].size // 5 * 2} of {bad.log.segments[0].name} since "
    assert found.message.startswith(f"1 damaged place in {tmp_path}: {where}")
    assert "checksum" in found.message
    assert found.message.endswith("readable again from offset 30)")
    advance_start(bad.log, bad.log.segments[1].base_offset)
    delete_below_start(bad.log, harness.now.wall)
    run_housekeeping(harness)
    assert not list(known_damage(str(tmp_path)))


def read(partition: Partition, offset: int) -> list[int]:
    """Return the offset of the batch that is served."""
    records = partition.read(Offset(offset), 1, at_least_one=True).records
    return [one.base_offset for one in iter_batches(records.read())]


def test_batch_with_too_large_content_quarantines_its_log(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    partition = create(harness, "table", max_decompressed_message_bytes="1000")
    raw = encode_batch([(b"k", bytes(5_000), (), harness.now.wall)], Codec.ZSTD)
    partition.log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), harness.now.wall)
    write(harness, partition, keys=10, times=3)
    run_housekeeping(harness, 30)
    assert len(harness.broker.cleaner.set_aside.reasons) == 1


class Full(RealDisk):
    is_full = False

    def create(self, path: str):  # type: ignore[no-untyped-def]  # As it is there.
        if self.is_full and path.endswith(".cleaned"):
            raise DiskFailed(errno.ENOSPC, "no room", path)
        return super().create(path)


def test_a_full_disk_is_tried_again_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness(tmp_path)
    partition = create(harness, "table")
    write(harness, partition, keys=10, times=3)
    partition.log.disk = disk = Full()
    disk.is_full = True
    run_housekeeping(harness, 30)
    assert partition.is_online
    assert not harness.broker.cleaner.set_aside.reasons
    assert len([one for one in caplog.messages if "failed to compact" in one and "(will retry)" in one]) == 1
    disk.is_full = False
    run_housekeeping(harness, 90)
    assert partition.log.compaction.cleaned_to == 30


def test_a_log_is_compacted_up_to_its_end_on_demand(tmp_path: Path) -> None:
    harness = Harness(tmp_path, log_cleaner_enable="false")
    partition = create(harness, "table", min_cleanable_dirty_ratio="1")
    write(harness, partition, keys=10, times=3, rolls=False)
    harness.broker.cleaner.request_compaction(partition)
    run_housekeeping(harness)
    assert partition.log.compaction.cleaned_to == 30
    assert partition.log.segments[-1].base_offset == 30


def test_topic_deleted_during_compaction_leaves_no_files(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    partition = create(harness, "table")
    write(harness, partition, keys=10, times=3)
    step = begin_pass(harness)
    harness.broker.on_event(step.run(lambda _: None), harness.now)
    (step,) = [one for one in harness.broker.take_effects() if isinstance(one, Clean)]
    harness.learn(Changed(0, {TopicName("table"): None}))
    assert step.cleaning.is_withdrawn
    harness.broker.on_event(step.run(lambda _: None), harness.now)
    assert not harness.broker.cleaner.is_running
    assert not list(tmp_path.rglob("*.swap"))
    run_housekeeping(harness, 70)


def test_recreated_topic_waits_for_the_last_step_of_the_deleted_one(tmp_path: Path) -> None:
    """That step still writes files of these names; and it ends once, whatever the new topic does."""
    harness = Harness(tmp_path)
    write(harness, create(harness, "table"), keys=10, times=3)
    step = begin_pass(harness)
    harness.learn(Changed(0, {TopicName("table"): None}))
    again = create(harness, "table")
    write(harness, again, keys=10, times=3)
    harness.broker.cleaner.request_compaction(again)
    harness.broker.cleaner.advance_compactions(harness.now)
    passed(harness, 1)
    harness.run_housekeeping_in_slices()
    assert not [one for one in harness.broker.take_effects() if isinstance(one, Clean)]
    harness.broker.on_event(step.run(lambda _: None), harness.now)
    run_housekeeping(harness)
    assert again.log.compaction.cleaned_to == 30


def test_log_truncated_during_a_step_is_not_damaged(tmp_path: Path) -> None:
    """The step has failed at bytes that are not in the log any more: others may be in their place."""
    harness = Harness(tmp_path)
    partition = create(harness, "table")
    write(harness, partition, keys=10, times=5)
    step = begin_pass(harness)
    damage(partition)
    failed = step.run(lambda _: None)
    assert isinstance(failed.failure, Uncleanable)
    truncate_fully(partition.log, Offset(0), harness.now.wall)
    partition.positions.started_at(Offset(0))
    harness.broker.on_event(failed, harness.now)
    assert partition not in harness.broker.cleaner.set_aside
    assert not partition.log.damaged_places


def test_stop_withdraws_the_running_pass(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    partition = create(harness, "table")
    write(harness, partition, keys=10, times=3)
    step = begin_pass(harness)
    harness.broker.cleaner.stop()
    assert step.cleaning.is_withdrawn
    harness.broker.on_event(step.run(lambda _: None), harness.now)
    assert steps(harness) == []
    harness.restart()
    run_housekeeping(harness)
    assert harness.broker.partitions[partition.topic_partition].log.compaction.cleaned_to == 30


def test_next_pass_starts_immediately_after_the_previous(tmp_path: Path) -> None:
    """With one start a second, fifty busy state partitions would wait for each other."""
    harness = Harness(tmp_path)
    partitions = [create(harness, f"table-{number}") for number in range(10)]
    for partition in partitions:
        write(harness, partition, keys=10, times=3)
    run_housekeeping(harness, 2)  # The second round renames the files.
    assert [partition.log.compaction.cleaned_to for partition in partitions] == [30] * 10
