"""Offset and time index of a segment: fixed-size entries, ascending, no header.

.index, one entry per index.interval.bytes           .timeindex
│ i32 │ last offset of a batch − base offset │       │ i64 │ greatest timestamp so far               │
│ i32 │ byte position of that batch          │       │ i32 │ last offset of its batch − base offset  │

Both are caches that can be rebuilt from the .log file.  An index holds no open file and little memory, whatever its
size.  The newest entries wait in memory, so that one write takes many.  A search reads a dozen entries and one block of
the file; a few blocks stay in memory.  (Kafka maps the files.  For 2,000 partitions of full segments, arrays in memory
would take 10 GB, and there would be one mapping per file.)  A crash loses the waiting entries, but recovery rescans the
active segment anyway.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from operator import itemgetter
from struct import Struct

from odradek.base.units import NO_TIMESTAMP, Offset, TimestampMs
from odradek.log.files.disk import Disk, DiskFailed
from odradek.log.files.page_cache import CachedFile, ReadableFile

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
BLOCK_ENTRIES = 512  # A page or two: opening the file costs more than reading them.
BLOCKS_MAX = 8  # Serves as many readers at different places.
PENDING_ENTRIES_MAX = 128

Entry = tuple[int, int]
KEYS = (itemgetter(0), itemgetter(1))


class Block:
    """Run of entries as stored in the file; a search unpacks only the entries it compares."""

    def __init__(self, layout: Struct, start: int, data: bytes) -> None:
        self._layout = layout
        self._data = data
        self._count = len(data) // layout.size
        self.start = start  # Number of the first entry.
        self.first: Entry = self.entry(start) if self._count else (0, 0)
        self.last: Entry = self.entry(start + self._count - 1) if self._count else (0, 0)

    def has(self, number: int) -> bool:
        return 0 <= number - self.start < self._count

    def entry(self, number: int) -> Entry:
        assert self.has(number), "a block returns its own entries only"
        first, second = self._layout.unpack_from(self._data, (number - self.start) * self._layout.size)
        return first, second

    def spans(self, value: int, column: int) -> bool:
        """Return whether the value's place is before the last entry and not before the first."""
        return self._count > 0 and self.first[column] <= value < self.last[column]

    def count_at_or_below(self, value: int, column: int) -> int:
        """Return the number of entries of the file up to the last one in this block with at most `value`."""
        numbers = range(self.start, self.start + self._count)
        return self.start + bisect_right(numbers, value, key=lambda number: self.entry(number)[column])


