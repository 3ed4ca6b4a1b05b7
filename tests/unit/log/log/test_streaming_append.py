"""Streaming appends: the final log equals that of an ordinary append, or the batch never existed."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from simdisk import SimDisk, SimFile

from odradek.base.units import LeaderEpoch, Offset, TimestampMs
from odradek.log.files.disk import Disk, DiskFailed, RealDisk
from odradek.log.files.log_config import LogConfig
from odradek.log.log.arrival import Arrival
from odradek.log.log.durability import begin_flush, close_log, flush_now, needs_flush
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_old_segments
from odradek.log.log.streaming_append import arrived, begin_arrival
from odradek.log.log.timestamp_search import lookup_timestamp
from odradek.log.log.truncation import truncate_fully, truncate_to
from odradek.record.builder import encode_batch
from odradek.record.record_batch import HEADER_BYTES, Batch
from support.logs import T0, batch, put, stored

pytestmark = pytest.mark.slow

CONFIG = LogConfig()
DIRECTORY = "/d/t-0"
LOG_FILE = f"{DIRECTORY}/00000000000000000000.log"


def new_log(config: LogConfig = CONFIG, disk: SimDisk | None = None) -> Log:
    disk = disk or SimDisk()
    disk.make_directory(DIRECTORY)
    return Log.open(disk, DIRECTORY, config, T0)


def raw(*values: bytes, at: int = T0) -> bytearray:
    return bytearray(encode_batch([(None, value, (), at + number) for number, value in enumerate(values)]))


class Incoming:
    """One batch on its way into a log: the front is written, and each call of `receive` adds more."""

    def __init__(
        self,
        log: Log,
        data: bytearray,
        front: int = HEADER_BYTES,
        *,
        epoch: int = 0,
        now: int = T0,
        can_withdraw: bool = True,
    ) -> None:
        announced = Batch.announced(memoryview(bytearray(data[:front])), len(data))
        assert announced is not None
        arrival = begin_arrival(log, announced, LeaderEpoch(epoch), TimestampMs(now))
        assert arrival is not None
        self.log = log
        self.arrival: Arrival = arrival
        self.rest = bytes(data[front:])
        self.at = 0
        self.read_back: list[bytes] = []
        if can_withdraw:
            arrival.withdraw = self._withdraw
        assert arrival.left == len(self.rest)

    def receive(self, size: int | None = None) -> Incoming:
        piece = self.rest[self.at :] if size is None else self.rest[self.at : self.at + size]
        if piece:
            self.arrival.file.write(self.arrival.position + self.at, piece)
        self.at += len(piece)
        return self

    def end(self) -> None:
        assert self.at == len(self.rest)
        arrived(self.log, self.arrival)

    def forget(self) -> None:
        self.log.forget_arrival(self.arrival)

    def _withdraw(self) -> None:
        self.read_back.append(self.arrival.file.pread(self.arrival.position, self.at))

    @property
    def was_withdrawn(self) -> bool:
        """Check that it was withdrawn once, and that its received data was readable."""
        assert self.read_back in ([], [self.rest[: self.at]])
        return bool(self.read_back)


def files(disk: Disk, directory: str = DIRECTORY) -> dict[str, bytes]:
    return {one.name: disk.open(f"{directory}/{one.name}").pread(0, 1 << 27) for one in disk.entries(directory)}


def everything(log: Log) -> bytes:
    """Return all records, as read by one reader after another."""
    found, offset = b"", log.start_offset
    while data := log.read(offset, 1 << 27, log.end_offset).read():
        found += data
        offset = Offset(found_end(data))
    return found


def found_end(data: bytes) -> int:
    view, at = memoryview(data), 0
    while at < len(data):
        last = Batch.trusted(view[at:])
        at += last.size
    return last.next_offset


# ---------------------------------------------------------------- as an append


class Twins:
    """Two logs with the same batches: one appends all of them, the other receives the large ones in pieces."""

    def __init__(self, disk: Disk, root: str, config: LogConfig, random: Random) -> None:
        self.disk = disk
        self.random = random
        self.config = config
        self.now = int(T0)
        self.epoch = 0
        self.paths = [f"{root}/whole", f"{root}/arriving"]
        for path in self.paths:
            disk.make_directory(path)
        self.logs = [self._open(path) for path in self.paths]

    def _open(self, path: str, recovery_point: int = 0, *, start: int = 0, clean: bool = False) -> Log:
        return Log.open(
            self.disk,
            path,
            self.config,
            TimestampMs(T0),
            recovery_point=Offset(recovery_point),
            start_offset=Offset(start),
            clean_shutdown=clean,
        )

    @property
    def whole(self) -> Log:
        return self.logs[0]

    @property
    def arriving(self) -> Log:
        return self.logs[1]

    def both(self, do: Callable[[Log], object]) -> None:
        first, second = (do(log) for log in self.logs)
        assert first == second

    def incoming(self) -> tuple[Incoming, bytearray]:
        random = self.random
        size = random.choice([200, 1000, 4000, 9000])
        data = raw(*[random.randbytes(size) for _ in range(random.randint(1, 3))], at=self.now)
        front = random.randint(HEADER_BYTES, len(data) - 1)
        return Incoming(self.arriving, data, front, epoch=self.epoch, now=self.now), data

    def append_to_whole(self, data: bytearray) -> None:
        self.whole.append(Batch.checked(memoryview(data)), LeaderEpoch(self.epoch), TimestampMs(self.now))

    def follow_rolls(self) -> None:
        """Roll the twin too: a roll makes room for a batch that never arrives."""
        if len(self.whole.segments) < len(self.arriving.segments):
            self.whole.roll(TimestampMs(self.now))

    # Possible events.

    def append(self) -> None:
        data = raw(*[b"v" * self.random.randint(0, 300) for _ in range(self.random.randint(1, 4))], at=self.now)
        for log in self.logs:
            log.append(Batch.checked(memoryview(bytearray(data))), LeaderEpoch(self.epoch), TimestampMs(self.now))

    def arrive(self) -> None:
        incoming, data = self.incoming()
        before = everything(self.whole) if self.whole.size < 100_000 else None
        while incoming.at < len(incoming.rest):
            incoming.receive(self.random.randint(1, 5000))
            if before is not None:
                assert everything(self.arriving) == before, "nothing of it counts yet"
        incoming.end()
        assert not incoming.was_withdrawn
        self.append_to_whole(data)

    def forget(self) -> None:
        incoming, _ = self.incoming()
        incoming.receive(self.random.randint(0, 12_000)).forget()
        incoming.forget()
        self.follow_rolls()

    def interrupt(self) -> None:
        incoming, _ = self.incoming()
        incoming.receive(self.random.randint(0, 12_000))
        self.follow_rolls()
        self.append()
        assert incoming.was_withdrawn
        incoming.forget()

    def interrupt_by_another(self) -> None:
        first, _ = self.incoming()
        first.receive(self.random.randint(0, 12_000))
        self.follow_rolls()
        second, data = self.incoming()
        assert first.was_withdrawn
        second.receive().end()
        self.append_to_whole(data)

    def pass_time(self) -> None:
        self.now += self.random.choice([1, 50, 700])
        self.epoch += self.random.random() < 0.3

    def flush(self) -> None:
        self.both(lambda log: flush_now(log, TimestampMs(self.now)))

    def truncate(self) -> None:
        offset = Offset(self.random.randint(self.whole.start_offset, self.whole.end_offset))
        self.both(lambda log: truncate_to(log, offset, TimestampMs(self.now)))
        self.epoch += 1

    def retain(self) -> None:
        start = Offset(self.random.randint(self.whole.start_offset, self.whole.end_offset))
        self.both(lambda log: advance_start(log, start))
        self.both(lambda log: delete_old_segments(log, TimestampMs(self.now), log.end_offset))

    def read(self) -> None:
        log = self.whole
        offset = Offset(self.random.randint(log.start_offset, log.end_offset))
        size = self.random.choice([1, 300, 5000, 1 << 20])
        self.both(lambda log: log.read(offset, size, log.end_offset).read())
        time = TimestampMs(self.random.randint(T0, self.now + 10))
        self.both(lambda log: lookup_timestamp(log, time))
        self.both(lambda log: lookup_timestamp(log, None))

    def reopen(self) -> None:
        """Open the logs after a kill, or a clean stop."""
        clean = self.random.random() < 0.5
        for number, log in enumerate(self.logs):
            if clean:
                close_log(log, TimestampMs(self.now))
            again = self._open(self.paths[number], log.recovery_point, start=log.start_offset, clean=clean)
            assert (again.lost_bytes, again.end_offset) == (0, log.end_offset)
            self.logs[number] = again

    def check(self) -> None:
        one, other = self.logs
        assert (one.end_offset, one.start_offset, one.size) == (other.end_offset, other.start_offset, other.size)
        assert (one.recovery_point, one.appended_bytes) == (other.recovery_point, other.appended_bytes)
        assert one.epochs.entries == other.epochs.entries
        assert [s.base_offset for s in one.segments] == [s.base_offset for s in other.segments]
        assert files(self.disk, self.paths[0]) == files(self.disk, self.paths[1])


STEPS = (
    [Twins.append, Twins.arrive, Twins.read, Twins.pass_time] * 4
    + [Twins.forget, Twins.interrupt, Twins.interrupt_by_another, Twins.flush] * 2
    + [Twins.truncate, Twins.retain, Twins.reopen]
)


@pytest.mark.parametrize("seed", range(30))
def test_directory_equals_that_of_ordinary_appends(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    config = LogConfig(
        segment_bytes=random.choice([40_000, 200_000]),
        segment_ms=random.choice([500, 1_000_000]),
        index_interval_bytes=random.choice([0, 500, 4096]),
        segment_index_bytes=random.choice([48, 10_000]),
        retention_ms=random.choice([-1, 1000]),
        retention_bytes=random.choice([-1, 60_000]),
    )
    disk: Disk = RealDisk() if seed % 2 else SimDisk()
    twins = Twins(disk, str(tmp_path) if seed % 2 else "/d", config, random)
    for _ in range(80):
        random.choice(STEPS)(twins)
        twins.check()
    for log in twins.logs:
        close_log(log, TimestampMs(twins.now))
    assert files(disk, twins.paths[0]) == files(disk, twins.paths[1])


def test_offsets_and_epoch_are_stamped() -> None:
    log = new_log()
    put(log, b"first", epoch=3)
    Incoming(log, raw(b"a" * 500, b"b" * 500), 400, epoch=4).receive().end()
    assert (log.end_offset, stored(log), log.epochs.entries) == (3, [(0, 0), (1, 2)], [(3, 0), (4, 1)])
    found = Batch.trusted(memoryview(log.read(Offset(1), 9999, Offset(3)).read()))
    assert (found.base_offset, found.leader_epoch, found.is_intact) == (1, 4, True)


def test_streaming_append_rolls_at_its_start_not_its_end() -> None:
    log = new_log(LogConfig(segment_bytes=3000))
    put(log, b"x" * 1500)
    incoming = Incoming(log, raw(b"y" * 1500))
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    incoming.receive().end()
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert stored(log) == [(0, 0), (1, 1)]


# ---------------------------------------------------------------- as if nothing had been


PIECES = [0, 1, 439, 440, 3000]


@pytest.mark.parametrize("size", [0, 1, 500, 2_000, 100_000])
def test_withdrawn_append_leaves_no_trace(size: int, tmp_path: Path) -> None:
    for disk in (SimDisk(), RealDisk()):
        directory = DIRECTORY if isinstance(disk, SimDisk) else str(tmp_path)
        disk.make_directory(directory)
        log = Log.open(disk, directory, CONFIG, T0)
        put(log, b"before")
        state = (log.end_offset, log.size, log.appended_bytes, log.epochs.entries.copy(), files(disk, directory))
        incoming = Incoming(log, raw(b"x" * 3000), 100, epoch=7)
        incoming.receive(size).forget()
        entries = log.epochs.entries
        assert (log.end_offset, log.size, log.appended_bytes, entries, files(disk, directory)) == state
        assert not incoming.was_withdrawn
        put(log, b"after")
        assert stored(log) == [(0, 0), (1, 1)]


INTERRUPTIONS: dict[str, Callable[[Log], object]] = {
    "append": lambda log: put(log, b"another"),
    "append_as_follower": lambda log: log.append_as_follower([stamped(log, b"another")], T0),
    "begin_arrival": lambda log: Incoming(log, raw(b"z" * 500)).receive().end(),
    "roll": lambda log: log.roll(T0),
    "truncate_to": lambda log: truncate_to(log, Offset(1), T0),
    "truncate_to the end": lambda log: truncate_to(log, log.end_offset, T0),
    "truncate_fully": lambda log: truncate_fully(log, Offset(70), T0),
    "delete_old_segments": lambda log: delete_old_segments(log, TimestampMs(T0 + 10_000_000), log.end_offset),
    "close": lambda log: close_log(log, T0),
}


def stamped(log: Log, value: bytes) -> Batch:
    made = batch(value)
    made.stamp(log.end_offset, LeaderEpoch(0))
    return made


@pytest.mark.parametrize("size", PIECES)
@pytest.mark.parametrize("name", INTERRUPTIONS)
def test_any_change_of_the_log_end_withdraws_the_append_once(name: str, size: int) -> None:
    interrupt = INTERRUPTIONS[name]
    disks = SimDisk(), SimDisk()
    config = LogConfig(retention_ms=1000)
    logs = [new_log(config, disk) for disk in disks]
    for log in logs:
        put(log, b"one")
        put(log, b"two")
    incoming = Incoming(logs[1], raw(b"x" * 3000), 300).receive(size)
    for log in logs:
        interrupt(log)
    assert incoming.was_withdrawn
    incoming.forget()  # As the notified caller does.
    assert len(incoming.read_back) == 1
    assert files(disks[0]) == files(disks[1])
    if name == "close":
        logs = [Log.open(disk, DIRECTORY, config, T0, clean_shutdown=True) for disk in disks]
    for log in logs:
        put(log, b"after")
        Incoming(log, raw(b"y" * 3000)).receive().end()
    assert files(disks[0]) == files(disks[1])
    assert stored(logs[0]) == stored(logs[1])
    assert all(log.lost_bytes == 0 for log in logs)


def test_other_operations_do_not_withdraw_the_append() -> None:
    log = new_log()
    put(log, b"one")
    log.roll(T0)
    put(log, b"two")
    incoming = Incoming(log, raw(b"x" * 3000)).receive(1000)
    flush_now(log, T0)
    assert (log.recovery_point, begin_flush(log).is_empty) == (2, True)
    assert not needs_flush(log, T0)
    assert advance_start(log, Offset(1))
    assert delete_old_segments(log, T0, Offset(2)) == 1
    assert stored(log) == [(1, 1)]
    assert lookup_timestamp(log, None) == (T0, 1, 0)
    log.config = replace(log.config, max_message_bytes=100)
    assert begin_arrival(log, announced(b"y" * 3000), LeaderEpoch(0), T0) is None
    incoming.receive().end()
    assert not incoming.was_withdrawn
    assert stored(log) == [(1, 1), (2, 2)]


def test_append_without_a_listener_is_withdrawn_too() -> None:
    log = new_log()
    Incoming(log, raw(b"x" * 3000), can_withdraw=False).receive(100)
    put(log, b"another")
    assert stored(log) == [(0, 0)]


def test_withdrawn_append_cannot_end() -> None:
    log = new_log()
    incoming = Incoming(log, raw(b"x" * 3000)).receive()
    put(log, b"another")
    with pytest.raises(AssertionError):
        incoming.end()
    assert stored(log) == [(0, 0)]


def announced(*values: bytes) -> Batch:
    data = raw(*values)
    made = Batch.announced(memoryview(data[:HEADER_BYTES]), len(data))
    assert made is not None
    return made


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(log_append_time=True),
        LogConfig(preallocate=True, segment_bytes=10_000),
        LogConfig(max_message_bytes=len(raw(b"x" * 3000)) - 1),
        LogConfig(segment_bytes=len(raw(b"x" * 3000)) - 1),
    ],
    ids=["log append time", "preallocate", "max.message.bytes", "segment.bytes"],
)
def test_some_batches_must_be_appended_as_a_whole(config: LogConfig) -> None:
    disk = SimDisk()
    log = new_log(config, disk)
    put(log, b"before")
    before = files(disk)
    assert begin_arrival(log, announced(b"x" * 3000), LeaderEpoch(0), T0) is None
    assert files(disk) == before
    put(log, b"after")
    assert stored(log) == [(0, 0), (1, 1)]


def test_largest_allowed_batch_can_be_streamed() -> None:
    size = len(raw(b"x" * 3000))
    log = new_log(LogConfig(max_message_bytes=size, segment_bytes=size))
    for _ in range(2):
        Incoming(log, raw(b"x" * 3000)).receive().end()
    assert [segment.base_offset for segment in log.segments] == [0, 1]


# ---------------------------------------------------------------- failures and crashes


@pytest.mark.parametrize("room", [0, 20, 99])
def test_front_on_a_full_disk_is_undone(room: int) -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    put(log, b"before")
    before = files(disk)
    disk.room = room
    data = raw(b"x" * 3000)
    with pytest.raises(DiskFailed) as failed:
        begin_arrival(log, Batch.announced(memoryview(data[:100]), len(data)) or announced(), LeaderEpoch(0), T0)
    assert failed.value.is_full
    assert files(disk) == before
    disk.room = None
    Incoming(log, raw(b"y" * 3000)).receive().end()
    assert stored(log) == [(0, 0), (1, 1)]


def test_piece_on_a_full_disk_withdraws_the_append() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    put(log, b"before")
    before = files(disk)
    incoming = Incoming(log, raw(b"x" * 3000)).receive(1000)
    disk.room = 500
    with pytest.raises(DiskFailed):
        incoming.receive()
    incoming.forget()
    assert files(disk) == before
    disk.room = None
    put(log, b"after")
    assert stored(log) == [(0, 0), (1, 1)]


@pytest.mark.parametrize("is_by_append", [False, True])
def test_failed_truncation_of_a_withdrawn_append_is_repaired(
    is_by_append: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The withdrawn data is longer than the batch in its place."""
    disk, other = SimDisk(), SimDisk()
    log, twin = new_log(disk=disk), new_log(disk=other)
    incoming = Incoming(log, raw(b"x" * 3000)).receive(2000)

    def truncate(file: SimFile, size: int) -> None:
        raise DiskFailed(errno.ENOSPC, "no room even for that", file.path)

    with monkeypatch.context() as patched:
        patched.setattr(SimFile, "truncate", truncate)
        with pytest.raises(DiskFailed):
            incoming.forget()
        with pytest.raises(DiskFailed):
            put(log, b"refused")
    for each in (log, twin):
        if is_by_append:
            put(each, b"short")
        else:
            Incoming(each, raw(b"short")).receive().end()
    assert files(disk) == files(other)


