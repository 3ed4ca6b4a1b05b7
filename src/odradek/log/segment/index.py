"""The two indexes of a segment: fixed-size entries, ascending, no header.  Caches: both are rebuilt from the .log.

.index, one entry per index.interval.bytes           .timeindex
│ i32 │ last offset of a batch − base offset │       │ i64 │ greatest timestamp so far               │
│ i32 │ byte position of that batch          │       │ i32 │ last offset of its batch − base offset  │

An index holds no open file and little memory, whatever its size: the newest entries wait in memory to be written many
at once, and a search reads a dozen entries and one block of the file.  A few blocks are kept.  (Kafka maps the files;
for 2,000 partitions of full segments arrays in memory would be 10 GB, mappings as many as there are files.)
A crash loses the waiting entries: the segment that is open then is rescanned by recovery anyway.
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
BLOCK_ENTRIES = 512  # A page or two: to open the file costs more than to read them.
BLOCKS_MAX = 8  # As many readers at different places find theirs again.
PENDING_ENTRIES_MAX = 128

Entry = tuple[int, int]
KEYS = (itemgetter(0), itemgetter(1))


class Block:
    """A run of entries as they are in the file: a search unpacks the few that it looks at."""

    def __init__(self, layout: Struct, start: int, data: bytes) -> None:
        self._layout = layout
        self._data = data
        self._count = len(data) // layout.size
        self.start = start  # The number of the first.
        self.first: Entry = self.entry(start) if self._count else (0, 0)
        self.last: Entry = self.entry(start + self._count - 1) if self._count else (0, 0)

    def has(self, number: int) -> bool:
        return 0 <= number - self.start < self._count

    def entry(self, number: int) -> Entry:
        first, second = self._layout.unpack_from(self._data, (number - self.start) * self._layout.size)
        return first, second

    def spans(self, value: int, column: int) -> bool:
        """True if the value's place is before the last entry, and not before the first."""
        return self._count > 0 and self.first[column] <= value < self.last[column]

    def count_at_or_below(self, value: int, column: int) -> int:
        """Returns how many entries of the file come up to the last in this block that has at most `value`."""
        numbers = range(self.start, self.start + self._count)
        return self.start + bisect_right(numbers, value, key=lambda number: self.entry(number)[column])


class Index:
    """Entries of two ascending columns.  Raises DiskFailed; what it reads may be wrong, and is checked by its user."""

    def __init__(self, disk: Disk, path: str, layout: Struct, base_offset: Offset, stored_bytes: int) -> None:
        self._disk = disk
        self._layout = layout
        self._stored = stored_bytes // layout.size
        self._pending: list[Entry] = []
        self._blocks: list[Block] = []  # What was read last.
        self._is_longer = False  # The file has entries after the last that counts.
        self.is_unsynced = False
        self.path = path
        self.base_offset = base_offset

    def __len__(self) -> int:
        return self._stored + len(self._pending)

    def on(self, disk: Disk) -> None:
        """Has the file opened through another disk from now on."""
        self._disk = disk

    def is_full(self, bytes_max: int) -> bool:
        return len(self) >= bytes_max // self._layout.size

    def entry(self, number: int, *, cached: bool = False) -> Entry:
        """Returns an entry.  With `cached` it is not waited for: raises NotCached."""
        assert 0 <= number < len(self), "a number is counted first"
        if number >= self._stored:
            return self._pending[number - self._stored]
        for block in self._blocks:
            if block.has(number):
                return block.entry(number)
        return self._read_entry(self._opened(cached), number)

    def last(self) -> Entry | None:
        return self.entry(len(self) - 1) if len(self) else None

    def count_at_or_below(self, value: int, column: int, *, cached: bool = False) -> int:
        """Returns how many entries have at most `value` in the column, which ascends; `cached` as for `entry`."""
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
        # Who has come to the end of a block goes on with the next.
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
            others = [known for known in self._blocks if known.start != block.start]  # Of it, from when it was shorter.
            self._blocks = [block, *others[: BLOCKS_MAX - 1]]
        return block

    def _read_entry(self, file: ReadableFile, number: int) -> Entry:
        data = file.pread(number * self._layout.size, self._layout.size)
        # A file that someone cut since: its entries are as good as zero, and whoever uses them finds out.
        first, second = self._layout.unpack(data.ljust(self._layout.size, b"\0"))
        return first, second

    def append(self, first: int, second: int) -> None:
        """Adds an entry and never fails, as the log has the batch already: what can't be written waits in memory."""
        self._pending.append((first, second))
        if len(self._pending) >= PENDING_ENTRIES_MAX:
            with suppress(DiskFailed):
                self.write()

    def write(self) -> None:
        """Writes the entries that wait in memory to the file."""
        self.cut()
        if self._pending:
            data = b"".join([self._layout.pack(*entry) for entry in self._pending])
            self._disk.open(self.path).write(self._stored * self._layout.size, data)
            self._stored += len(self._pending)
            self._pending.clear()
            self.is_unsynced = True

    def keep(self, count: int) -> None:
        """Drops all entries but the first `count` in memory; `cut` then cuts the file, too."""
        assert 0 <= count <= len(self), "a cut adds no entries"
        if count < self._stored:
            self._stored = count
            self._is_longer = True
            self._pending.clear()
        else:
            del self._pending[count - self._stored :]
        self._blocks = []

    def forget_blocks(self) -> None:
        """Forgets what was read of the file: of a log of many segments that would be much."""
        self._blocks = []

    def cut(self) -> None:
        """Cuts the file behind the last entry that counts."""
        if self._is_longer:
            self._disk.open(self.path).truncate(self._stored * self._layout.size)
            self.is_unsynced = True
            self._is_longer = False

    def clear(self) -> None:
        """Makes the index empty, with an empty file where there was none or a damaged one."""
        self._disk.create(self.path)
        self._is_longer = False
        self.is_unsynced = True
        self._stored = 0
        self._pending.clear()
        self._blocks = []

    def _become(self, other: Index) -> None:
        """Makes this a copy of the other as it is now; entries in the file hold until that is cut or emptied."""
        self._stored = other._stored
        self._pending = other._pending.copy()
        self._blocks = other._blocks.copy()

    def sync(self) -> None:
        if self.is_unsynced:
            self._disk.open(self.path).sync()
            self.is_unsynced = False


