"""Comparison of the results with the CSV, independent of the pipeline and of the kills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from odradek.demo import dataset, hours

PLACE = ["partition", "offset"]
SUMMED = ("dep_delay", "arr_delay", "air_time", "distance")
MEAN_ERROR_MAX = 1e-9
MIB = 1 << 20


class Check(NamedTuple):
    """A check as a sentence that is true if it passed, and the actual result if it failed."""

    sentence: str
    passed: bool
    found: str = ""


def check_lake(lake: pa.Table, flights: pa.Table, ends: Mapping[int, int]) -> list[Check]:
    """Check the lake (columns key, value, partition and offset) against the CSV's flights from dataset."""
    try:
        loaded = flights_of(lake)
    except pa.ArrowInvalid as error:
        return [Check("Every value in the lake is a flight.", False, str(error).split("\n", 1)[0])]
    places, identities = _distinct(loaded, PLACE), _distinct(loaded, dataset.IDENTITY)
    expected, rows = flights.num_rows, loaded.num_rows
    sums, sums_of_csv = _sums(loaded), _sums(flights)
    return [
        Check(f"The lake has {expected:,} rows, one for each flight of the CSV.", rows == expected, f"{rows:,} rows"),
        Check("No offset is in the lake twice.", places == rows, f"{rows - places:,} rows too many"),
        Check(
            "The lake ends where the topic ends, in each partition.",
            _ends(loaded) == {number: end for number, end in ends.items() if end},
            f"lake {_ends(loaded)}, topic {dict(ends)}",
        ),
        Check("No flight is in the lake twice.", identities == rows, f"{rows - identities:,} rows too many"),
        Check(
            "Every flight is at its place in the topic, with its key and all that the CSV says of it.",
            _in_order(loaded, PLACE).equals(_in_order(_with_key(flights), PLACE)),
            "some differ",
        ),
        Check(
            f"Sums are equal: {', '.join(f'{name} {value:,}' for name, value in sums_of_csv.items())}.",
            sums == sums_of_csv,
            f"in the lake {sums}",
        ),
    ]


def check_hours(actual: pa.Table, flights: pa.Table) -> list[Check]:
    """Check the derived topic, given as a table."""
    expected = hours_of(flights)
    actual, expected = _in_order(actual, hours.KEY), _in_order(expected, hours.KEY)
    same_hours = actual.select(hours.KEY).equals(expected.select(hours.KEY))
    counted = ["flights", "cancelled", "delay_sum"]
    return [
        Check(
            f"The derived topic has the CSV's {expected.num_rows:,} hours by origin and carrier.",
            same_hours,
            f"{actual.num_rows:,}, or others",
        ),
        Check(
            "In each of them flights, cancellations and delays are those of the CSV.",
            same_hours
            and actual.select(counted).equals(expected.select(counted))
            and _nearly_equal(actual["delay_mean"], expected["delay_mean"]),
            f"{pc.sum(actual['flights']).as_py() or 0:,} flights in all, or some differ",
        ),
    ]


def flights_of(lake: pa.Table) -> pa.Table:
    """Read flights from the lake's values; raise ArrowInvalid for a value that is not a flight."""
    lines = b"\n".join(lake["value"].to_pylist())
    if not lines:
        flights = dataset.SCHEMA.empty_table()
    else:
        options = arrow_json.ParseOptions(explicit_schema=dataset.SCHEMA, unexpected_field_behavior="error")
        reading = arrow_json.ReadOptions(block_size=4 * MIB)
        flights = arrow_json.read_json(pa.BufferReader(lines), read_options=reading, parse_options=options)
    if flights.num_rows != lake.num_rows:
        raise pa.ArrowInvalid(f"{lake.num_rows} rows hold {flights.num_rows} flights")
    for name in PLACE:
        flights = flights.append_column(name, lake[name])
    return flights.append_column("key", lake["key"].cast(pa.string()))


def hours_of(flights: pa.Table) -> pa.Table:
    """Return the expected result of the stream, computed directly from the CSV."""
    sums = flights.group_by(hours.KEY).aggregate([([], "count_all"), ("dep_delay", "count"), ("dep_delay", "sum")])
    departed, delay = sums["dep_delay_count"], pc.fill_null(sums["dep_delay_sum"], 0)
    mean = pc.divide(delay.cast(pa.float64()), pc.if_else(pc.equal(departed, 0), None, departed))
    columns = [sums[name] for name in hours.KEY]
    return pa.table([*columns, sums["count_all"], pc.subtract(sums["count_all"], departed), delay, mean], hours.SCHEMA)


def _with_key(flights: pa.Table) -> pa.Table:
    return flights.append_column("key", flights["tailnum"])


def _in_order(table: pa.Table, columns: list[str]) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in columns]).combine_chunks()


def _distinct(table: pa.Table, columns: list[str]) -> int:
    return int(table.group_by(columns).aggregate([]).num_rows)


def _ends(table: pa.Table) -> dict[int, int]:
    last = table.group_by("partition").aggregate([("offset", "max")])
    pairs = zip(last["partition"].to_pylist(), last["offset_max"].to_pylist(), strict=True)
    return {number: offset + 1 for number, offset in sorted(pairs)}


def _sums(flights: pa.Table) -> dict[str, int]:
    return {name: pc.sum(flights[name]).as_py() or 0 for name in SUMMED}


def _nearly_equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if not pc.is_null(one).equals(pc.is_null(other)):
        return False
    most = pc.max(pc.abs(pc.subtract(one, other))).as_py()
    return most is None or most <= MEAN_ERROR_MAX
