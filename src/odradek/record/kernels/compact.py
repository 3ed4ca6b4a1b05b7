"""The per-record loops of log compaction: the last offset of each key, and the retained records.

Like Kafka's SkimpyOffsetMap, the map uses 24 bytes for a key of any length. A digest collision would lose the last
record of a key. The digest is therefore SipHash-2-4 with 128 bits under a secret seed. Nobody can construct colliding
keys, as is possible with Kafka's MD5, and SipHash takes a fraction of the time.

│ u64 │ low half of the digest; 0: the slot is free │
│ u64 │ high half                                   │
│ u64 │ offset                                      │

Slots are probed linearly, and the entry further from its home slot comes first (Robin Hood hashing). The search for a
missing key therefore also ends early, within a few cache lines even if nine tenths of the slots are used.

The bytes of a record are drawn in records.py.
"""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from os import urandom
from struct import pack
from typing import TypeAlias

try:
    import cython
except ImportError:
    from odradek.record.kernels import _shim as cython

if not cython.compiled:
    from odradek.record.kernels._copy import copy_bytes, low64, prefetch, wrap64

Bytes: TypeAlias = bytes | bytearray | memoryview

COMPILED = bool(cython.compiled)

SLOT_BYTES = 24
SLOTS_MAX = (1 << 32) - 1  # A slot is chosen by 32 bits.
SEED_BYTES = 16
RECORD_BYTES_MIN = 7
# Maximum growth of a record: a delta of 10 bytes instead of 1, and a length of 5 bytes instead of 1.
RESTAMPED_BYTES_MAX = 13
# The initial constants of SipHash.
SIP_A = 0x736F_6D65_7073_6575
SIP_B = 0x646F_7261_6E64_6F6D
SIP_C = 0x6C79_6765_6E65_7261
SIP_D = 0x7465_6462_7974_6573
INT64_MAX = (1 << 63) - 1
INT64_MIN = -INT64_MAX - 1
# Number of records that are read, and whose slots are prefetched, before the first lookup. Memory access takes as long
# as all the other work. Without prefetching, the throughput in a map of 50 MiB is 0.7 times as high.
GROUP = 16

_ALL = -1
ALL = _ALL  # A name with a C type can't be imported.
BAD = -2


class BadRecords(ValueError):
    """Error for a batch with malformed records."""