class Index:
    """Entries of two ascending columns; methods may raise DiskFailed.

    Entries read from the file may be wrong; callers check them.
    """

    def __init__(self, disk: Disk, path: str, layout: Struct, base_offset: Offset, stored_bytes: int) -> None:
        assert base_offset >= 0 <= stored_bytes
        self._disk = disk
        self._layout = layout
        self._stored = stored_bytes // layout.size
        self._pending: list[Entry] = []
        self._blocks: list[Block] = []  # The blocks read last.
        self._is_longer = False  # The file has obsolete entries at its end.
        self.is_unsynced = False
        self.path = path
        self.base_offset = base_offset

    def __len__(self) -> int:
        return self._stored + len(self._pending)

    def use_disk(self, disk: Disk) -> None:
        """Open the file through another disk from now on."""
        self._disk = disk

    def is_full(self, bytes_max: int) -> bool:
        return len(self) >= bytes_max // self._layout.size

    def entry(self, number: int, *, cached: bool = False) -> Entry:
        """Return an entry.  With `cached`, raise NotCached instead of waiting for the disk."""
        assert 0 <= number < len(self), "an entry number is within the index"
        if number >= self._stored:
            return self._pending[number - self._stored]
        for block in self._blocks:
            if block.has(number):
                return block.entry(number)
        return self._read_entry(self._opened(cached), number)

    def last(self) -> Entry | None:
        return self.entry(len(self) - 1) if len(self) else None

    def count_at_or_below(self, value: int, column: int, *, cached: bool = False) -> int:
        """Return the number of entries with at most `value` in an ascending column; `cached` as for `entry`."""
        pending = self._pending
        if pending and pending[0][column] <= value:
            return self._stored + bisect_right(pending, value, key=KEYS[column])
        if not self._stored:
            return 0
        for block in self._blocks:
            if block.spans(value, column):
                return block.count_at_or_below(value, column)
        return self._load_block(value, column, cached).count_at_or_below(value, column)

    def _opened(self, cached: bool) -> ReadableFile:
        file = self._disk.open(self.path)
        return CachedFile(file, whole=True) if cached else file

    def _load_block(self, value: int, column: int, cached: bool) -> Block:
        file = self._opened(cached)
        # A reader at the end of a block continues with the next one.
        before = [known for known in self._blocks if known.last[column] <= value]
        known = max(before, key=lambda known: known.start) if before else None
        start = known.start + BLOCK_ENTRIES if known else 0
        if start < self._stored:
            block = self._read_block(file, start)
            if block.spans(value, column):
                return self._keep(block)
            if known and known.has(start - 1) and block.has(start) and value < block.first[column]:
                return known
        starts = range(0, self._stored, BLOCK_ENTRIES)
        following = bisect_right(starts, value, key=lambda start: self._read_entry(file, start)[column])
        return self._keep(self._read_block(file, starts[max(following - 1, 0)]))

    def _read_block(self, file: ReadableFile, start: int) -> Block:
        data = file.pread(start * self._layout.size, min(BLOCK_ENTRIES, self._stored - start) * self._layout.size)
        return Block(self._layout, start, data)

    def _keep(self, block: Block) -> Block:
        if block.has(block.start):
            others = [known for known in self._blocks if known.start != block.start]  # Not its shorter version.
            self._blocks = [block, *others[: BLOCKS_MAX - 1]]
        return block

    def _read_entry(self, file: ReadableFile, number: int) -> Entry:
        data = file.pread(number * self._layout.size, self._layout.size)
        # If the file was cut from outside, its missing entries read as zero; users of the entries detect that.
        first, second = self._layout.unpack(data.ljust(self._layout.size, b"\0"))
        return first, second

    def append(self, first: int, second: int) -> None:
        """Add an entry without failing, as the log has the batch already; unwritten entries stay in memory."""
        self._pending.append((first, second))
        if len(self._pending) >= PENDING_ENTRIES_MAX:
            with suppress(DiskFailed):
                self.write()

    def write(self) -> None:
        """Write the entries that wait in memory to the file."""
        self.cut()
        if self._pending:
            data = b"".join([self._layout.pack(*entry) for entry in self._pending])
            self._disk.open(self.path).write(self._stored * self._layout.size, data)
            self._stored += len(self._pending)
            self._pending.clear()
            self.is_unsynced = True

    def keep(self, count: int) -> None:
        """Drop all entries in memory but the first `count`; `cut` then cuts the file, too."""
        assert 0 <= count <= len(self), "a truncation adds no entries"
        if count < self._stored:
            self._stored = count
            self._is_longer = True
            self._pending.clear()
        else:
            del self._pending[count - self._stored :]
        self._blocks = []
        assert len(self) == count, "a truncation keeps the first entries, written or not"

    def forget_blocks(self) -> None:
        """Drop the cached blocks, which would take much memory for a log of many segments."""
        self._blocks = []

    def cut(self) -> None:
        """Cut obsolete entries off the end of the file."""
        if self._is_longer:
            self._disk.open(self.path).truncate(self._stored * self._layout.size)
            self.is_unsynced = True
            self._is_longer = False

    def clear(self) -> None:
        """Empty the index; create its file, or empty a damaged one."""
        self._disk.create(self.path)
        self._is_longer = False
        self.is_unsynced = True
        self._stored = 0
        self._pending.clear()
        self._blocks = []

    def _copy_from(self, other: Index) -> None:
        """Copy the other index as it is now; entries in the file stay valid until it is cut or cleared."""
        self._stored = other._stored
        self._pending = other._pending.copy()
        self._blocks = other._blocks.copy()

    def sync(self) -> None:
        assert not self._pending, "entries are written before they are synced"
        if self.is_unsynced:
            self._disk.open(self.path).sync()
            self.is_unsynced = False


