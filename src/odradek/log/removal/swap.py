"""Replacement of segments by compacted ones, so that a stop at any point leaves one or the other.

    X.log.cleaned     being written; a start deletes it
    X.log.swap        complete and synced; a start deletes its sources and renames it to its final name
    memory            the log reads the new segments, by either name; Swap waits in the reaper
    sources.deleted   renamed, synced, unlinked later
    X.log             renamed, synced, and then its indexes

Between two renames whose order matters the directory is synced, because a power failure may keep any subset of unsynced
renames.  Of several new segments the first gets .swap last: recovery considers a .swap at or beyond a .cleaned
incomplete (KAFKA-6264).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import pairwise

from odradek.base.units import Offset, TimestampMs
from odradek.log.files.disk import Disk, DiskFailed, Entry, File, Lock
from odradek.log.files.log_file_names import CLEANED, DELETED, LOG, SEGMENT_SUFFIXES, SNAPSHOT, SWAP, segment_stem
from odradek.log.removal.reaper import FileRemoval, RemovalWork, Retirement, rename_if_exists


class ViewedDisk:
    """Disk view in which the files of some segments temporarily have other names."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.has_syncs = disk.has_syncs

    def open(self, path: str) -> File:
        return self._disk.open(path)

    def create(self, path: str) -> File:
        return self._disk.create(path)

    def entries(self, directory: str) -> list[Entry]:
        return self._disk.entries(directory)

    def size(self, path: str) -> int:
        return self._disk.size(path)

    def modified_ms(self, path: str) -> int:
        return self._disk.modified_ms(path)

    def rename(self, old: str, new: str) -> None:
        self._disk.rename(old, new)

    def unlink(self, path: str) -> None:
        self._disk.unlink(path)

    def make_directory(self, path: str) -> list[str]:
        return self._disk.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._disk.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self._disk.sync_directory(path)

    def lock(self, path: str) -> Lock:
        return self._disk.lock(path)


class CleanedDisk(ViewedDisk):
    """View for segments being written, whose file names end in .cleaned."""

    def open(self, path: str) -> File:
        return self._disk.open(path + CLEANED)

    def create(self, path: str) -> File:
        return self._disk.create(path + CLEANED)

    def unlink(self, path: str) -> None:
        self._disk.unlink(path + CLEANED)


class SwapDisk(ViewedDisk):
    """View for segments in a log whose file names may end in .swap until the swap is done.

    A .swap file only disappears by the rename to its final name.  So if it is missing, the final name has its
    content.
    """

    def __init__(self, disk: Disk, swap: SwapState) -> None:
        super().__init__(disk)
        self._swap = swap

    def open(self, path: str) -> File:
        if not self._swap.is_done:
            try:
                return self._disk.open(path + SWAP)
            except DiskFailed as failure:
                if failure.errno != errno.ENOENT:
                    raise
        return self._disk.open(path)

    def modified_ms(self, path: str) -> int:
        if not self._swap.is_done:
            try:
                return self._disk.modified_ms(path + SWAP)
            except DiskFailed as failure:
                if failure.errno != errno.ENOENT:
                    raise
        return self._disk.modified_ms(path)


