"""Every operation on several files, with each of its disk calls failing once, in turn.

Afterwards an existing log is complete: its files, and its records. When the disk works again, the next rounds finish
the rest and leave nothing over. A restart at any of these moments finds the same records.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from itertools import count
from random import Random
from typing import NamedTuple

import pytest
from simdisk import SimDisk

from odradek.base.units import BrokerId, LeaderEpoch, Offset, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import DiskFailed
from odradek.log.files.log_config import LogConfig
from odradek.log.files.log_file_names import parse_segment_file
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_old_segments
from odradek.log.log.truncation import truncate_fully, truncate_to
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import decode
from support.logs import T0

pytestmark = pytest.mark.slow

CONFIG = LogConfig(segment_bytes=450, index_interval_bytes=100, retention_bytes=700, file_delete_delay_ms=1000)
ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(1, 17)))
T, U, NEW = (TopicPartition(TopicName(name), 0) for name in ("t", "u", "new"))
LATER = TimestampMs(T0 + 10_000)
RECORDS = 24
ERRORS = (errno.ENOSPC, errno.EIO, errno.EMFILE)
Records = dict[int, bytes]


class World(NamedTuple):
    disk: SimDisk
    directory: LogDirectory

    @property
    def log(self) -> Log:
        return self.directory.logs[T]


def open_directory(disk: SimDisk) -> LogDirectory:
    return open_log_directory(
        disk, "/data", T0, broker_id=BrokerId(1), cluster_id="cluster", config_of=lambda _: CONFIG
    )


def append(log: Log, value: bytes, epoch: int = 1) -> None:
    """Append a record of one of three producers, or without a producer."""
    number = log.end_offset
    producer = number % 4 - 1
    raw = encode_batch(
        [(None, value, (), T0 + number)],
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=number // 4 if producer >= 0 else -1,
    )
    log.append(Batch.checked(memoryview(raw)), LeaderEpoch(epoch), T0)


def create_world() -> World:
    """Return two fully durable logs of several segments each."""
    disk = SimDisk()
    directory = open_directory(disk)
    for name in (T, U):
        log = directory.create(name, ID, CONFIG, T0)
        for number in range(RECORDS):
            append(log, b"%s %d" % (name.topic.encode(), number), epoch=number // 10)
        flush_now(log)
    assert len(log.segments) > 3
    directory.checkpoints.write_now()
    for path in ("", "/data"):
        disk.sync_directory(path)
    return World(disk, directory)


def contents(log: Log) -> Records:
    found: Records = {}
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, 300, log.end_offset).read()
        assert data, f"nothing at {offset} of {log.end_offset}"
        for batch in iter_batches(data):
            found |= {record.offset: record.value or b"" for record in decode(batch) if record.offset >= offset}
            offset = batch.next_offset
    assert list(found) == list(range(log.start_offset, log.end_offset))
    return found


def everything(directory: LogDirectory) -> dict[TopicPartition, Records]:
    return {name: contents(log) for name, log in directory.logs.items()}


# ---------------------------------------------------------------- what is done


def roll(world: World) -> None:
    world.log.roll(T0)


def append_and_roll(world: World) -> None:
    append(world.log, b"x" * 300, epoch=7)


def retain(world: World) -> None:
    delete_old_segments(world.log, T0, world.log.end_offset)
    reap(world, T0)


def retain_everything(world: World) -> None:
    world.log.config = LogConfig(segment_bytes=450, retention_ms=0, file_delete_delay_ms=1000)
    delete_old_segments(world.log, LATER, world.log.end_offset)
    reap(world, T0)


def move_the_start(world: World) -> None:
    advance_start(world.log, Offset(RECORDS // 2))
    delete_old_segments(world.log, T0, world.log.end_offset)
    reap(world, T0)


def rewrite_and_trim(world: World) -> None:
    """Rewrite and trim the log, as a coordinator does."""
    world.log.roll(T0)
    start = world.log.end_offset
    append(world.log, b"all there is")
    advance_start(world.log, start)
    delete_old_segments(world.log, T0, world.log.end_offset)
    reap(world, T0)


def truncate(world: World) -> None:
    truncate_to(world.log, Offset(RECORDS // 2), T0)


def truncate_in_the_last_segment(world: World) -> None:
    truncate_to(world.log, Offset(RECORDS - 1), T0)


def start_over(world: World) -> None:
    truncate_fully(world.log, Offset(RECORDS + 5), T0)


def reset_to_start(world: World) -> None:
    """Reset the log to its start, with files that retention still has to rename."""
    delete_old_segments(world.log, T0, world.log.end_offset)
    truncate_fully(world.log, Offset(0), T0)


def make(world: World) -> None:
    world.directory.create(NEW, OTHER_ID, CONFIG, T0)


def delete(world: World) -> None:
    world.directory.delete(T, T0)


def delete_all(world: World) -> None:
    for name in (T, U):
        world.directory.delete(name, T0)
    reap(world, LATER)


def delete_and_make_again(world: World) -> None:
    world.directory.delete(T, T0)
    world.directory.create(T, OTHER_ID, CONFIG, T0)


def delete_while_retaining(world: World) -> None:
    delete_old_segments(world.log, T0, world.log.end_offset)
    world.directory.delete(T, T0)
    reap(world, T0)


def set_aside(world: World) -> None:
    world.directory.set_aside(T, T0)


def checkpoint(world: World) -> None:
    append(world.log, b"x")
    flush_now(world.log)
    work = world.directory.begin_checkpoint({T: Offset(3)})
    assert work is not None
    work.run()


OPERATIONS: list[Callable[[World], None]] = [
    roll,
    append_and_roll,
    retain,
    retain_everything,
    move_the_start,
    rewrite_and_trim,
    truncate,
    truncate_in_the_last_segment,
    start_over,
    reset_to_start,
    make,
    delete,
    delete_all,
    delete_and_make_again,
    delete_while_retaining,
    set_aside,
    checkpoint,
]
WITHOUT_OFFSET = {"leader-epoch-checkpoint", "partition.metadata"}
FORGETS_ALL = (start_over, reset_to_start)


def reap(world: World, now: TimestampMs) -> None:
    work = world.directory.begin_reap(now)
    if work is not None:
        work.run()


def calls_of(operation: Callable[[World], None]) -> int:
    world = create_world()
    before = world.disk.calls
    operation(world)
    return world.disk.calls - before


@pytest.mark.share(4)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_operation_survives_one_failure_of_each_call(operation: Callable[[World], None]) -> None:
    calls = calls_of(operation)
    for number in range(calls):
        error = ERRORS[number % len(ERRORS)]
        try:
            fail_one(operation, number, error)
        except BaseException as failure:
            raise AssertionError(f"call {number} of {calls} with {errno.errorcode[error]}") from failure


def fail_one(operation: Callable[[World], None], number: int, error: int) -> None:
    world = create_world()
    before = everything(world.directory)
    world.disk.fail_call(number, error)
    try:
        operation(world)
    except DiskFailed as failed:
        assert failed.errno == error
    world.disk.fail_call(-1)
    after = everything(world.directory)
    check_restarts(world, operation, before, after)
    world = restart_unusable_log(world)
    later_rounds(world)
    assert everything(world.directory) == after
    retry_creation(world, operation, deletes_topic=bool(number % 2))
    continue_writing(world, everything(world.directory))
    check_leftovers(world)
    check_same_after_restart(world)


def check_restarts(
    world: World,
    operation: Callable[[World], None],
    before: dict[TopicPartition, Records],
    after: dict[TopicPartition, Records],
) -> None:
    """Stop the process or the machine midway: the log's records are present, and no others."""
    for seed in range(3):
        copy = deepcopy(world.disk)
        again = open_directory(copy.crash(Random(seed)) if seed else copy.kill())
        assert not again.offline
        for name, log in again.logs.items():
            known = before.get(name, {})
            found = contents(log)
            if log.topic_id == OTHER_ID:
                assert not found
            elif operation in FORGETS_ALL and name == T:
                assert not found or found.items() <= known.items()
            else:
                assert found.items() <= {**known, **after.get(name, {})}.items()
                kept = {offset: value for offset, value in after.get(name, {}).items() if offset < RECORDS}
                assert kept.items() <= found.items()


