"""The compaction kernel, compiled and interpreted: the digest, the offset map, and the retained records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from os import sysconf
from pathlib import Path
from threading import Event, Thread
from types import ModuleType
from typing import Any

import pytest

from odradek.base.errors import Refused
from odradek.base.units import Offset, TimestampMs
from odradek.record.builder import encode_batch, encode_record, seal_batch
from odradek.record.record_batch import HEADER_BYTES, Batch
from odradek.record.records import Record, decode
from support.record_kernels import BUILDS, kernel

SEED = bytes(range(16))
SLOT_BYTES = 24

# By the length of the message 00 01 02 ...; from the 64 vectors that its authors publish (vectors_sip128).
SIPHASH_128 = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    63: "5150d1772f50834a503e069a973fbd7c",
}


@pytest.fixture(params=BUILDS)
def compact(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    yield kernel("compact", request.param)


@pytest.mark.parametrize("size", SIPHASH_128)
def test_digest_is_siphash_128(compact: ModuleType, size: int) -> None:
    assert compact.digest(bytes(range(size)), SEED).hex() == SIPHASH_128[size]


def test_digest_depends_on_the_seed(compact: ModuleType) -> None:
    assert len({compact.digest(b"key", bytes([seed]) * 16) for seed in range(50)}) == 50


# ---------------------------------------------------------------- the map


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * sysconf("SC_PAGE_SIZE")


def test_unused_map_occupies_no_memory(compact: ModuleType) -> None:
    """Zeroing a map of 100 MB up front took 40 ms, during which no other thread could run."""
    before = resident_bytes()
    offsets = compact.OffsetMap(256 << 20, SEED)
    assert resident_bytes() - before < 64 << 20
    offsets.put(b"a", 1)
    assert offsets.get(b"a") == 1


def test_map_returns_the_last_offset_of_a_key(compact: ModuleType) -> None:
    offsets = compact.OffsetMap(10 * SLOT_BYTES, SEED)
    assert (len(offsets), offsets.slots, offsets.latest, offsets.get(b"a")) == (0, 10, -1, -1)
    for offset, key in enumerate([b"a", b"b", b"", b"a"]):
        offsets.put(key, offset)
    assert [offsets.get(key) for key in (b"a", b"b", b"", b"c")] == [3, 1, 2, -1]
    assert (len(offsets), offsets.latest) == (3, 3)
    offsets.put(b"a", 2)
    assert (offsets.get(b"a"), offsets.latest) == (2, 3)


def test_offsets_have_63_bits(compact: ModuleType) -> None:
    offsets = compact.OffsetMap(SLOT_BYTES, SEED)
    offsets.put(b"a", 2**63 - 1)
    assert offsets.get(b"a") == offsets.latest == 2**63 - 1
    with pytest.raises(ValueError, match="Invalid offset -1"):
        offsets.put(b"a", -1)


@pytest.mark.parametrize("slots", [1, 2, 7, 500])
def test_all_slots_of_the_map_can_be_used(compact: ModuleType, slots: int) -> None:
    """In a full map, the search for a present or absent key still ends."""
    offsets = compact.OffsetMap(slots * SLOT_BYTES + SLOT_BYTES - 1, SEED)
    keys = [b"key %d" % number for number in range(slots)]
    for offset, key in enumerate(keys):
        offsets.put(key, offset)
    assert (len(offsets), offsets.room(1.0)) == (slots, 0)
    with pytest.raises(ValueError, match="The offset map is full"):
        offsets.put(b"one more", 1000)
    offsets.put(keys[0], 1001)
    assert [offsets.get(key) for key in keys] == [1001, *range(1, slots)]
    assert [offsets.get(b"absent %d" % number) for number in range(50)] == [-1] * 50
    assert offsets.latest == 1001


def test_map_at_its_load_factor_finds_all_keys(compact: ModuleType) -> None:
    offsets = compact.OffsetMap(2000 * SLOT_BYTES, SEED)
    assert offsets.room(0.9) == 1800
    for offset in range(1800):
        offsets.put(b"%d" % offset, offset)
        if offset % 600 == 0:
            assert [offsets.get(b"%d" % each) for each in range(offset + 1)] == list(range(offset + 1))
    assert (offsets.room(0.9), offsets.room(0.5), offsets.room(1.0)) == (0, 0, 200)
    assert [offsets.get(b"%d" % each) for each in range(1900)] == [*range(1800), *[-1] * 100]


def test_cleared_map_is_empty(compact: ModuleType) -> None:
    offsets = compact.OffsetMap(50 * SLOT_BYTES, SEED)
    for seed in (bytes(16), SEED):
        for offset in range(50):
            offsets.put(b"%d" % offset, offset)
        offsets.clear(seed)
        assert (len(offsets), offsets.latest, offsets.room(1.0)) == (0, -1, 50)
        assert {offsets.get(b"%d" % offset) for offset in range(50)} == {-1}


def test_map_without_a_seed_generates_one(compact: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(compact, "urandom", lambda size: taken.append(size) or SEED)
    offsets = compact.OffsetMap(SLOT_BYTES)
    offsets.clear()
    assert taken == [16, 16]


def test_invalid_map_and_seed_sizes_are_refused(compact: ModuleType) -> None:
    assert (SLOT_BYTES, len(SEED)) == (compact.SLOT_BYTES, compact.SEED_BYTES)
    with pytest.raises(ValueError, match="Invalid offset map size of 23 bytes"):
        compact.OffsetMap(23, SEED)
    with pytest.raises(ValueError, match="seed of 15 bytes: must be 16 bytes"):
        compact.OffsetMap(SLOT_BYTES, SEED[1:])


# ---------------------------------------------------------------- records into the map


def batch_of(*keys: bytes | None, base: int = 100, value: bytes | None = b"value") -> Batch:
    rows = [(key, value, (), 1000 + index) for index, key in enumerate(keys)]
    return Batch.verified(encode_batch(rows, base_offset=Offset(base)))


def put(offsets: Any, batch: Batch, start: int = 0, room: int = 1000) -> int:
    stopped: int = offsets.put_records(batch.payload, batch.records_count, batch.base_offset, start, room)
    return stopped


def test_records_without_a_key_are_not_mapped(compact: ModuleType) -> None:
    offsets = compact.OffsetMap(10 * SLOT_BYTES, SEED)
    assert put(offsets, batch_of(b"a", None, b"b", b"a", None)) == compact.ALL == -1
    assert [offsets.get(key) for key in (b"a", b"b", b"")] == [103, 102, -1]
    assert (len(offsets), offsets.latest) == (2, 103)


def test_records_before_the_start_offset_are_not_mapped(compact: ModuleType) -> None:
    offsets = compact.OffsetMap(10 * SLOT_BYTES, SEED)
    assert put(offsets, batch_of(b"a", b"b", b"c"), start=101) == compact.ALL
    assert [offsets.get(key) for key in (b"a", b"b", b"c")] == [-1, 101, 102]


def test_records_at_negative_offsets_are_not_mapped(compact: ModuleType) -> None:
    offsets = compact.OffsetMap(10 * SLOT_BYTES, SEED)
    assert offsets.put_records(batch_of(b"a", b"b", b"c", base=0).payload, 3, -2, -5, 10) == compact.ALL
    assert (len(offsets), offsets.get(b"c"), offsets.latest) == (1, 0, 0)


@pytest.mark.parametrize("room", range(6))
def test_mapping_stops_at_the_first_new_key_without_room(compact: ModuleType, room: int) -> None:
    """The map covers all records before that; known keys need no room."""
    keys = [b"a", None, b"a", b"b", b"a", b"b", b"c", b"a", b"d", b"e"]
    offsets = compact.OffsetMap(100 * SLOT_BYTES, SEED)
    stopped = put(offsets, batch_of(*keys), room=room)
    assert stopped == {0: 100, 1: 103, 2: 106, 3: 108, 4: 109, 5: compact.ALL}[room]
    covered = keys if stopped == compact.ALL else keys[: stopped - 100]
    last = {key: 100 + index for index, key in enumerate(covered) if key is not None}
    assert {key: offsets.get(key) for key in set(keys) - {None} if offsets.get(key) >= 0} == last
    assert (len(offsets), offsets.latest) == (room, max(last.values(), default=-1))


def test_mapping_stops_when_all_slots_are_used(compact: ModuleType) -> None:
    offsets = compact.OffsetMap(40 * SLOT_BYTES, SEED)
    assert put(offsets, batch_of(*(b"%d" % each for each in range(30)))) == compact.ALL
    assert put(offsets, batch_of(*(b"%d" % each for each in range(20, 60)), base=130)) == 150
    assert (len(offsets), offsets.latest) == (40, 149)


# ---------------------------------------------------------------- which records stay


def filtered(found: Any, batch: Batch, upto: int = 1000, keep: bool = True, base: int | None = None) -> list[Record]:
    """Run the filter, and return the retained records as a reader decodes them."""
    args = (batch.payload, batch.records_count, batch.base_offset, batch.base_timestamp, upto, keep, base)
    data = found.run(*args, HEADER_BYTES)
    if data is None:
        assert (found.kept, found.dropped, found.dropped_bytes) == (batch.records_count, 0, 0)
        return decode(batch)
    sealed = seal_batch(
        data,
        count=found.kept,
        base_timestamp=batch.base_timestamp if base is None else TimestampMs(base),
        max_timestamp=TimestampMs(found.max_timestamp),
        base_offset=batch.base_offset,
    )
    return decode(Batch.trusted(sealed))


def offsets_of(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


def test_only_the_last_record_of_a_key_is_retained(compact: ModuleType) -> None:
    offsets = compact.OffsetMap(100 * SLOT_BYTES, SEED)
    batch = batch_of(b"a", b"b", None, b"a", b"", b"c", b"")
    put(offsets, batch)
    put(offsets, batch_of(b"c", base=107))
    found = compact.Filter(offsets)
    assert offsets_of(filtered(found, batch)) == [101, 103, 106]
    assert (found.kept, found.dropped, found.dropped_bytes) == (3, 4, 13 + 12 + 12 + 13)
    assert (found.last_offset, found.max_timestamp, found.max_timestamp_offset) == (106, 1006, 106)


def test_records_outside_the_map_are_retained(compact: ModuleType) -> None:
    """All records beyond the map's end stay; below it, the last record of each key stays."""
    offsets = compact.OffsetMap(100 * SLOT_BYTES, SEED)
    put(offsets, batch_of(b"a", b"a", base=150))
    found = compact.Filter(offsets)
    batch = batch_of(b"a", b"b", None, b"a", None)
    assert offsets_of(filtered(found, batch, upto=103)) == [101, 103, 104]
    assert offsets_of(filtered(found, batch, upto=0)) == [100, 101, 102, 103, 104]


