"""Compaction of runs of batches, compiled and interpreted. A property test compares it with single batches."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate, pairwise
from random import Random
from typing import Any

import pytest

from odradek.base.units import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.crc import crc32c
from odradek.record.end_transaction_marker import EndMarker, end_marker_batch
from odradek.record.record_batch import (
    CHECKSUMMED_FROM,
    CRC_POSITION,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    Batch,
    iter_batches,
)
from odradek.record.records import iter_records
from support.record_kernels import BUILDS, kernel

T0 = 1000
HIGHEST = 2**62
INT32_MAX = 2**31 - 1


def batch_of(offset: int, *keys: bytes, value: bytes | None = b"v", codec: Codec = Codec.NONE, **more: Any) -> bytes:
    records = [(key, value, (), T0 + number) for number, key in enumerate(keys)]
    return bytes(encode_batch(records, codec, base_offset=Offset(offset), leader_epoch=LeaderEpoch(0), **more))


def marker(offset: int) -> bytes:
    batch = end_marker_batch(EndMarker(True, 0), ProducerId(1), ProducerEpoch(0), TimestampMs(T0))
    batch.stamp(Offset(offset), LeaderEpoch(0))
    return bytes(batch.view)


def log_of(*batches: bytes) -> tuple[bytes, list[int]]:
    """Return the concatenated batches, and the position of each."""
    return b"".join(batches), [0, *accumulate(map(len, batches))]


def mangled(batch: bytes, at: int, data: bytes) -> bytes:
    return batch[:at] + data + batch[at + len(data) :]


def resealed(batch: bytes, at: int, data: bytes) -> bytes:
    """Return the batch with a replaced range of bytes, and with its length and checksum updated."""
    made = bytearray(mangled(batch, at, data))
    made[8:12] = (len(made) - LOG_OVERHEAD_BYTES).to_bytes(4)
    made[CRC_POSITION:CHECKSUMMED_FROM] = crc32c(made[CHECKSUMMED_FROM:]).to_bytes(4)
    return bytes(made)


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Runs:
    """Both kinds of runs over one chunk, with an offset map of the chunk's keys."""

    def __init__(self, build: str, data: bytes, *, first: int = 0, upper: int = HIGHEST, slots: int = 1000) -> None:
        module = kernel("compact_runs", build)
        self.data = data
        self.map = kernel("compact", build).OffsetMap(slots * 24)
        self.keys = module.KeyRuns(self.map, first, upper)
        self.keys.begin_chunk(data, HIGHEST)
        self.filter_runs = module.FilterRuns
        self.build = build

    def put(self, start: int = 0, next_offset: int = 0, room: int = 1000) -> int:
        return int(self.keys.run(start, next_offset, room))

    def filter(self, end: int = HIGHEST, special: Iterable[int] = ()) -> Any:
        runs = self.filter_runs(self.map, end, memoryview(array("q", special)))
        runs.begin_chunk(self.data, HIGHEST)
        return runs


def run(runs: Any, start: int = 0, *, now: int = 0, keeps_last: bool = False, bytes_max: int = 1 << 30) -> int:
    return int(runs.run(start, 0, now, keeps_last, bytes_max, HIGHEST))


def kept(runs: Any) -> list[tuple[int, bytes | None]]:
    return [
        (one.offset, one.key) for batch in iter_batches(runs.kept()) for one in iter_records(Batch.verified(batch.view))
    ]


SINGLES = {
    "compressed": batch_of(1, b"b", codec=Codec.LZ4),
    "transactional": batch_of(
        1, b"b", is_transactional=True, producer_id=ProducerId(1), producer_epoch=ProducerEpoch(0), base_sequence=0
    ),
    "a marker": marker(1),
    "without records": resealed(batch_of(1, b"b")[:HEADER_BYTES], 57, bytes(4)),
    "of format 1": mangled(batch_of(1, b"b"), 16, b"\1"),
    "damaged": mangled(batch_of(1, b"b"), 68, b"\xff"),
    "of an earlier offset": batch_of(0, b"b"),
    "beyond its segment": batch_of(HIGHEST, b"b"),
    "that ends before it begins": resealed(batch_of(1, b"b"), 23, b"\xff\xff\xff\xff"),
    "with one record more than it has": resealed(batch_of(1, b"b"), 57, bytes([0, 0, 0, 2])),
    "with too many records": resealed(batch_of(1, b"b"), 57, b"\x7f\xff\xff\xff"),
    "that is cut off": batch_of(1, b"b")[:-1],
    "whose size is less than a header": mangled(batch_of(1, b"b"), 8, bytes([0, 0, 0, 48])),
    "of which there is but a header": batch_of(1, b"b")[: HEADER_BYTES - 1],
}