def restart_unusable_log(world: World) -> World:
    """Restart a log whose truncation sync failed: it is unusable until a start has checked it."""
    log = world.directory.logs.get(T)
    if log is None or not log.segments[-1].sync_failed:
        return world
    with pytest.raises(DiskFailed, match="an earlier flush failed"):
        log.settle()
    disk = world.disk.kill()
    return World(disk, open_directory(disk))


def later_rounds(world: World) -> None:
    """Run later rounds of housekeeping."""
    for now in range(LATER, LATER + 60_000, 5_000):
        for log in world.directory.logs.values():
            log.settle()
        reap(world, TimestampMs(now))


def retry_creation(world: World, operation: Callable[[World], None], *, deletes_topic: bool) -> None:
    """Request a log again that could not be created, or delete its topic in between."""
    name = {make: NEW, delete_and_make_again: T}.get(operation)
    if name is None or name in world.directory.logs:
        return
    if deletes_topic and world.directory.has(name):
        world.directory.delete(name, T0)
        later_rounds(world)
    else:
        assert world.directory.create(name, OTHER_ID, CONFIG, T0).end_offset == 0


def continue_writing(world: World, after: dict[TopicPartition, Records]) -> None:
    for name, log in world.directory.logs.items():
        for number in range(6):
            append(log, b"y" * 100 + b"%d" % number, epoch=9)
        assert {**after[name], **contents(log)} == contents(log)
        flush_now(log)
    world.directory.checkpoints.write_now()  # This makes the names in the directory durable.


