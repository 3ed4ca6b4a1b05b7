"""The index of aborted transactions, compared with a plain list; damage is found, and repaired from the log."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simdisk import SimDisk

from odradek.base.units import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.log.files.disk import DiskFailed
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import close_log
from odradek.log.log.log import Log
from odradek.log.log.retention import advance_start, delete_old_segments
from odradek.log.log.truncation import truncate_to
from odradek.log.segment.scan import Damaged
from odradek.log.segment.transaction_index import PENDING_ENTRIES_MAX, AbortedTxn, TransactionIndex
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import Batch

pytestmark = pytest.mark.slow

PATH = "/00000000000000001000.txnindex"
BASE = Offset(1000)
DIRECTORY = "/data/t-0"
T = TimestampMs(1_700_000_000_000)
CONFIG = LogConfig(segment_bytes=1000)
GOLDEN = Path(__file__).parents[3] / "golden" / "kafka-4.4.0" / "data" / "control-0"


def entries(steps: list[tuple[int, int, int]]) -> list[AbortedTxn]:
    """(offsets since the last marker, the transaction's length, how far behind the last stable offset is)."""
    found, last, stable = [], BASE + 0, 0
    for step, length, behind in steps:
        last += step
        stable = max(stable, last + 1 - behind)
        found.append(
            AbortedTxn(ProducerId(len(found)), Offset(max(last - length, 0)), Offset(last), Offset(max(stable, 0)))
        )
    return found


STEPS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 1500), st.integers(0, 30)), max_size=40)


@settings(deadline=None, max_examples=200)
@given(STEPS, st.integers(1, 8), st.data())
def test_index_agrees_with_a_list(steps: list[tuple[int, int, int]], copies: int, data: st.DataObject) -> None:
    disk, all_entries = SimDisk(), entries(steps * copies)
    index = TransactionIndex(disk, PATH, BASE, 0)
    written = data.draw(st.integers(0, len(all_entries)))
    for number, entry in enumerate(all_entries):
        if number == written:
            index.write()
        index.add(entry)
    assert len(index) == len(all_entries)
    if data.draw(st.booleans()):
        index.write()
        index = TransactionIndex(disk, PATH, BASE, disk.size(PATH) if all_entries else 0)
    top = all_entries[-1].last_offset + 3 if all_entries else BASE + 3
    for _ in range(5):
        offset = data.draw(st.integers(0, top))
        upto = data.draw(st.integers(offset, top))
        found, is_all = index.overlapping(Offset(offset), Offset(upto))
        expected = [one for one in all_entries if one.last_offset >= offset and one.first_offset < upto]
        later = [one for one in all_entries if one.last_offset >= offset and one.last_stable_offset >= upto]
        assert is_all == bool(later)
        assert found == [one for one in expected if not later or one.last_offset <= later[0].last_offset]
    cut = data.draw(st.integers(0, top))
    index.truncate_to(Offset(cut))
    kept = [one for one in all_entries if one.last_offset < cut]
    assert index.overlapping(Offset(0), Offset(1 << 60))[0] == kept


def test_file_is_created_with_the_first_entry() -> None:
    disk = SimDisk()
    index = TransactionIndex(disk, PATH, BASE, 0)
    index.write()
    index.sync()
    assert disk.entries("") == [] and index.is_empty
    index.add(entries([(1, 1, 0)])[0])
    index.write()
    assert disk.size(PATH) == 34 and not index.is_empty
    index.replace([])
    assert disk.entries("") == [] and index.is_empty


def test_a_full_disk_loses_no_entry() -> None:
    disk = SimDisk()
    index = TransactionIndex(disk, PATH, BASE, 0)
    disk.room = 0
    all_entries = entries([(1, 1, 0)] * (PENDING_ENTRIES_MAX + 20))
    for entry in all_entries:
        index.add(entry)
    with pytest.raises(DiskFailed):
        index.write()
    disk.room = None
    assert index.overlapping(Offset(0), Offset(1 << 60))[0] == all_entries
    index.write()
    assert disk.size(PATH) == 34 * len(all_entries)