@pytest.mark.parametrize("kind", SINGLES)
def test_run_ends_before_a_batch_that_needs_special_handling(build: str, kind: str) -> None:
    data, starts = log_of(batch_of(0, b"a"), SINGLES[kind])
    runs = Runs(build, data)
    assert (runs.put(), runs.keys.next_offset) == (starts[1], 1)
    assert runs.put(starts[1], 1) == 0
    found = runs.filter()
    assert (run(found), found.next_offset, kept(found)) == (starts[1], 1, [(0, b"a")])
    assert found.run(starts[1], 1, 0, False, 1 << 30, HIGHEST) == 0


@pytest.mark.parametrize("log_append_time", [False, True])
@pytest.mark.parametrize("producer", [-1, 7])
def test_all_plain_batches_form_one_run(build: str, producer: int, log_append_time: bool) -> None:
    """This includes batches of idempotent producers and batches with log append time."""
    batches = []
    for offset in range(0, 60, 3):
        numbers = {"producer_id": ProducerId(producer), "producer_epoch": ProducerEpoch(0), "base_sequence": offset}
        keys = [b"%d" % (offset % 9), b"all", b"only %d" % offset]
        batch = Batch.trusted(bytearray(batch_of(offset, *keys, **(numbers if producer >= 0 else {}))))
        if log_append_time:
            batch.stamp_log_append_time(TimestampMs(T0 + 500))
        batches.append(bytes(batch.view))
    data, _ = log_of(*batches)
    runs = Runs(build, data)
    assert (runs.put(), runs.keys.next_offset, len(runs.map)) == (len(data), 60, 24)
    found = runs.filter()
    assert (run(found), found.next_offset, found.base_offset, found.last_offset) == (len(data), 60, 0, 59)
    assert [offset for offset, key in kept(found) if key == b"all"] == [58]
    assert found.dropped == 60 - len(kept(found)) == 60 - 24
    for batch in iter_batches(found.kept()):
        latest = max(one.timestamp for one in iter_records(batch))
        assert batch.max_timestamp == (T0 + 500 if log_append_time else latest)
        assert (batch.producer_id, batch.next_offset - batch.base_offset) == (producer, 3)


def test_keys_below_the_first_offset_are_not_mapped(build: str) -> None:
    data, _ = log_of(batch_of(0, b"a", b"b"), batch_of(2, b"c", b"d"), batch_of(4, b"e"))
    runs = Runs(build, data, first=3)
    assert (runs.put(), runs.keys.next_offset) == (len(data), 5)
    assert [runs.map.get(key) for key in (b"a", b"b", b"c", b"d", b"e")] == [-1, -1, -1, 3, 4]


def test_run_ends_at_the_end_of_the_dirty_part(build: str) -> None:
    data, starts = log_of(batch_of(0, b"a"), batch_of(1, b"b"), batch_of(2, b"c"))
    runs = Runs(build, data, upper=2)
    assert (runs.put(), runs.keys.next_offset) == (starts[2], 2)


def test_run_ends_before_a_batch_whose_keys_do_not_fit(build: str) -> None:
    data, starts = log_of(batch_of(0, b"a", b"b"), batch_of(2, b"a", b"c", b"d"), batch_of(5, b"a"))
    runs = Runs(build, data)
    assert (runs.put(room=3), runs.keys.next_offset) == (starts[1], 2)
    assert runs.put(starts[1], 2, room=0) == 0