def test_tombstones_are_removed_only_if_requested(compact: ModuleType) -> None:
    offsets = compact.OffsetMap(100 * SLOT_BYTES, SEED)
    batch = Batch.verified(encode_batch([(b"a", b"1", (), 5), (b"a", None, (), 6), (b"b", b"", (), 7)]))
    put(offsets, batch)
    found = compact.Filter(offsets)
    assert offsets_of(filtered(found, batch)) == [1, 2] and found.has_tombstones
    assert offsets_of(filtered(found, batch, keep=False)) == [2] and not found.has_tombstones
    assert offsets_of(filtered(found, batch, keep=False, upto=1)) == [1, 2] and found.has_tombstones


def test_filter_copies_nothing_if_all_records_are_retained(compact: ModuleType) -> None:
    offsets = compact.OffsetMap(100 * SLOT_BYTES, SEED)
    batch = batch_of(b"a", b"b", b"c")
    put(offsets, batch)
    found = compact.Filter(offsets)
    arguments = (batch.payload, 3, batch.base_offset, batch.base_timestamp, 1000, False)
    assert found.run(*arguments) is found.run(*arguments, batch.base_timestamp) is None
    assert (found.kept, found.dropped, found.max_timestamp, found.last_offset) == (3, 0, 1002, 102)