def check_leftovers(world: World) -> None:
    """Check that every file belongs to a current segment."""
    folders = {entry.name for entry in world.disk.entries("/data") if entry.size < 0}
    assert {name for name in folders if not name.endswith("-stray")} == {str(name) for name in world.directory.logs}
    for log in world.directory.logs.values():
        names = {entry.name for entry in world.disk.entries(log.directory)}
        bases = {segment.base_offset for segment in log.segments}
        # The next start removes a temporary file that could not be unlinked.
        for name in {name for name in names if not name.endswith(".snapshot.tmp")} - WITHOUT_OFFSET:
            parsed = parse_segment_file(name)
            assert parsed is not None and not parsed[2] and parsed[0] in bases, name
        assert {f"{base:020}.log" for base in bases} <= names


def check_same_after_restart(world: World) -> None:
    expected = everything(world.directory)
    starts = {name: (log.start_offset, log.end_offset) for name, log in world.directory.logs.items()}
    epochs = {name: log.epochs.entries for name, log in world.directory.logs.items()}
    producers = {name: sorted(log.producers, key=lambda one: one.id) for name, log in world.directory.logs.items()}
    for seed in range(2):
        copy = deepcopy(world.disk)
        again = open_directory(copy.crash(Random(seed)) if seed else copy.kill())
        assert everything(again) == expected
        assert {name: (log.start_offset, log.end_offset) for name, log in again.logs.items()} == starts
        if not seed:
            assert {name: log.epochs.entries for name, log in again.logs.items()} == epochs
            assert {name: ids(log) for name, log in again.logs.items()} == {
                name: [one.id for one in known] for name, known in producers.items()
            }


def ids(log: Log) -> list[int]:
    return sorted(one.id for one in log.producers)


@pytest.mark.share(4)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_operation_survives_a_disk_that_fails_for_a_while(operation: Callable[[World], None]) -> None:
    """From some call on everything fails, and nothing can be undone either."""
    for number in count(step=2):
        world = create_world()
        before = everything(world.directory)
        world.disk.fail_from(number)
        first = world.disk.calls
        with suppress(DiskFailed):
            operation(world)
        is_through = world.disk.calls - first <= number
        world.disk.fail_call(-1)
        after = everything(world.directory)
        check_restarts(world, operation, before, after)
        world = restart_unusable_log(world)
        later_rounds(world)
        retry_creation(world, operation, deletes_topic=bool(number % 2))
        continue_writing(world, everything(world.directory))
        check_leftovers(world)
        check_same_after_restart(world)
        if is_through:
            return