def test_records_beyond_the_map_are_retained(build: str) -> None:
    data, _ = log_of(batch_of(0, b"a"), batch_of(1, b"b"), batch_of(4, b"b", value=None), batch_of(5, b"b"))
    runs = Runs(build, data)
    runs.put()
    found = runs.filter(end=3)
    assert run(found) == len(data)
    assert (found.dropped, kept(found)) == (1, [(0, b"a"), (4, b"b"), (5, b"b")])


def test_run_ends_before_a_batch_retained_without_records(build: str) -> None:
    data, starts = log_of(batch_of(0, b"a"), batch_of(1, b"a"), batch_of(2, b"a"), batch_of(3, b"a"))
    runs = Runs(build, data)
    runs.put()
    assert run(runs.filter(special=[0, 1, 7])) == 0
    assert run(runs.filter(special=[-5, 1, 7])) == starts[1]
    assert run(runs.filter(special=[3])) == len(data), "a last batch of which all stays"
    runs = Runs(build, data[: starts[3]])
    runs.map.put(b"a", 10)
    assert run(runs.filter(end=3)) == starts[2], "where the map ends"
    assert run(runs.filter(), keeps_last=True) == starts[2], "the last of a group"
    assert run(runs.filter()) == starts[3]


def test_tombstone_is_removed_after_its_delete_horizon(build: str) -> None:
    tombstone, horizon = batch_of(1, b"b", value=None), T0 + 60
    stamped = resealed(mangled(tombstone, 27, horizon.to_bytes(8)), 21, bytes([0, 0x40]))
    data, starts = log_of(batch_of(0, b"a"), stamped, batch_of(2, b"c"))
    runs = Runs(build, data)
    runs.put()
    found = runs.filter()
    assert run(found, now=horizon - 1) == len(data)
    assert bytes(found.kept()) == data
    found = runs.filter()
    assert run(found, now=horizon) == len(data)
    assert (found.dropped, bytes(found.kept())) == (1, data[: starts[1]] + data[starts[2] :])
    runs = Runs(build, log_of(batch_of(0, b"a"), tombstone)[0])
    runs.put()
    assert run(runs.filter(), now=horizon) == starts[1], "it has to get a horizon first"


def test_run_ends_when_the_segment_is_full(build: str) -> None:
    data, starts = log_of(batch_of(0, b"a"), batch_of(1, b"b"), batch_of(INT32_MAX, b"c"))
    runs = Runs(build, data)
    runs.put()
    assert run(runs.filter(), bytes_max=starts[2] - 1) == starts[1]
    assert runs.filter().run(0, 0, 0, False, 1 << 30, INT32_MAX - 1) == starts[2]
    assert runs.filter().run(0, 0, 0, False, 1 << 30, INT32_MAX) == len(data)


def test_batches_are_retained_once(build: str) -> None:
    """A repeated call for the same batches returns no second copy of them."""
    data, starts = log_of(batch_of(0, b"a"), batch_of(1, b"b"))
    runs = Runs(build, data)
    runs.put()
    found = runs.filter()
    assert run(found) == len(data)
    assert (run(found), bytes(found.kept())) == (0, b"")
    assert run(found, -5) == run(found, len(data)) == run(found, len(data) + 100) == 0
    assert runs.put(-5) == runs.put(starts[2] + 100) == 0


def test_damaged_batches_are_not_part_of_a_run(build: str) -> None:
    random = Random(3)
    for _ in range(2000 if build == "compiled" else 200):
        data, starts = log_of(*[batch_of(offset, b"%d" % (offset % 3), b"x") for offset in range(0, 12, 2)])
        broken = bytearray(data)
        for _ in range(random.randrange(3)):
            broken[random.randrange(len(data))] = random.randrange(256)
        for start, end in pairwise(starts):
            if random.random() < 0.5:  # Damage that a checksum does not find.
                broken[start:end] = resealed(bytes(broken[start:end]), 0, b"")
        runs = Runs(build, bytes(broken))
        assert runs.put() in starts
        assert run(runs.filter(end=random.randrange(14)), now=random.randrange(2000)) in starts