def test_filter_may_remove_all_records(compact: ModuleType) -> None:
    found = compact.Filter(compact.OffsetMap(SLOT_BYTES, SEED))
    assert found.run(batch_of(None, None).payload, 2, 0, 0, 10, True, 5, 7) == bytearray(7)
    assert (found.kept, found.dropped, found.has_tombstones) == (0, 2, False)
    assert (found.max_timestamp, found.max_timestamp_offset, found.last_offset) == (-1, -1, -1)
    assert found.run(b"", 0, 0, 0, 10, True) is None
    assert (found.kept, found.dropped) == (0, 0)


def test_max_timestamp_offset_is_the_first_with_that_timestamp(compact: ModuleType) -> None:
    rows = [(None, b"", (), time) for time in (-9, -3, -3, -7)]
    found = compact.Filter(compact.OffsetMap(SLOT_BYTES, SEED))
    filtered(found, Batch.verified(encode_batch(rows)), upto=0)
    assert (found.max_timestamp, found.max_timestamp_offset, found.last_offset) == (-3, 1, 3)


@pytest.mark.parametrize("base", [0, 1000, 1063, -(2**40), 2**63 - 1, -(2**63)])
def test_record_timestamps_do_not_depend_on_the_base_timestamp(compact: ModuleType, base: int) -> None:
    """Deltas take 1 to 10 bytes, so the length field of a record may grow from one byte to two, or shrink."""
    rows = [(b"%d" % n, b"v" * (52 + n), [("h", None)], 1000 + 40 * n - 7 * n * n) for n in range(12)]
    batch = Batch.verified(encode_batch([*rows, (b"0", b"", (), 3)], base_offset=Offset(20)))
    offsets = compact.OffsetMap(100 * SLOT_BYTES, SEED)
    put(offsets, batch)
    assert filtered(compact.Filter(offsets), batch, base=base) == decode(batch)[1:]