class OffsetIndex(Index):
    """Offset to position and back."""

    def __init__(self, disk: Disk, path: str, base_offset: Offset, stored_bytes: int) -> None:
        super().__init__(disk, path, OFFSET_ENTRY, base_offset, stored_bytes)

    def add(self, last_offset: Offset, position: int) -> None:
        self.append(last_offset - self.base_offset, position)

    def at_or_before(self, offset: Offset, *, cached: bool = False) -> tuple[Offset, int]:
        """Returns the last entry up to `offset`, where a walk to it may begin; without one the segment's start."""
        count = self.count_at_or_below(offset - self.base_offset, 0, cached=cached)
        if not count:
            return self.base_offset, 0
        delta, position = self.entry(count - 1, cached=cached)
        return Offset(self.base_offset + delta), position

    def border_at_or_below(self, position: int, *, cached: bool = False) -> int:
        """The last known start of a batch that is not beyond `position`; 0, the segment's start, if none is known."""
        count = self.count_at_or_below(position, 1, cached=cached)
        return self.entry(count - 1, cached=cached)[1] if count else 0

    def offset_below(self, end: Offset) -> Offset:
        """The greatest offset below `end` that an entry has; the base offset if none has."""
        count = self.count_at_or_below(end - self.base_offset - 1, 0)
        return Offset(self.base_offset + (self.entry(count - 1)[0] if count else 0))

    def copy(self) -> OffsetIndex:
        """Returns a copy for a reader in another thread, which sees nothing of what comes later."""
        copy = OffsetIndex(self._disk, self.path, self.base_offset, 0)
        copy._become(self)
        return copy

    def count_before(self, position: int) -> int:
        """How many entries are of batches before `position`."""
        return self.count_at_or_below(position - 1, 1)


class TimeIndex(Index):
    """Timestamp to offset.  The last entry of a sealed segment is its greatest timestamp."""

    def __init__(self, disk: Disk, path: str, base_offset: Offset, stored_bytes: int) -> None:
        super().__init__(disk, path, TIME_ENTRY, base_offset, stored_bytes)
        self._last_timestamp: TimestampMs | None = None

    def is_full(self, bytes_max: int) -> bool:
        """True if only one entry more fits: that is kept for the greatest timestamp when the segment is sealed."""
        return len(self) + 1 >= bytes_max // TIME_ENTRY.size

    def maybe_add(self, timestamp: TimestampMs, offset: Offset) -> None:
        """Adds an entry if the timestamp is above the last entry's."""
        if timestamp > self.last_timestamp():
            self.append(timestamp, offset - self.base_offset)
            self._last_timestamp = timestamp

    def last_timestamp(self) -> TimestampMs:
        """Returns the last entry's timestamp; reads the file only the first time."""
        if self._last_timestamp is None:
            self._last_timestamp = self.last_entry()[0]
        return self._last_timestamp

    def last_entry(self) -> tuple[TimestampMs, Offset]:
        """(NO_TIMESTAMP, base offset) when empty."""
        last = self.last()
        return self._absolute(last) if last else (NO_TIMESTAMP, self.base_offset)

    def first_timestamp(self) -> TimestampMs:
        return TimestampMs(self.entry(0)[0]) if len(self) else NO_TIMESTAMP

    def entry_before(self, timestamp: TimestampMs) -> tuple[TimestampMs, Offset]:
        """Returns the last entry of a lesser time: a walk to the first record of that time may begin at its batch.

        (NO_TIMESTAMP, base offset) if there is none.
        """
        count = self.count_at_or_below(timestamp - 1, 0)
        return self._absolute(self.entry(count - 1)) if count else (NO_TIMESTAMP, self.base_offset)

    def entry_below(self, end: Offset) -> tuple[TimestampMs, Offset]:
        """The last entry whose offset is below `end`; (NO_TIMESTAMP, base offset) if there is none."""
        count = self.count_at_or_below(end - self.base_offset - 1, 1)
        return self._absolute(self.entry(count - 1)) if count else (NO_TIMESTAMP, self.base_offset)

    def copy(self) -> TimeIndex:
        """Returns a copy for a reader in another thread, which sees nothing of what comes later."""
        copy = TimeIndex(self._disk, self.path, self.base_offset, 0)
        copy._become(self)
        return copy

    def count_below(self, offset: Offset) -> int:
        """How many entries are of batches that end below `offset`."""
        return self.count_at_or_below(offset - self.base_offset - 1, 1)

    def keep(self, count: int) -> None:
        super().keep(count)
        self._last_timestamp = None

    def clear(self) -> None:
        super().clear()
        self._last_timestamp = None

    def _absolute(self, entry: Entry) -> tuple[TimestampMs, Offset]:
        return TimestampMs(entry[0]), Offset(entry[1] + self.base_offset)
