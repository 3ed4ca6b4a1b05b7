"""Reads that would wait for a disk: a thread waits, then the loop retries them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from odradek.core.kernel.work import Work
from odradek.log.files.disk import DiskFailed
from odradek.log.files.page_cache import NotCached

Place: TypeAlias = tuple[str, int]  # A file, and the position of the missing data.


class ColdRead(Exception):
    """Failure of a read that may not wait for the disk; once `missing` is loaded, a retry should succeed."""

    def __init__(self, missing: NotCached) -> None:
        super().__init__(str(missing))
        self.missing = missing
        self.place: Place = missing.path, missing.position


def load(reads: Sequence[ColdRead]) -> None:
    """Wait for the data missing in these reads; leave failures to the retried read, which handles them."""
    for read in reads:
        with suppress(DiskFailed):
            read.missing.load()


class DiskWait(Work):
    """Work that waits for the disk until cold reads can be retried."""

    __slots__ = ()

    def __init__(self, reads: Sequence[ColdRead]) -> None:
        super().__init__(partial(load, reads))