class Publication:
    """Renaming of new, synced segments to .swap, unless the log withdraws it; a value for a thread."""

    def __init__(
        self, disk: Disk, directory: str, bases: Sequence[Offset], turns: AbstractContextManager[object]
    ) -> None:
        assert bases, "a swap has at least one new segment"
        self._disk = disk
        self._directory = directory
        self._bases = bases
        self._turns = turns
        self.is_withdrawn = False

    def run(self) -> bool:
        """Rename the files; return False if withdrawn.  Raise DiskFailed; then call `undo`."""
        self._disk.sync_directory(self._directory)  # Without its .cleaned, a .swap would appear complete.
        for base in reversed(self._bases[1:]):
            self._rename(base)
        if len(self._bases) > 1:
            self._disk.sync_directory(self._directory)
        self._rename(self._bases[0])
        self._disk.sync_directory(self._directory)
        if self.is_withdrawn:
            self.undo()
        return not self.is_withdrawn

    def _rename(self, base: Offset) -> None:
        with self._turns:
            # The .log file is last: its .swap proves that the others exist.
            for suffix in reversed(SEGMENT_SUFFIXES) if not self.is_withdrawn else ():
                path = f"{self._directory}/{segment_stem(base)}{suffix}"
                rename_if_exists(self._disk, path + CLEANED, path + SWAP)

    def withdraw(self) -> None:
        """Stop further renames to .swap; call `undo` before the log is written to."""
        with self._turns:
            self.is_withdrawn = True

    def undo(self) -> None:
        """Unlink the files; a .cleaned at the first base keeps recovery from using a .swap."""
        first = f"{self._directory}/{segment_stem(self._bases[0])}{LOG}"
        rename_if_exists(self._disk, first + SWAP, first + CLEANED)
        self._disk.sync_directory(self._directory)
        for base in self._bases:
            for suffix in SEGMENT_SUFFIXES:
                path = f"{self._directory}/{segment_stem(base)}{suffix}"
                self._disk.unlink(path + SWAP)
                if path != first:
                    self._disk.unlink(path + CLEANED)
        self._disk.sync_directory(self._directory)
        self._disk.unlink(first + CLEANED)


class SwapState:
    """Progress of a swap, shared by all Swap objects that may continue it.

    `bases` and `sources` are the base offsets of the new segments and of their sources.
    """

    def __init__(self, bases: Sequence[Offset], sources: Sequence[Offset]) -> None:
        assert bases and bases[0] == sources[0], "the first new segment has the base offset of the first source"
        for offsets in (bases, sources):
            assert all(offset < following for offset, following in pairwise(offsets)), "the segments of a log ascend"
        self.bases = bases
        self.sources = sources
        self.renamed: list[str] = []
        self.sources_are_retired = False
        self.is_done = False


class Swap(Retirement):
    """Renaming of the sources to .deleted, then of the new segments from .swap to their final names."""

    __slots__ = ("_state", "_unlink_ms")

    def __init__(self, directory: str, state: SwapState, unlink_ms: TimestampMs) -> None:
        super().__init__(directory)
        self._state = state
        self._unlink_ms = unlink_ms

    def restarted(self) -> Retirement:
        return Swap(self.directory, self._state, self._unlink_ms)

    def run(self, disk: Disk, turns: AbstractContextManager[object]) -> None:
        state = self._state
        with turns:
            if self.is_withdrawn or state.is_done:
                return
            if not state.sources_are_retired:  # Otherwise these names belong to the new segments.
                self._retire_sources(disk)
                state.sources_are_retired = True
        disk.sync_directory(self.directory)
        with turns:
            if self.is_withdrawn:
                return
            self._rename_to_final(disk, SEGMENT_SUFFIXES[:1])
        disk.sync_directory(self.directory)  # While a .log is .swap, an index without .swap belongs to a source.
        with turns:
            if self.is_withdrawn:
                return
            self._rename_to_final(disk, SEGMENT_SUFFIXES[1:])
            state.is_done = True
        disk.sync_directory(self.directory)

    def _rename_to_final(self, disk: Disk, suffixes: Sequence[str]) -> None:
        assert self._state.sources_are_retired, "the sources still have these names"
        for base in self._state.bases:
            for suffix in suffixes:
                path = f"{self.directory}/{segment_stem(base)}{suffix}"
                rename_if_exists(disk, path + SWAP, path)

    def _retire_sources(self, disk: Disk) -> None:
        state = self._state
        assert not state.sources_are_retired, "the new segments have these names by now"
        for base in state.sources:
            # Compaction does not change the snapshot as of an offset: delete it only if no new segment begins there.
            for suffix in SEGMENT_SUFFIXES if base in state.bases else (*SEGMENT_SUFFIXES, SNAPSHOT):
                path = f"{self.directory}/{segment_stem(base)}{suffix}"
                if rename_if_exists(disk, path, path + DELETED):
                    state.renamed.append(path + DELETED)

    def follow_ups(self) -> Sequence[RemovalWork]:
        return [FileRemoval(tuple(self._state.renamed), self._unlink_ms)] if self._state.renamed else ()