@pytest.mark.parametrize("is_front_durable", [False, True])
@pytest.mark.parametrize("size", [*range(0, 2940, 420), 2940])
def test_kill_during_a_streaming_append_recovers_the_log(size: int, is_front_durable: bool) -> None:
    """All written data is present. Recovery ends the log before the batch, unless the batch is complete."""
    disk = SimDisk()
    log = new_log(disk=disk)
    put(log, b"before")
    data = raw(b"x" * 3000)
    incoming = Incoming(log, data, len(data) - 2940)
    if is_front_durable:
        flush_now(log)
    incoming.receive(size)
    survivor = disk.kill()
    again = Log.open(survivor, DIRECTORY, CONFIG, T0, recovery_point=log.recovery_point)
    assert stored(again) == ([(0, 0)] if size < 2940 else [(0, 0), (1, 1)])
    assert again.lost_bytes == (len(data) - 2940 + size if size < 2940 else 0)
    put(again, b"after")
    assert stored(again)[-1] == (again.end_offset - 1, again.end_offset - 1)
    assert stored(Log.open(survivor, DIRECTORY, CONFIG, T0)) == stored(again)


@pytest.mark.parametrize("seed", range(40))
def test_power_failure_restores_no_withdrawn_or_partial_append(seed: int) -> None:
    """Data flushed before is present."""
    random = Random(seed)
    disk = SimDisk()
    log = new_log(disk=disk)
    for _ in range(random.randint(0, 3)):
        put(log, b"before" * random.randint(1, 300))
    flush_now(log)
    flushed = stored(log)
    data = raw(random.randbytes(5000))
    incoming = Incoming(log, data, random.randint(HEADER_BYTES, 3000))
    while incoming.at < len(incoming.rest) // 2:
        incoming.receive(random.randint(1, 1500))
        if random.random() < 0.3:
            flush_now(log)
    after: list[tuple[int, int]] = []
    if random.random() < 0.6:
        put(log, b"another" * random.randint(1, 100))
        assert incoming.was_withdrawn
        after = stored(log)[-1:]
        if random.random() < 0.5:
            flush_now(log)
            flushed, after = flushed + after, []
    for _ in range(10):
        survivor = disk.crash(random)
        again = Log.open(survivor, DIRECTORY, CONFIG, T0, recovery_point=log.recovery_point)
        assert stored(again) in (flushed, flushed + after)
        assert bytes(data[HEADER_BYTES : HEADER_BYTES + 100]) not in everything(again)
        put(again, b"goes on")
        assert stored(Log.open(survivor, DIRECTORY, CONFIG, T0)) == stored(again)


def test_streaming_append_can_be_cut_off_at_any_byte_on_real_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    log = Log.open(RealDisk(), str(source), LogConfig(index_interval_bytes=100), T0)
    put(log, b"before")
    size = log.size
    data = raw(b"x" * 500)
    Incoming(log, data, 70).receive(len(data) - 71)
    for cut in range(size, size + len(data), 37):
        target = tmp_path / "target"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        with (target / "00000000000000000000.log").open("r+b") as file:
            file.truncate(cut)
        again = Log.open(RealDisk(), str(target), CONFIG, T0)
        assert (stored(again), again.lost_bytes) == ([(0, 0)], min(cut - size, len(data) - 1))
        assert (target / "00000000000000000000.log").stat().st_size == size