def test_entry_has_kafkas_format() -> None:
    raw = (GOLDEN / "00000000000000000001.txnindex").read_bytes()
    disk = SimDisk()
    disk.create(PATH).write(0, raw)
    found, _ = TransactionIndex(disk, PATH, Offset(1), len(raw)).overlapping(Offset(0), Offset(10))
    assert found == [AbortedTxn(ProducerId(0), Offset(2), Offset(3), Offset(4))]
    index = TransactionIndex(disk, PATH, Offset(1), 0)
    index.replace(found)
    assert disk.open(PATH).pread(0, 99) == raw


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:-1],
        lambda raw: raw + b"\0",
        lambda raw: b"\0\1" + raw[2:],
        lambda raw: bytes(34) + raw[34:],
        lambda raw: raw[34:] + raw[:34],
        lambda raw: raw[:10] + struct.pack(">q", 1 << 40) + raw[18:],
        lambda raw: b"",
    ],
)
def test_damaged_index_is_detected(change: object) -> None:
    disk = SimDisk()
    index = TransactionIndex(disk, PATH, BASE, 0)
    index.replace(entries([(5, 2, 0), (5, 2, 0)]))
    raw = disk.open(PATH).pread(0, 99)
    damaged = change(raw)  # type: ignore[operator]
    disk.create(PATH).write(0, damaged)
    size = len(damaged) or len(raw)  # The file existed when it was opened.
    with pytest.raises(Damaged):
        TransactionIndex(disk, PATH, BASE, size).overlapping(Offset(0), Offset(1 << 60))


# ---------------------------------------------------------------- in a log


def write(log: Log, producer: int, sequence: int) -> None:
    raw = encode_batch(
        [(None, b"v" * 100, (), T)],
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        base_sequence=sequence,
        is_transactional=True,
    )
    log.append(Batch.checked(memoryview(raw)), LeaderEpoch(0), T)


def end(log: Log, producer: int, *, commit: bool = False) -> None:
    marker = EndMarker(commit, 0)
    log.append(end_marker_batch(marker, ProducerId(producer), ProducerEpoch(0), T), LeaderEpoch(0), T)


def aborted(log: Log, offset: int = 0) -> list[tuple[int, int, int]]:
    found: set[AbortedTxn] = set()
    while offset < log.end_offset:
        records = log.read(Offset(offset), 1, log.end_offset)
        found.update(log.aborted(Offset(offset), records, log.end_offset))
        offset += 1
    return sorted((one.producer_id, one.first_offset, one.last_offset) for one in found)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    return disk


def create_log(disk: SimDisk) -> tuple[Log, list[tuple[int, int, int]]]:
    """Return overlapping transactions of two producers over several segments; producer 1 aborts, 2 commits."""
    log = Log.open(disk, DIRECTORY, CONFIG, T)
    expected = []
    for number in range(6):
        first = log.end_offset
        for sequence in range(3):
            write(log, 1, number * 3 + sequence)
            write(log, 2, number * 3 + sequence)
        expected.append((1, int(first), int(log.end_offset)))
        end(log, 1)
        end(log, 2, commit=True)
    assert len(log.segments) > 5
    return log, expected


def test_aborted_transactions_over_segments_are_found(disk: SimDisk) -> None:
    log, expected = create_log(disk)
    assert aborted(log) == expected
    close_log(log, T)
    again = Log.open(disk, DIRECTORY, CONFIG, T, recovery_point=log.end_offset, clean_shutdown=True)
    assert aborted(again) == expected
    rebuilt = Log.open(disk.kill(), DIRECTORY, CONFIG, T)
    assert aborted(rebuilt) == expected


def test_log_without_aborted_transactions_has_no_index(disk: SimDisk) -> None:
    log = Log.open(disk, DIRECTORY, CONFIG, T)
    write(log, 1, 0)
    end(log, 1, commit=True)
    assert aborted(log) == []
    assert not any(entry.name.endswith(".txnindex") for entry in disk.entries(DIRECTORY))


