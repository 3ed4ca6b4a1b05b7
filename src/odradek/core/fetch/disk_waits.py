"""Reads for which a disk would have to be waited for: a thread waits, then they are tried again (effects: DiskWait)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from odradek.log.files.disk import DiskFailed
from odradek.log.files.page_cache import NotCached

Place: TypeAlias = tuple[str, int]  # A file, and the position of what it lacks.


class Cold(Exception):
    """Raised by a read that may not wait; a wait for `missing` should let the next one through."""

    def __init__(self, missing: NotCached) -> None:
        super().__init__(str(missing))
        self.missing = missing
        self.place: Place = missing.path, missing.position


def load(reads: Sequence[Cold]) -> None:
    """Waits for what these reads lacked.  A failure is left to the next read, which knows what to do about it."""
    for read in reads:
        with suppress(DiskFailed):
            read.missing.load()