def test_returned_buffer_can_be_resized(compact: ModuleType) -> None:
    found = compact.Filter(compact.OffsetMap(SLOT_BYTES, SEED))
    data = found.run(batch_of(None, b"a").payload, 2, 0, 0, 10, True, 5)
    data += b"more"
    assert data.endswith(b"more")


def test_record_attributes_are_retained(compact: ModuleType) -> None:
    """The attributes are unused so far."""
    payload = bytearray(batch_of(b"a", None).payload)
    payload[1] = 0x55
    found = compact.Filter(compact.OffsetMap(SLOT_BYTES, SEED))
    assert found.run(payload, 2, 0, 0, 10, True)[1] == found.run(payload, 2, 0, 0, 10, True, 5)[1] == 0x55


# ---------------------------------------------------------------- malformed records


def around(payload: bytes, count: int = 1) -> Batch:
    times = {"base_timestamp": TimestampMs(50), "max_timestamp": TimestampMs(0)}
    return Batch.trusted(seal_batch(bytearray(HEADER_BYTES) + payload, count=count, **times))


@pytest.mark.parametrize("base", [None, 7])
def test_overlong_varints_are_accepted(compact: ModuleType, base: int | None) -> None:
    """Bits beyond the 32nd, or beyond the 64th of a timestamp, are dropped."""
    delta = bytes([0x82, *[0x80] * 8, 0x7E])
    body = b"\x00" + delta + b"\x86\x80\x80\x80\x70" + b"\x82\x80\x80\x80\x10k" + b"\x81\x80\x00" + b"\x80\x00"
    record = bytes([0x80 | 2 * len(body), 0x80, 0x80, 0x80, 0x50]) + body
    batch = around(record)
    assert decode(batch) == [Record(Offset(3), TimestampMs(51), b"k", None, ())]
    offsets = compact.OffsetMap(SLOT_BYTES, SEED)
    assert put(offsets, batch) == compact.ALL
    assert offsets.get(b"k") == 3
    assert filtered(compact.Filter(offsets), batch, base=base) == decode(batch)


