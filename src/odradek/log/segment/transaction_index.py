"""Index of the aborted transactions whose abort markers are in one segment, in a .txnindex file.

│  0 │ i16 │ version = 0                                                          │
│  2 │ i64 │ producer id                                                          │
│ 10 │ i64 │ first offset of the transaction, perhaps in an earlier segment       │
│ 18 │ i64 │ last offset: that of its marker                                      │
│ 26 │ i64 │ last stable offset when it ended: all that begins below is ended too │

Entries ascend in the last offset and the last stable offset; the file has no header.  The file is created with its
first entry.  Like the other indexes it is a cache: the newest entries wait in memory, and a damaged index is rebuilt
from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from odradek.base.units import NO_OFFSET, Offset, ProducerId
from odradek.log.files.disk import Disk, DiskFailed
from odradek.log.files.page_cache import CachedFile, ReadableFile
from odradek.log.segment.scan import Damaged

_ENTRY = Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
BLOCK_ENTRIES = 128
PENDING_ENTRIES_MAX = 128


class AbortedTxn(NamedTuple):
    """One entry: an aborted transaction."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class TransactionIndex:
    """The .txnindex of one segment.

    Methods raise DiskFailed; methods that read raise Damaged for impossible entries.
    """

    __slots__ = ("_disk", "_newest", "_pending", "_stored_bytes", "base_offset", "is_vetted", "path")

    def __init__(self, disk: Disk, path: str, base_offset: Offset, stored_bytes: int) -> None:
        self._disk = disk
        self._stored_bytes = stored_bytes
        self._pending: list[AbortedTxn] = []
        self._newest: Offset | None = None  # The last offset of the last entry in the file; None: not read yet.
        self.path = path
        self.base_offset = base_offset
        self.is_vetted = not stored_bytes  # The index was compared with the log.

    def __len__(self) -> int:
        return self._stored + len(self._pending)

    def copy(self) -> TransactionIndex:
        """Return a copy for a reader in another thread, unaffected by later changes."""
        copy = TransactionIndex(self._disk, self.path, self.base_offset, self._stored_bytes)
        copy._pending = list(self._pending)
        return copy

    def use_disk(self, disk: Disk) -> None:
        """Open the file through another disk from now on."""
        self._disk = disk

    @property
    def is_empty(self) -> bool:
        return not (self._stored_bytes or self._pending)

    @property
    def is_whole(self) -> bool:
        """Return whether the file ends at an entry's end."""
        return self._stored_bytes % ENTRY_BYTES == 0

    @property
    def _stored(self) -> int:
        return self._stored_bytes // ENTRY_BYTES

    # ------------------------------------------------------------------ write

    def add(self, aborted: AbortedTxn) -> None:
        """Add an entry without failing, as the log has the marker already; unwritten entries stay in memory."""
        self._pending.append(aborted)
        if len(self._pending) >= PENDING_ENTRIES_MAX:
            with suppress(DiskFailed):
                self.write()

    def write(self) -> None:
        """Write the entries that wait in memory to the file."""
        if self._pending:
            data = b"".join([_ENTRY.pack(0, *aborted) for aborted in self._pending])
            file = self._disk.open(self.path) if self._stored_bytes else self._disk.create(self.path)
            file.write(self._stored_bytes, data)
            self._stored_bytes += len(data)
            self._newest = self._pending[-1].last_offset
            self._pending.clear()

    def replace(self, entries: Iterable[AbortedTxn]) -> None:
        """Replace all entries."""
        self._pending = list(entries)
        self.is_vetted = True
        self._newest = None
        if self._stored_bytes and not self._pending:
            self._disk.unlink(self.path)
        self._stored_bytes = 0
        self.write()
        assert self.is_whole and not self._pending

    def truncate_to(self, offset: Offset) -> None:
        """Drop the transactions that ended at `offset` or later."""
        self._pending = [aborted for aborted in self._pending if aborted.last_offset < offset]
        if self._stored_bytes:
            self._cut(self._first_from(self._disk.open(self.path), offset))

    def _cut(self, count: int) -> None:
        assert 0 <= count <= self._stored, "a truncation adds no entries"
        if count < self._stored:
            self._disk.open(self.path).truncate(count * ENTRY_BYTES)
            self._stored_bytes = count * ENTRY_BYTES
            self._newest = None

    def sync(self) -> None:
        assert not self._pending, "entries are written before they are synced"
        if self._stored_bytes:
            self._disk.open(self.path).sync()

    # ------------------------------------------------------------------ read

    def first_and_last(self, *, cached: bool = False) -> list[AbortedTxn]:
        """Return the first and the last entry of the file, to compare them with the log.

        `cached` works as for `overlapping`.
        """
        if not self.is_whole:
            raise Damaged(self.path, self._stored_bytes, "the file ends within an entry")
        file = self._opened(cached)
        return [self._read(file, number, 1)[0] for number in sorted({0, self._stored - 1})]

    def overlapping(self, offset: Offset, upto: Offset, *, cached: bool = False) -> tuple[list[AbortedTxn], bool]:
        """Return the entries for a reader of offsets from `offset` to below `upto`.

        The second value is False if more such transactions may have ended in later segments.  With `cached`,
        raise NotCached instead of waiting for the disk.
        """
        found: list[AbortedTxn] = []
        for aborted in self._from(offset, cached):
            if aborted.first_offset < upto:
                found.append(aborted)
            if aborted.last_stable_offset >= upto:
                return found, True
        return found, False

    def _from(self, offset: Offset, cached: bool) -> Iterator[AbortedTxn]:
        """Yield every entry whose transaction ended at `offset` or later."""
        if self._stored_bytes and self._newest_stored(cached) >= offset:
            file = self._opened(cached)
            number = self._first_from(file, offset)
            while number < self._stored:
                block = self._read(file, number, BLOCK_ENTRIES)
                yield from block
                number += len(block)
        for aborted in self._pending:
            if aborted.last_offset >= offset:
                yield aborted

    def _opened(self, cached: bool) -> ReadableFile:
        file = self._disk.open(self.path)
        return CachedFile(file, whole=True) if cached else file

    def _newest_stored(self, cached: bool) -> Offset:
        if self._newest is None:
            if not self.is_whole:
                raise Damaged(self.path, self._stored_bytes, "the file ends within an entry")
            (last,) = self._read(self._opened(cached), self._stored - 1, 1)
            self._newest = last.last_offset
        return self._newest

    def _first_from(self, file: ReadableFile, offset: Offset) -> int:
        """Return the number of the first entry in the file whose transaction ended at `offset` or later."""
        low, high = 0, self._stored
        while low < high:
            middle = (low + high) // 2
            if self._read(file, middle, 1)[0].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _read(self, file: ReadableFile, number: int, count: int) -> list[AbortedTxn]:
        count = min(count, self._stored - number)
        data = file.pread(number * ENTRY_BYTES, count * ENTRY_BYTES)
        if len(data) != count * ENTRY_BYTES:
            raise Damaged(self.path, number * ENTRY_BYTES, f"read {len(data)} bytes, expected {count} entries")
        entries, before = [], NO_OFFSET
        for version, *fields in _ENTRY.iter_unpack(data):
            aborted = AbortedTxn(*fields)
            if version or not self._is_right(aborted) or aborted.last_offset <= before:
                raise Damaged(self.path, number * ENTRY_BYTES, f"invalid entry {aborted}")
            before = aborted.last_offset
            entries.append(aborted)
        return entries

    def _is_right(self, aborted: AbortedTxn) -> bool:
        ends_here = aborted.last_offset >= self.base_offset
        return ends_here and 0 <= aborted.first_offset < aborted.last_offset and aborted.last_stable_offset >= 0