class Reader:
    """Reader of records in groups, with the digests of their keys.

    A read beyond `end` sets `failed` and returns 0. The reads duplicate those of decode.Payload, because a function of
    another module is not inlined.
    """

    def __init__(self, data: Bytes, count: int, base_offset: int, base_timestamp: int) -> None:
        self.data = data if len(data) else bytes(1)  # Cython's views require an element to point at.
        self.begin_records(0, len(data), count, base_offset, base_timestamp)
        self.key_at = 0
        self.low = 0
        self.high = 0
        # Start, end and other values of each record of the group. C requires the literal number.
        self.starts = [0] * 16
        self.ends = [0] * 16
        self.offsets = [0] * 16
        self.timestamps = [0] * 16
        self.tombstones = [0] * 16
        self.lows = [0] * 16
        self.highs = [0] * 16

    def begin_records(self, start: int, limit: int, count: int, base_offset: int, base_timestamp: int) -> None:
        """Start reading the records in the bytes from `start` to limit - 1."""
        self.start = start
        self.limit = limit
        self.rewind()
        self.count = count
        self.index = 0
        self.base_offset = base_offset
        self.base_timestamp = base_timestamp

    def rewind(self) -> None:
        self.position = self.start
        self.end = self.limit
        self.failed = False

    def more(self, found: OffsetMap, start: int, stop: int) -> int:
        """Read the next group and return its size, 0 at the end, or BAD if a record is malformed.

        Records with a key and an offset from `start` to stop - 1 get a digest; the low half of the others is 0.
        """
        size = 0
        while size < GROUP and self.index < self.count:
            key_size = self.record(size)
            if key_size == BAD:
                return BAD
            self.lows[size] = 0
            if key_size >= 0 and start <= self.offsets[size] < stop:
                self.digest(self.key_at, key_size, found.seed_low, found.seed_high)
                self.lows[size] = self.low
                self.highs[size] = self.high
                prefetch(found.table, 3 * found.home(self.low))
            size += 1
            self.index += 1
        if self.index >= self.count and (self.position != self.limit or self.count < 0):
            return BAD
        return size

    def record(self, at: int) -> int:
        """Read one record into place `at` of the group and return its key size.

        Return -1 for a null key, or BAD for a malformed record.
        """
        self.starts[at] = self.position
        self.end = self.limit
        length = self.varint()
        if self.failed or length < 1 or length > self.limit - self.position:
            return BAD
        self.end = self.position + length
        self.ends[at] = self.end
        self.position += 1  # Attributes.
        self.timestamps[at] = wrap64(self.base_timestamp + self.varlong())
        self.offsets[at] = wrap64(self.base_offset + self.varint())
        key_size = self.skip()
        self.key_at = self.position - max(key_size, 0)
        self.tombstones[at] = self.skip() < 0
        headers = self.varint()
        if headers < 0:
            return BAD
        for _ in range(headers):
            if self.skip() < 0:
                return BAD
            self.skip()
        return BAD if self.failed or self.position != self.end else key_size

    def skip(self) -> int:
        """Skip nullable bytes and return their size, or -1 if they are null or truncated."""
        size = self.varint()
        if size > self.end - self.position:
            self.failed = True
            return -1
        if size < 0:
            return -1
        self.position += size
        return size

    def varint(self) -> int:
        """Read a varint of up to 5 bytes; bits beyond the 32nd are dropped."""
        if self.position < self.end and self.data[self.position] < 0x80:  # Nearly all varints are one byte.
            raw = self.data[self.position]
            self.position += 1
        else:
            raw = self.digits(28, 0x0F)
        return (raw >> 1) ^ -(raw & 1)

    def varlong(self) -> int:
        """Read a varlong of up to 10 bytes."""
        raw = self.digits(63, 0x01)
        return (raw >> 1) ^ -(raw & 1)

    def digits(self, shift_max: int, last_mask: int) -> int:
        """Read seven bits per byte, lowest first, masking the byte at `shift_max` with `last_mask`."""
        value = 0
        shift = 0
        while shift <= shift_max and self.position < self.end:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & (last_mask if shift == shift_max else 0x7F)) << shift
            if byte < 0x80:
                return value
            shift += 7
        self.failed = True
        return 0

    def digest(self, start: int, size: int, seed_low: int, seed_high: int) -> None:
        """Set `low` and `high` to the halves of the SipHash-2-4 of `size` bytes; replace 0 in `low` by 1."""
        a = seed_low ^ SIP_A
        b = seed_high ^ SIP_B ^ 0xEE
        c = seed_low ^ SIP_C
        d = seed_high ^ SIP_D
        words = size >> 3
        for step in range(words + 3):
            block = 0
            rounds = 2
            if step < words:
                block = self.word(start + 8 * step, 8)
            elif step == words:
                block = self.word(start + 8 * step, size & 7) | low64(size << 56)
            else:
                rounds = 4
                if step == words + 1:
                    c ^= 0xEE
                else:
                    self.low = a ^ b ^ c ^ d
                    b ^= 0xDD
            d ^= block
            for _ in range(rounds):
                a = low64(a + b)
                c = low64(c + d)
                b = low64(b << 13) | (b >> 51)
                d = low64(d << 16) | (d >> 48)
                b ^= a
                d ^= c
                a = low64(a << 32) | (a >> 32)
                c = low64(c + b)
                a = low64(a + d)
                b = low64(b << 17) | (b >> 47)
                d = low64(d << 21) | (d >> 43)
                b ^= c
                d ^= a
                c = low64(c << 32) | (c >> 32)
            a ^= block
        self.high = a ^ b ^ c ^ d
        if self.low == 0:  # 0 marks a free slot.
            self.low = 1

    def word(self, at: int, size: int) -> int:
        """Return a little-endian number of `size` bytes."""
        value = 0
        for index in range(size):
            byte = self.data[at + index]
            value |= byte << (8 * index)
        return value


