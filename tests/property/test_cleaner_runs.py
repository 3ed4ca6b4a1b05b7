"""A cleaner that processes batches in runs: its output equals that of single batches, byte for byte."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simdisk import SimDisk

from odradek.base.units import INT32_MAX, TimestampMs
from odradek.log.compaction import cleaned_batches, cleaned_segments, cleaner
from odradek.log.compaction.cleaner import SLOTS_MIN, Uncleanable
from odradek.log.files.log_config import LogConfig
from odradek.log.log.durability import flush_now
from odradek.log.log.log import Log
from odradek.record import batch_filter as compaction
from odradek.record.compression import Codec
from odradek.record.kernels.compact import SLOT_BYTES
from support.cleaning import Writer, begin, swap_all
from support.logs import T0
from support.record_kernels import BUILDS, kernel

DIRECTORY = "/d/t-0"
DAY = 86_400_000
PLAIN = (Codec.NONE,)


class OneByOne:
    """A replacement for runs that takes no batch."""

    base_offset = last_offset = -1
    next_offset = dropped = 0

    def __init__(self, *_: object) -> None:
        self.taken = 0

    def begin_chunk(self, *_: object) -> None:
        pass

    def run(self, *_: object) -> int:
        return 0


class Made(NamedTuple):
    """Results of one pass over a log."""

    end: int
    dropped: int
    read: int
    kept: int
    files: dict[str, bytes]


class Kind(NamedTuple):
    """Contents of a log, and settings for its cleaning."""

    seed: int
    codecs: tuple[Codec, ...]
    keys: int
    transactional: int
    idempotent: int
    retention_ms: int
    interval_bytes: int
    segment_bytes: int
    log_append_time: bool
    slots: int
    chunk_bytes: int
    segment_reach: int


KINDS = st.builds(
    Kind,
    st.integers(0, 2**32),
    st.sampled_from([PLAIN, PLAIN, tuple(Codec)]),
    st.sampled_from([1, 5, 20, 400]),
    st.sampled_from([0, 0, 2]),
    st.sampled_from([0, 2, 40]),
    st.sampled_from([0, 50, DAY]),
    st.sampled_from([0, 200, 4096]),
    st.sampled_from([2_000, 1 << 30]),
    st.booleans(),
    st.sampled_from([SLOTS_MIN, 1000]),
    st.sampled_from([100, 300, 2000, 4096]),
    st.sampled_from([INT32_MAX, INT32_MAX, 700]),
)


def log_of(kind: Kind) -> tuple[SimDisk, Log, Writer]:
    disk = SimDisk()
    disk.make_directory(DIRECTORY)
    config = LogConfig(
        cleanup_compact=True,
        cleanup_delete=False,
        segment_bytes=kind.segment_bytes,
        index_interval_bytes=kind.interval_bytes,
        delete_retention_ms=kind.retention_ms,
        log_append_time=kind.log_append_time,
    )
    log = Log.open(disk, DIRECTORY, config, T0)
    return disk, log, Writer(log, Random(kind.seed), kind.keys, kind.transactional, kind.idempotent, kind.codecs)


def cleaned(log: Log, disk: SimDisk, now: TimestampMs, kind: Kind) -> Made:
    """Run one pass; return its result and the disk's contents."""
    flush_now(log, now)
    cleaning, _ = begin(log, now, kind.slots * SLOT_BYTES, kind.chunk_bytes)
    log.compaction.cleaning = cleaning
    cleaning.build_map(lambda _: None)
    swap_all(log, cleaning, now)
    files = {name: bytes(disk.open(f"{DIRECTORY}/{name}").pread(0, 1 << 24)) for name, _ in disk.entries(DIRECTORY)}
    return Made(cleaning.end, cleaning.dropped_records, cleaning.read_bytes, cleaning.kept_bytes, files)


def history(kind: Kind) -> list[Made]:
    """Run three passes over a growing log; the horizons of the first have passed in the last."""
    disk, log, writer = log_of(kind)
    made = []
    for _ in range(3):
        writer.write(30)
        log.roll(writer.now)
        made.append(cleaned(log, disk, writer.now, kind))
        writer.now = TimestampMs(writer.now + 60)
    return made


def take(patch: pytest.MonkeyPatch, build: str, *, has_runs: bool) -> None:
    """Make the cleaner use runs from now on, or single batches."""
    compact, runs = kernel("compact", build), kernel("compact_runs", build)
    patch.setattr(cleaner, "KeyRuns", runs.KeyRuns if has_runs else OneByOne)
    patch.setattr(cleaned_batches, "FilterRuns", runs.FilterRuns if has_runs else OneByOne)
    patch.setattr(cleaner, "OffsetMap", compact.OffsetMap)
    patch.setattr(cleaner, "BadRecords", compact.BadRecords)
    patch.setattr(compaction, "Filter", compact.Filter)
    patch.setattr(compaction, "_NO_KEYS", compact.OffsetMap(SLOT_BYTES, bytes(16)))


@pytest.mark.parametrize("build", BUILDS)
def test_runs_write_the_same_as_single_batches(build: str) -> None:
    @settings(max_examples=150 if build == "compiled" else 30, deadline=None)
    @given(KINDS)
    def check(kind: Kind) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cleaned_segments, "INT32_MAX", kind.segment_reach)
            take(patch, build, has_runs=False)
            expected = history(kind)
            take(patch, build, has_runs=True)
            assert history(kind) == expected

    check()


@pytest.mark.parametrize("build", BUILDS)
def test_damage_ends_a_pass_of_runs_and_of_single_batches_alike(build: str) -> None:
    @settings(max_examples=150 if build == "compiled" else 30, deadline=None)
    @given(KINDS, st.randoms(use_true_random=False))
    def check(kind: Kind, random: Random) -> None:
        where, value = random.random(), random.randrange(256)
        with pytest.MonkeyPatch.context() as patch:
            take(patch, build, has_runs=False)
            expected = outcome_of_damaged(kind, where, value)
            take(patch, build, has_runs=True)
            assert outcome_of_damaged(kind, where, value) == expected

    check()


def outcome_of_damaged(kind: Kind, where: float, value: int) -> Made | str:
    """Clean a log in which one byte is changed, and return the outcome."""
    disk, log, writer = log_of(kind)
    writer.write(40)
    log.roll(writer.now)
    flush_now(log, writer.now)
    segments = [one for one in log.segments if one.size]
    segment = segments[int(where * len(segments))]
    segment.file.write(int(where * 1e6) % segment.size, bytes([value]))
    try:
        return cleaned(log, disk, writer.now, kind)
    except Uncleanable as wrong:
        return str(wrong)