class OffsetIndex(Index):
    """Offset to position and back."""

    def __init__(self, disk: Disk, path: str, base_offset: Offset, stored_bytes: int) -> None:
        super().__init__(disk, path, OFFSET_ENTRY, base_offset, stored_bytes)

    def add(self, last_offset: Offset, position: int) -> None:
        assert last_offset >= self.base_offset, "an entry is not before its segment"
        self.append(last_offset - self.base_offset, position)

    def at_or_before(self, offset: Offset, *, cached: bool = False) -> tuple[Offset, int]:
        """Return the last entry up to `offset`, to begin a walk there; without one the segment's start."""
        count = self.count_at_or_below(offset - self.base_offset, 0, cached=cached)
        if not count:
            return self.base_offset, 0
        delta, position = self.entry(count - 1, cached=cached)
        return Offset(self.base_offset + delta), position

    def border_at_or_below(self, position: int, *, cached: bool = False) -> int:
        """Return the last known start of a batch up to `position`; 0, the segment's start, if none is known."""
        count = self.count_at_or_below(position, 1, cached=cached)
        return self.entry(count - 1, cached=cached)[1] if count else 0

    def offset_below(self, end: Offset) -> Offset:
        """Return the greatest offset below `end` in the entries; the base offset if there is none."""
        count = self.count_at_or_below(end - self.base_offset - 1, 0)
        return Offset(self.base_offset + (self.entry(count - 1)[0] if count else 0))

    def copy(self) -> OffsetIndex:
        """Return a copy for a reader in another thread, unaffected by later changes."""
        copy = OffsetIndex(self._disk, self.path, self.base_offset, 0)
        copy._copy_from(self)
        return copy

    def count_before(self, position: int) -> int:
        """Return the number of entries for batches before `position`."""
        return self.count_at_or_below(position - 1, 1)


class TimeIndex(Index):
    """Timestamp to offset; the last entry of a sealed segment has its greatest timestamp."""

    def __init__(self, disk: Disk, path: str, base_offset: Offset, stored_bytes: int) -> None:
        super().__init__(disk, path, TIME_ENTRY, base_offset, stored_bytes)
        self._last_timestamp: TimestampMs | None = None

    def is_full(self, bytes_max: int) -> bool:
        """Return whether at most one more entry fits, reserved for the greatest timestamp when sealing."""
        return len(self) + 1 >= bytes_max // TIME_ENTRY.size

    def maybe_add(self, timestamp: TimestampMs, offset: Offset) -> None:
        """Add an entry if the timestamp is above the last entry's."""
        if timestamp > self.last_timestamp():
            self.append(timestamp, offset - self.base_offset)
            self._last_timestamp = timestamp

    def last_timestamp(self) -> TimestampMs:
        """Return the last entry's timestamp; read the file only the first time."""
        if self._last_timestamp is None:
            self._last_timestamp = self.last_entry()[0]
        return self._last_timestamp

    def last_entry(self) -> tuple[TimestampMs, Offset]:
        """Return the last entry; (NO_TIMESTAMP, base offset) if the index is empty."""
        last = self.last()
        return self._absolute(last) if last else (NO_TIMESTAMP, self.base_offset)

    def first_timestamp(self) -> TimestampMs:
        return TimestampMs(self.entry(0)[0]) if len(self) else NO_TIMESTAMP

    def entry_before(self, timestamp: TimestampMs) -> tuple[TimestampMs, Offset]:
        """Return the last entry before a time; a walk to that time's first record may begin at its batch.

        Return (NO_TIMESTAMP, base offset) if there is none.
        """
        count = self.count_at_or_below(timestamp - 1, 0)
        return self._absolute(self.entry(count - 1)) if count else (NO_TIMESTAMP, self.base_offset)

    def entry_below(self, end: Offset) -> tuple[TimestampMs, Offset]:
        """Return the last entry whose offset is below `end`; (NO_TIMESTAMP, base offset) if there is none."""
        count = self.count_at_or_below(end - self.base_offset - 1, 1)
        return self._absolute(self.entry(count - 1)) if count else (NO_TIMESTAMP, self.base_offset)

    def copy(self) -> TimeIndex:
        """Return a copy for a reader in another thread, unaffected by later changes."""
        copy = TimeIndex(self._disk, self.path, self.base_offset, 0)
        copy._copy_from(self)
        return copy

    def count_below(self, offset: Offset) -> int:
        """Return the number of entries for batches that end below `offset`."""
        return self.count_at_or_below(offset - self.base_offset - 1, 1)

    def keep(self, count: int) -> None:
        super().keep(count)
        self._last_timestamp = None

    def clear(self) -> None:
        super().clear()
        self._last_timestamp = None

    def _absolute(self, entry: Entry) -> tuple[TimestampMs, Offset]:
        return TimestampMs(entry[0]), Offset(entry[1] + self.base_offset)
