"""Writer of one task's Arrow batches into large Parquet files, described for a Delta commit."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from time import time_ns
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from odradek.base.units import MIB
from odradek.spark.delta_lake import DataFile
from odradek.spark.lake_location import Place, Store
from odradek.spark.lake_table import SCHEMA

FILE_BYTES = 128 * MIB
COMPRESSION = "zstd"
ROW_GROUP_BYTES = 32 * MIB  # Buffered in memory until it is written.
# Keys, values and offsets rarely repeat: their dictionary would cost time and memory, and be discarded in the end.
REPEATING = ["topic", "partition", "timestampType"]
# Delta skips whole files by these statistics; values and keys would only enlarge the log.
TIME = "timestamp"
COUNTED = ("topic", "partition", "offset", TIME)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_1_MICROS, YEAR_10000_MICROS = -62_135_596_800_000_000, 253_402_300_800_000_000


class ParquetFiles:
    """Context manager that writes files; files() lists them after an exit without error.

    A file is new and has a random name, so a task that runs twice writes two files; the commit decides which one
    belongs to the table. Each file is durable on disk or in the store before its name leaves this process. An exit with
    an error leaves no file.
    """

    def __init__(self, place: Place, prefix: str, file_bytes: int = FILE_BYTES) -> None:
        self._store = place.store()
        self._prefix = prefix
        self._file_bytes = file_bytes
        self._open: _OneFile | None = None
        self._files: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._discard()
            return
        try:
            self._finish()
        except BaseException:
            self._discard()
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        if self._open is None:
            self._open = _OneFile(self._store, f"{self._prefix}-{uuid4()}.parquet")
        self._open.write(batch)
        if self._open.bytes_so_far >= self._file_bytes:
            self._finish()

    def files(self) -> list[DataFile]:
        return self._files

    def _finish(self) -> None:
        if self._open is not None:
            self._files.append(self._open.finish())
            self._open = None

    def _discard(self) -> None:
        if self._open is not None:
            self._open.discard()
        self._store.remove(file.name for file in self._files)


class _OneFile:
    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._file = store.create(name)
        self._writer = pq.ParquetWriter(
            self._file, SCHEMA, compression=COMPRESSION, use_dictionary=REPEATING, write_statistics=list(COUNTED)
        )
        self._group: list[pa.RecordBatch] = []
        self._rows = 0
        self._bounds: dict[str, tuple[Any, Any]] = {}

    @property
    def bytes_so_far(self) -> int:
        return int(self._file.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        for name in COUNTED:
            self._widen(name, batch.column(name))
        self._group.append(batch)
        if sum(part.nbytes for part in self._group) >= ROW_GROUP_BYTES:
            self._write_group()

    def finish(self) -> DataFile:
        self._write_group()
        self._writer.close()
        size = self.bytes_so_far
        self._store.finish(self._file)
        return DataFile(self._name, size, time_ns() // 1_000_000, self._stats())

    def discard(self) -> None:
        self._writer.is_open = False  # Otherwise it would write a footer when collected.
        self._store.discard(self._name, self._file)

    def _write_group(self) -> None:
        if self._group:
            self._writer.write_table(pa.Table.from_batches(self._group))
            self._group = []

    def _widen(self, name: str, column: pa.Array) -> None:
        if name == TIME:  # As a number: Python's datetime ends in 9999, Kafka's timestamps do not.
            column = column.cast(pa.int64())
        seen = pc.min_max(column).as_py()
        least, most = self._bounds.get(name, (seen["min"], seen["max"]))
        self._bounds[name] = (min(least, seen["min"]), max(most, seen["max"]))

    def _stats(self) -> str:
        bounds = dict(self._bounds)
        micros = bounds.pop(TIME)
        least, most = ({name: pair[side] for name, pair in bounds.items()} for side in (0, 1))
        if YEAR_1_MICROS <= micros[0] <= micros[1] < YEAR_10000_MICROS:
            least[TIME], most[TIME] = map(_time_text, micros)
        return json.dumps(
            {"numRecords": self._rows, "minValues": least, "maxValues": most, "nullCount": dict.fromkeys(COUNTED, 0)}
        )


def _time_text(micros: int) -> str:
    """Format a time as Delta does, in milliseconds, the precision of Kafka's timestamps."""
    return (EPOCH + timedelta(microseconds=micros)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
