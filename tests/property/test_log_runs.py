"""Recovery that reads batches in runs: it finds the same as with single batches."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simdisk import SimDisk

from odradek.base.units import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.log.files.log_config import LogConfig
from odradek.log.producers.producer_recovery import ProducerWalk
from odradek.log.producers.producer_state import ProducerStateEntry, ProducerStateManager
from odradek.log.segment import scan
from odradek.log.segment.scan import Damaged, walk_checked, walk_runs
from odradek.log.segment.segment import Segment
from odradek.log.segment.transaction_index import AbortedTxn
from odradek.record.builder import encode_batch
from odradek.record.end_transaction_marker import EndMarker, end_marker, end_marker_batch
from odradek.record.record_batch import iter_batches
from support.record_kernels import BUILDS, kernel

PATH = "/data/t-0"
INT32_MAX = 2**31 - 1


class Given(NamedTuple):
    """One batch: its records, and its distance from the batch before."""

    gap: int
    epoch: int
    times: list[int]
    value_bytes: int


class Found(NamedTuple):
    """Results of recovering a segment."""

    good: int
    end: int
    epochs: list[tuple[int, int]]
    max_timestamp: int
    max_timestamp_offset: int
    first_timestamp: int
    offsets: bytes
    times: bytes


BATCHES = st.lists(
    st.builds(
        Given,
        st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, 50, -1, INT32_MAX]),
        st.sampled_from([0, 0, 0, 0, 1, 2, 7]),
        st.lists(st.integers(-1, 20), min_size=1, max_size=3),
        st.sampled_from([0, 1, 30, 200, 1500]),
    ),
    min_size=1,
    max_size=40,
)


def written(batches: list[Given], base_offset: int) -> bytearray:
    data, offset = bytearray(), base_offset
    for one in batches:
        offset = max(offset + one.gap, 0)
        records = [(None, b"v" * one.value_bytes, [], time) for time in one.times]
        epoch = LeaderEpoch(one.epoch)
        data += encode_batch(records, base_offset=Offset(offset), leader_epoch=epoch)
        offset += len(records)
    return data


def segment_of(data: bytes, base_offset: int) -> tuple[SimDisk, Segment]:
    disk = SimDisk()
    disk.make_directory(PATH)
    made = Segment.create(disk, PATH, Offset(base_offset), TimestampMs(0), LogConfig())
    made.file.write(0, data)
    segment = Segment(disk, PATH, Offset(base_offset), TimestampMs(0), size=len(data))
    segment.forget_indexes()
    return disk, segment


def recover(data: bytes, base_offset: int, config: LogConfig, runs: object | None) -> Found:
    """Recover the data with runs, or one by one for None."""
    disk, segment = segment_of(data, base_offset)
    good, end, latest, epochs = 0, base_offset, -1, []
    places = walk_checked(segment.file, 0, len(data))
    if runs is not None:
        places = walk_runs(segment.file, 0, len(data), runs)  # type: ignore[arg-type]  # Of either build.
    with suppress(Damaged):
        for place in places:
            if place.base_offset < end or not segment.can_hold(place.last_offset):
                break
            segment.index(place, config)
            if runs is not None:
                segment.max_timestamp_offset = runs.max_timestamp_offset  # type: ignore[attr-defined]
            good, end = place.end_position, place.last_offset + 1
            if place.leader_epoch > latest:
                latest = place.leader_epoch
                epochs.append((latest, place.base_offset))
    largest = segment.max_timestamp, segment.max_timestamp_offset
    first = segment.first_timestamp
    segment.seal()
    index, times = (bytes(disk.open(part.path).pread(0, 1 << 20)) for part in (segment.offsets, segment.times))
    return Found(good, end, epochs, *largest, first, index, times)


@pytest.mark.parametrize("build", BUILDS)
def test_runs_recover_the_same_as_single_batches(build: str) -> None:
    runs = kernel("runs", build).Runs

    @settings(max_examples=150, deadline=None)
    @given(BATCHES, st.sampled_from([0, 1000]), st.sampled_from([0, 100, 700, 4096]), st.sampled_from([256, 1 << 20]))
    def check(batches: list[Given], base_offset: int, interval_bytes: int, chunk_bytes: int) -> None:
        data = bytes(written(batches, base_offset))
        config = LogConfig(index_interval_bytes=interval_bytes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scan, "CHECK_CHUNK_BYTES", chunk_bytes)
            walker = runs(base_offset, base_offset, -1, interval_bytes)
            assert recover(data, base_offset, config, walker) == recover(data, base_offset, config, None)

    check()


@pytest.mark.parametrize("build", BUILDS)
def test_damage_ends_runs_and_single_batches_alike(build: str) -> None:
    runs = kernel("runs", build).Runs

    @settings(max_examples=150, deadline=None)
    @given(BATCHES, st.randoms(use_true_random=False), st.sampled_from([0, 700]))
    def check(batches: list[Given], random: Random, interval_bytes: int) -> None:
        data = written(batches, 0)
        for _ in range(random.randint(0, 2)):
            data[random.randrange(len(data))] = random.randrange(256)
        cut = bytes(data[: random.choice([len(data), random.randrange(len(data) + 1)])])
        config = LogConfig(index_interval_bytes=interval_bytes)
        assert recover(cut, 0, config, runs(0, 0, -1, interval_bytes)) == recover(cut, 0, config, None)

    check()


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("gap", [INT32_MAX - 3, INT32_MAX - 2])
def test_an_offset_beyond_the_segments_reach_ends_a_run(build: str, gap: int) -> None:
    """After three batches, the first gap is the largest that a segment can hold, and the second exceeds it."""
    near, far = Given(0, 0, [1], 0), Given(gap, 0, [1], 0)
    data = bytes(written([near, near, near, far], 0))
    found = recover(data, 0, LogConfig(), kernel("runs", build).Runs(0, 0, -1, 4096))
    assert found == recover(data, 0, LogConfig(), None)
    assert found.end == (INT32_MAX + 1 if gap == INT32_MAX - 3 else 3)


@pytest.mark.parametrize("build", BUILDS)
def test_garbage_makes_no_run(build: str) -> None:
    runs, random = kernel("runs", build).Runs, Random(7)
    for size in [0, 1, 60, 61, 62, 100, 1000] * 20:
        data = bytearray(random.randbytes(size))
        if size > 61:
            data[8:12] = random.choice([b"\0\0\0\x31", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\x30"])
            data[16] = 2
        for start in (0, size // 2, size, size + 100):
            assert runs(0, 0, -1, 4096).run(data, start) == 0


class Numbered(NamedTuple):
    """One batch: its producer and its contents."""

    producer: int
    epoch: int
    sequence: int
    count: int
    transactional: bool
    marker: bool
    size: int


NUMBERED = st.lists(
    st.builds(
        Numbered,
        st.sampled_from([-1, 0, 1, 2, 2**62]),
        st.sampled_from([0, 0, 0, 0, 1, 2**15 - 1]),
        st.sampled_from([0, 1, 7, INT32_MAX - 1, INT32_MAX]),
        st.integers(1, 4),
        st.booleans(),
        st.sampled_from([False, False, False, False, True]),
        st.sampled_from([0, 30, 30, 30, 3000]),
    ),
    max_size=60,
)


def encoded(batches: list[Numbered]) -> bytes:
    data, offset = bytearray(), 0
    for one in batches:
        producer_id, epoch = ProducerId(one.producer), ProducerEpoch(one.epoch)
        if one.marker and one.producer >= 0:
            marker = end_marker_batch(EndMarker(one.transactional, one.sequence), producer_id, epoch, TimestampMs(5))
            marker.stamp(Offset(offset), LeaderEpoch(0))
            data += marker.view
            offset += 1
            continue
        data += encode_batch(
            [(None, b"v" * one.size, (), offset + number) for number in range(one.count)],
            base_offset=Offset(offset),
            leader_epoch=LeaderEpoch(0),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=one.sequence if one.producer >= 0 else -1,
            is_transactional=one.transactional,
        )
        offset += one.count
    return bytes(data)


def one_by_one(data: bytes) -> tuple[dict[int, ProducerStateEntry], list[AbortedTxn]]:
    producers, aborted = ProducerStateManager(), []
    for batch in iter_batches(data):
        if not batch.has_producer_id:
            continue
        if not batch.is_control:
            producers.note(batch)
            continue
        marker = end_marker(batch)
        ended = marker and producers.apply_end_marker(marker, batch)
        if ended is not None and not ended.is_commit:
            aborted.append(ended.as_aborted())
    return {one.id: one for one in producers}, aborted


@pytest.mark.parametrize("build", BUILDS)
def test_runs_recover_the_same_producers_as_single_batches(build: str) -> None:
    runs = kernel("runs", build).Runs

    @settings(max_examples=200, deadline=None)
    @given(NUMBERED, st.sampled_from([0, 200, 4096]), st.sampled_from([200, 2000, 1 << 20]), st.integers(0, 60))
    def check(batches: list[Numbered], interval_bytes: int, chunk_bytes: int, taken: int) -> None:
        data = encoded(batches)
        _, segment = segment_of(data, 0)
        walk, walker = ProducerWalk(ProducerStateManager()), runs(0, 0, -1, interval_bytes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scan, "CHECK_CHUNK_BYTES", chunk_bytes)
            for number, _ in enumerate(walk_runs(segment.file, 0, len(data), walker)):
                walk.process(walker)
                if number == taken:
                    walk.apply_runs(walker)
        walk.apply_runs(walker)
        assert ({one.id: one for one in walk.producers}, walk.aborted) == one_by_one(data)

    check()