@pytest.mark.parametrize("with_snapshots", [True, False])
@pytest.mark.parametrize("damage", ["odd", "zeros", "gone", "another's", "another producer"])
def test_damaged_index_is_rebuilt(disk: SimDisk, damage: str, with_snapshots: bool) -> None:
    log, expected = create_log(disk)
    close_log(log, T)
    names = [entry.name for entry in disk.entries(DIRECTORY)]
    before = {name: disk.open(f"{DIRECTORY}/{name}").pread(0, 999) for name in names if name.endswith(".txnindex")}
    assert len(before) > 2
    reopened = Log.open(disk, DIRECTORY, CONFIG, T, recovery_point=log.end_offset, clean_shutdown=True)
    others = [*before.values()][1:] + [*before.values()][:1]
    for (name, raw), other in zip(before.items(), others, strict=True):
        size = len(raw)
        if damage == "another's":
            disk.create(f"{DIRECTORY}/{name}").write(0, other)
        elif damage == "another producer":
            disk.open(f"{DIRECTORY}/{name}").write(9, b"\2")
        elif damage == "gone":
            disk.create(f"{DIRECTORY}/{name}")
        else:
            disk.create(f"{DIRECTORY}/{name}").write(0, bytes(size if damage == "zeros" else size - 3))
    if not with_snapshots:
        for name in names:
            if name.endswith(".snapshot"):
                disk.unlink(f"{DIRECTORY}/{name}")
    assert aborted(reopened) == expected
    assert {name: disk.open(f"{DIRECTORY}/{name}").pread(0, 999) for name in before} == before


def test_truncated_index_of_the_active_segment_is_rebuilt_immediately(disk: SimDisk) -> None:
    log, expected = create_log(disk)
    for sequence in (18, 19):
        write(log, 1, sequence)
        end(log, 1)
        expected.append((1, log.end_offset - 2, log.end_offset - 1))
        if sequence == 18:
            log.roll(T)
    path = log.segments[-1].transactions.path
    close_log(log, T)
    disk.open(path).write(disk.size(path), b"xyz")
    again = Log.open(disk, DIRECTORY, CONFIG, T, recovery_point=log.end_offset, clean_shutdown=True)
    assert disk.size(path) == 34
    write(again, 1, 20)
    end(again, 1)
    again.segments[-1].seal()
    assert aborted(again) == [*expected, (1, again.end_offset - 2, again.end_offset - 1)]


def test_truncation_removes_transactions_that_ended_above_it(disk: SimDisk) -> None:
    log, expected = create_log(disk)
    cut = expected[3][2]
    assert truncate_to(log, Offset(cut), T)
    assert aborted(log) == expected[:3]
    assert log.producers.first_unstable == expected[0][1], "nothing is below the high watermark yet"
    log.producers.high_watermark_advanced(Offset(cut))
    assert log.producers.first_unstable == expected[3][1]
    end(log, 1)
    assert aborted(log) == expected[:4]


def test_truncation_rebuilds_a_damaged_index(disk: SimDisk) -> None:
    log, expected = create_log(disk)
    close_log(log, T)
    again = Log.open(disk, DIRECTORY, CONFIG, T, recovery_point=log.end_offset, clean_shutdown=True)
    segment = next(one for one in reversed(again.segments) if not one.transactions.is_empty)
    disk.open(segment.transactions.path).write(0, b"\7" * 34)
    assert truncate_to(again, Offset(again.end_offset - 1), T)
    assert aborted(again) == expected


def test_retention_deletes_the_index(disk: SimDisk) -> None:
    log, expected = create_log(disk)
    advance_start(log, log.segments[3].base_offset)
    assert delete_old_segments(log, T, log.end_offset) == 3
    assert aborted(log, log.start_offset) == [one for one in expected if one[2] >= log.start_offset]
    log.reaper.reap(TimestampMs(T + 10**9))
    kept = {segment.base_offset for segment in log.segments}
    assert {int(entry.name[:20]) for entry in disk.entries(DIRECTORY) if entry.name[0] == "0"} == kept