@pytest.mark.parametrize("tail", [b"\x01", b"\x02\x01\x01", b"\x04\x00\x01\x01\x01"], ids=["-1", "null", "second"])
def test_invalid_headers_are_refused(compact: ModuleType, tail: bytes) -> None:
    body = b"\x00\x00\x00\x01\x01" + tail
    record = bytes([2 * len(body)]) + body
    with pytest.raises(Refused):
        decode(around(record))
    with pytest.raises(compact.BadRecords):
        compact.Filter(compact.OffsetMap(SLOT_BYTES, SEED)).run(record, 1, 0, 0, 10, True)


@pytest.mark.parametrize(
    ("count", "message"),
    [(4, "record 3 of 4"), (2, "after the last of 2"), (0, "after the last of 0"), (-1, "record 0 of -1")],
)
def test_wrong_record_count_is_refused(compact: ModuleType, count: int, message: str) -> None:
    payload = batch_of(b"a", b"b", b"c").payload
    offsets = compact.OffsetMap(100 * SLOT_BYTES, SEED)
    with pytest.raises(compact.BadRecords, match=message):
        offsets.put_records(payload, count, 0, 0, 100)
    with pytest.raises(compact.BadRecords, match=message):
        compact.Filter(offsets).run(payload, count, 0, 0, 100, True)


def test_impossible_record_count_allocates_no_memory(compact: ModuleType) -> None:
    offsets = compact.OffsetMap(100 * SLOT_BYTES, SEED)
    payload = batch_of(b"a").payload
    with pytest.raises(compact.BadRecords):
        compact.Filter(offsets).run(payload, 2**62, 0, 0, 100, True)
    with pytest.raises(compact.BadRecords):
        offsets.put_records(payload, 2**62, 0, 0, 100)


def test_truncated_record_is_refused(compact: ModuleType) -> None:
    rows = [(b"key", b"value", [("name", b"x"), ("n", None)], 1000)]
    payload = bytes(Batch.verified(encode_batch(rows)).payload)
    offsets = compact.OffsetMap(100 * SLOT_BYTES, SEED)
    for size in range(len(payload)):
        for cut in (payload[:size], bytes([2 * max(size - 1, 0)]) + payload[1:size]):  # Also with a fitting length.
            with pytest.raises(compact.BadRecords):
                offsets.put_records(cut, 1, 0, 0, 100)
            with pytest.raises(compact.BadRecords):
                compact.Filter(offsets).run(cut, 1, 0, 0, 100, True)
    assert len(offsets) == 0


# ---------------------------------------------------------------- beside other threads


@pytest.fixture
def no_switches() -> Iterator[None]:
    """Disable thread switches: only a thread that waits releases the interpreter lock."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("no_switches")
@pytest.mark.parametrize("step", ["put_records", "run", "restamp"])
def test_kernel_releases_the_interpreter_lock(step: str) -> None:
    compact = kernel("compact", "compiled")
    record = bytearray()
    encode_record(record, 0, 0, b"a key", None)
    count = 1_000_000
    payload = bytes(record) * count
    offsets = compact.OffsetMap(SLOT_BYTES, SEED)
    steps = {
        "put_records": lambda: offsets.put_records(payload, count, 0, 0, 1),
        "run": lambda: compact.Filter(offsets).run(payload, count, 0, 0, 1, True),
        "restamp": lambda: compact.Filter(offsets).run(payload, count, 0, 0, 0, True, 2**62),
    }

    def is_seen_at_work() -> bool:
        begun, is_over = Event(), []

        def work() -> None:
            begun.set()
            steps[step]()
            is_over.append(True)

        thread = Thread(target=work)
        thread.start()
        begun.wait()
        seen = not is_over
        thread.join()
        return seen

    assert any(is_seen_at_work() for _ in range(20))  # On a busy machine it may be over before we have our turn.
