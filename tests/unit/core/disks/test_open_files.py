"""Release of log files when descriptors run short; active users of a file are not affected."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.base.units import INT32_MAX, LeaderEpoch, TimestampMs, TopicPartition
from odradek.core.disks.open_files import COMPARED_MIN, OpenFiles
from odradek.log.log.durability import begin_flush, end_flush, flush_now, has_open_files, is_flushed, release_files
from odradek.log.log.flush import Flush
from odradek.log.log.streaming_append import begin_arrival
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from support.in_memory import Harness
from support.logs import T0, batch, put, stored

pytestmark = pytest.mark.slow

PARTITIONS = 10


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    one = Harness(tmp_path)
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
    one.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5, CreateTopicsResponse)
    return one


def name(index: int) -> TopicPartition:
    return next(one for one in Here if one.partition == index)


Here = [TopicPartition("t", index) for index in range(PARTITIONS)]  # type: ignore[arg-type]


def is_open(harness: Harness, index: int) -> bool:
    return has_open_files(harness.broker.partitions[name(index)].log, INT32_MAX)


def write(harness: Harness, index: int, at: int, *, flushed: bool = True) -> None:
    log = harness.broker.partitions[name(index)].log
    put(log, b"x", at=at)
    if flushed:
        flush_now(log, TimestampMs(at))


def test_least_recently_written_logs_release_their_files(harness: Harness) -> None:
    for age, index in enumerate([3, 7, 1, 9]):
        write(harness, index, T0 + age)
    files = OpenFiles(harness.broker.partitions)
    assert files.release(2, INT32_MAX) == (2, [])
    assert [index for index in range(PARTITIONS) if is_open(harness, index)] == [1, 9]
    # A log reopens its file on the next use.
    for age, index in enumerate([3, 7, 1, 9]):
        write(harness, index, T0 + 10 + age)
        assert stored(harness.broker.partitions[name(index)].log) == [(0, 0), (1, 1)]


def test_only_low_descriptors_are_released(harness: Harness) -> None:
    for index in range(4):
        write(harness, index, T0 + index)
    descriptors = [harness.broker.partitions[name(index)].log.segments[-1].file.fileno() for index in range(4)]
    below = sorted(descriptors)[2]
    assert OpenFiles(harness.broker.partitions).release(PARTITIONS, below).logs == 2
    assert [is_open(harness, index) for index in range(4)] == [descriptor >= below for descriptor in descriptors]


def test_unsynced_file_is_synced_before_its_release(harness: Harness) -> None:
    write(harness, 0, T0, flushed=False)
    write(harness, 1, T0 + 1)
    files = OpenFiles(harness.broker.partitions)
    assert files.release(2, INT32_MAX) == (1, [name(0)])
    assert is_open(harness, 0) and not is_open(harness, 1)
    log = harness.broker.partitions[name(0)].log
    with pytest.raises(AssertionError):
        release_files(log)
    # A running sync guarantees nothing yet, and does not cover later writes.
    flush = begin_flush(log)
    put(log, b"y")
    flush.run()
    end_flush(log, flush, T0)
    assert not is_flushed(log)
    flush_now(log, T0)
    assert files.release(1, INT32_MAX) == (1, [])


def test_broker_syncs_logs_that_cannot_release_files(harness: Harness) -> None:
    write(harness, 0, T0, flushed=False)
    assert harness.broker.release_files(1, INT32_MAX) == 0
    harness.settle()
    assert harness.broker.release_files(1, INT32_MAX) == 1


def test_streaming_append_keeps_its_file_open(harness: Harness) -> None:
    write(harness, 0, T0)
    log = harness.broker.partitions[name(0)].log
    arrival = begin_arrival(log, batch(b"x"), LeaderEpoch(0), T0)
    assert arrival is not None and not is_flushed(log)
    assert OpenFiles(harness.broker.partitions).release(1, INT32_MAX).logs == 0
    log.forget_arrival(arrival)


def test_release_scan_resumes_after_the_last_log(tmp_path: Path) -> None:
    """A scan ends when it has found enough files, and the next scan resumes after it."""
    harness = Harness(tmp_path)
    count = COMPARED_MIN + 50
    topic = CreatableTopic(name="t", num_partitions=count, replication_factor=1, assignments=[], configs=[])
    harness.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5, CreateTopicsResponse)
    for age, partition in enumerate(harness.broker.partitions.values()):
        put(partition.log, b"x", at=T0 + age)
        flush_now(partition.log, T0)
    files, left = OpenFiles(harness.broker.partitions), count
    while left:
        released = files.release(20, INT32_MAX).logs
        assert released == min(20, left)
        left -= released


def test_file_in_use_keeps_its_descriptor_after_a_release(harness: Harness) -> None:
    """A slice or a flush has its own reference until it is done; no socket gets the descriptor before."""
    write(harness, 0, T0)
    log = harness.broker.partitions[name(0)].log
    records = log.read(log.start_offset, 1 << 20, log.end_offset)
    number, expected = records.file.fileno(), records.read()
    flush = Flush(harness.disk, log.end_offset, files=[log.segments[-1].file], paths=(), directories=())
    release_files(log)
    with ExitStack() as sockets:
        for _ in range(20):
            assert sockets.enter_context(socket.socket()).fileno() != number
        assert records.read() == expected
        assert flush.descriptors() == [number]
        # A reopened file has another descriptor, and the same content.
        again = log.read(log.start_offset, 1 << 20, log.end_offset)
        assert again.file.fileno() != number and again.read() == expected
        assert os.path.sameopenfile(again.file.fileno(), number)
        del records, flush
        assert sockets.enter_context(socket.socket()).fileno() == number