class OffsetMap:
    """A map from each key to its last offset; offsets must be put in ascending order.

    `seed` is SEED_BYTES of unguessable bytes, new for each use of the map. Without it, the map generates a seed.
    """

    def __init__(self, memory: int, seed: bytes | None = None) -> None:
        self.slots = min(memory // SLOT_BYTES, SLOTS_MAX)
        if self.slots < 1:
            raise ValueError(f"Invalid offset map size of {memory} bytes: must be at least {SLOT_BYTES} bytes.")
        # The operating system zeroes the pages on first access. A bytearray would write all zeros at once while holding
        # the interpreter lock: 40 ms for 100 MB.
        self.table = memoryview(mmap(-1, self.slots * SLOT_BYTES, MAP_PRIVATE | MAP_ANONYMOUS)).cast("Q")
        self.used = 0
        self.clear(seed)

    def clear(self, seed: bytes | None = None) -> None:
        """Remove all keys and set the seed."""
        if seed is None:
            seed = urandom(SEED_BYTES)
        if len(seed) != SEED_BYTES:
            raise ValueError(f"Invalid offset map seed of {len(seed)} bytes: must be {SEED_BYTES} bytes.")
        self.seed_low = int.from_bytes(seed[:8], "little")
        self.seed_high = int.from_bytes(seed[8:], "little")
        self.latest = -1
        if self.used > 0:
            with cython.nogil:
                self.wipe()
        self.used = 0

    def wipe(self) -> None:
        for at in range(3 * self.slots):
            self.table[at] = 0

    def __len__(self) -> int:
        return self.used

    def room(self, load_factor: float) -> int:
        """Return how many more keys fit at this load factor."""
        return max(int(self.slots * load_factor) - self.used, 0)

    def put(self, key: Bytes, offset: int) -> None:
        """Put one key; raise ValueError if there is no free slot."""
        if offset < 0:
            raise ValueError(f"Invalid offset {offset}: must not be negative.")
        reader = Reader(key, 0, 0, 0)
        reader.digest(0, reader.limit, self.seed_low, self.seed_high)
        if not self.put_key(reader.low, reader.high, offset, self.slots):
            raise ValueError(f"The offset map is full: all {self.slots} slots are used.")

    def get(self, key: Bytes) -> int:
        """Return the last offset of a key, or -1 if it is not in the map."""
        reader = Reader(key, 0, 0, 0)
        reader.digest(0, reader.limit, self.seed_low, self.seed_high)
        return self.newest(reader.low, reader.high)

    def put_records(self, records: Bytes, count: int, base_offset: int, start_offset: int, room: int) -> int:
        """Put the records of one batch that have a key and an offset from start_offset on.

        At most `room` new keys are added. Return ALL if all keys are in the map; otherwise the offset of the first
        record that is not, and no record after it is. Raise BadRecords; some of the records may already be in the map
        then.

        Compiled, this method and Filter.run release the interpreter lock.
        """
        reader = Reader(records, count, base_offset, 0)
        limit = min(self.used + max(room, 0), self.slots)
        first = max(start_offset, 0)
        with cython.nogil:
            stopped = self.put_all(reader, first, limit)
        if stopped == BAD:
            raise malformed(reader.index, count)
        return stopped

    def put_all(self, reader: Reader, start: int, limit: int) -> int:
        size = reader.more(self, start, INT64_MAX)
        while size > 0:
            for at in range(size):
                if reader.lows[at] != 0 and not self.put_key(
                    reader.lows[at], reader.highs[at], reader.offsets[at], limit
                ):
                    return reader.offsets[at]
            size = reader.more(self, start, INT64_MAX)
        return _ALL if size == 0 else BAD

    def put_key(self, low: int, high: int, offset: int, limit: int) -> bool:
        """Put one key; return False if it is new and there are already `limit` keys."""
        at = self.locate(low, high)
        if at >= 0:
            self.table[3 * at + 2] = offset
        elif self.used < limit:
            self.insert(-1 - at, low, high, offset)
        else:
            return False
        self.latest = max(self.latest, offset)
        return True

    def newest(self, low: int, high: int) -> int:
        """Return the last offset of a digest, or -1 if it is not in the map."""
        at = self.locate(low, high)
        return wrap64(self.table[3 * at + 2]) if at >= 0 else -1

    def home(self, low: int) -> int:
        """Return the slot where the search for a digest starts.

        It is the highest bits of the digest, scaled to the number of slots.
        """
        return ((low >> 32) * self.slots) >> 32

    def locate(self, low: int, high: int) -> int:
        """Return the slot of a digest, or -1 - the slot where it belongs if it is not in the map."""
        at = self.home(low)
        for steps in range(self.slots):
            found = self.table[3 * at]
            if found == low and self.table[3 * at + 1] == high:
                return at
            if found == 0 or self.steps_from_home(found, at) < steps:
                break
            at = at + 1 if at + 1 < self.slots else 0
        return -1 - at

    def steps_from_home(self, low: int, at: int) -> int:
        steps = at - self.home(low)
        return steps if steps >= 0 else steps + self.slots

    def insert(self, at: int, low: int, high: int, offset: int) -> None:
        """Insert a new key at its slot and shift the following entries up to the next free slot by one.

        A free slot must exist.
        """
        while low != 0:
            self.table[3 * at], low = low, self.table[3 * at]
            self.table[3 * at + 1], high = high, self.table[3 * at + 1]
            self.table[3 * at + 2], offset = offset, self.table[3 * at + 2]
            at = at + 1 if at + 1 < self.slots else 0
        self.used += 1


class Filter:
    """Selection of the records of a batch that stay when its log is cleaned.

    The attributes describe the last batch. max_timestamp, the offset of its first record, and last_offset are those of
    the retained records; -1 if there are none. dropped_bytes counts uncompressed bytes.
    """

    def __init__(self, offsets: OffsetMap) -> None:
        self.offsets = offsets
        self.new_base = 0
        self.stays = memoryview(bytearray(1))
        self.target = memoryview(bytearray(1))
        self.at = 0
        self.reset()

    def reset(self) -> None:
        self.kept = 0
        self.kept_bytes = 0
        self.dropped = 0
        self.dropped_bytes = 0
        self.has_tombstones = False
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.last_offset = -1

    def run(  # noqa: PLR0917
        self,
        records: Bytes,
        count: int,
        base_offset: int,
        base_timestamp: int,
        upto: int,
        keep_tombstones: bool,
        new_base_timestamp: int | None = None,
        head: int = 0,
    ) -> bytearray | None:
        """Return the retained records after `head` free bytes, or None if all stay unchanged.

        Records from offset `upto` on, which the map does not cover, stay. Other records are removed if they have no
        key, have a newer record of their key in the map, or have no value and keep_tombstones is false. With a new base
        timestamp, the deltas are rewritten so that each record keeps its time. Raise BadRecords.
        """
        reader = Reader(records, count, base_offset, base_timestamp)
        if count > reader.limit // RECORD_BYTES_MIN:
            raise malformed(0, count)
        self.reset()
        self.stays = memoryview(bytearray(max(count, 1)))
        with cython.nogil:
            bad = self.decide_all(reader, upto, keep_tombstones)
        if bad < 0:
            raise malformed(reader.index, count)
        self.new_base = base_timestamp if new_base_timestamp is None else new_base_timestamp
        is_restamped = self.new_base != base_timestamp
        return self.written(reader, head, is_restamped) if self.dropped > 0 or is_restamped else None

    def written(self, reader: Reader, head: int, is_restamped: bool) -> bytearray:
        batch = bytearray(head + self.kept_bytes + (RESTAMPED_BYTES_MAX * self.kept if is_restamped else 0))
        if self.kept > 0:
            self.target = memoryview(batch)
            self.at = head
            with cython.nogil:
                self.write_all(reader, is_restamped)
            self.target = memoryview(bytearray(1))  # A batch with a view could not be resized.
            del batch[self.at :]
        return batch

    def decide_all(self, reader: Reader, upto: int, keep_tombstones: bool) -> int:
        """Return 0, or BAD if a record is malformed."""
        index = 0
        size = reader.more(self.offsets, INT64_MIN, upto)
        while size > 0:
            for at in range(size):
                if reader.lows[at] == 0:  # Without a key, or not covered.
                    stays = reader.offsets[at] >= upto
                elif reader.tombstones[at] and not keep_tombstones:
                    stays = False
                else:
                    stays = self.offsets.newest(reader.lows[at], reader.highs[at]) <= reader.offsets[at]
                self.stays[index] = stays
                index += 1
                if stays:
                    self.keep(reader, at)
                else:
                    self.dropped += 1
                    self.dropped_bytes += reader.ends[at] - reader.starts[at]
            size = reader.more(self.offsets, INT64_MIN, upto)
        return size

    def keep(self, reader: Reader, at: int) -> None:
        if self.kept == 0 or reader.timestamps[at] > self.max_timestamp:
            self.max_timestamp = reader.timestamps[at]
            self.max_timestamp_offset = reader.offsets[at]
        if reader.tombstones[at]:
            self.has_tombstones = True
        self.last_offset = max(self.last_offset, reader.offsets[at])
        self.kept += 1
        self.kept_bytes += reader.ends[at] - reader.starts[at]

    def write_all(self, reader: Reader, is_restamped: bool) -> None:
        """Read the validated records a second time and write the retained ones."""
        reader.rewind()
        for index in range(reader.count):
            start = reader.position
            length = reader.varint()
            end = reader.position + length
            if self.stays[index] and is_restamped:
                self.write_restamped(reader, end)
            elif self.stays[index]:
                copy_bytes(self.target, self.at, reader.data, start, end - start)
                self.at += end - start
            reader.position = end

    def write_restamped(self, reader: Reader, end: int) -> None:
        attributes = reader.data[reader.position]
        reader.position += 1
        delta = wrap64(wrap64(reader.base_timestamp + reader.varlong()) - self.new_base)
        rest = end - reader.position
        self.write_varint(1 + varint_bytes(delta) + rest)
        self.target[self.at] = attributes
        self.at += 1
        self.write_varint(delta)
        copy_bytes(self.target, self.at, reader.data, reader.position, rest)
        self.at += rest

    def write_varint(self, value: int) -> None:
        rest = (value << 1) ^ (value >> 63)
        while rest > 0x7F:
            self.target[self.at] = (rest & 0x7F) | 0x80
            self.at += 1
            rest >>= 7
        self.target[self.at] = rest
        self.at += 1


def varint_bytes(value: int) -> int:
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


def malformed(index: int, count: int) -> BadRecords:
    if index == count:
        return BadRecords(f"unexpected bytes after the last of {count} records")
    return BadRecords(f"record {index} of {count} is malformed")


def digest(data: Bytes, seed: bytes) -> bytes:
    """Return the 16-byte digest of a key in a map with this seed."""
    reader = Reader(data, 0, 0, 0)
    reader.digest(0, reader.limit, int.from_bytes(seed[:8], "little"), int.from_bytes(seed[8:], "little"))
    return pack("<QQ", reader.low, reader.high)
