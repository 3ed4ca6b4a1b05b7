"""Reading of the lake with deltalake, as any program without Odradek could do it."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

UPDATE_EVERY_SECONDS = 0.5


class LakeUnreadable(Exception):
    """Error for an unreadable lake; one sentence."""


class RowCount:
    """Row count of the table, from its log alone, updated at most twice a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: DeltaTable | None = None
        self._updated_at = float("-inf")
        self._rows = 0

    def now(self) -> int:
        if time.monotonic() - self._updated_at > UPDATE_EVERY_SECONDS:
            self._updated_at = time.monotonic()
            if self._table is not None:
                self._table.update_incremental()
                self._rows = int(self._table.count())
            elif DeltaTable.is_deltatable(str(self._path)):
                self._table = DeltaTable(self._path)
        return self._rows


def rows_of(path: Path) -> pa.Table:
    """Return each record's place, key and value, or raise LakeUnreadable."""
    try:
        return DeltaTable(path).to_pyarrow_table(columns=["partition", "offset", "key", "value"])
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LakeUnreadable(f"The lake cannot be read: {error}") from error
