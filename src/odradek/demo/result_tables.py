"""The tables printed at the end: the lake and the derived topic, with names and weather."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from odradek.demo import dataset

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WORST_HOURS = 8
# An hour with three flights is not worth a table.
FLIGHTS_MIN = 15


def show(console: Console, lake: pa.Table, flights: pa.Table, hours: pa.Table, ends: Mapping[int, int]) -> None:
    """Print the tables of the flights, as read from the lake, and of the derived topic."""
    columns = ["partition>", "offsets in the topic>", "rows in the lake>"]
    console.print(_table("The topic and the lake", columns, _offsets(lake, ends)))
    columns = ["month", "flights>", "cancelled>", "mean delay>", "miles flown>"]
    console.print(_table("By month, from the lake", columns, _months(flights)))
    columns = ["carrier", "", "flights>", "cancelled>", "mean delay>"]
    console.print(_table("By carrier, from the derived topic", columns, _carriers(hours)))
    columns = ["hour (UTC)", "airport", "flights>", "mean delay>", "wind>", "rain>", "sight>"]
    console.print(_table("The worst hours, from the derived topic, and their weather", columns, _worst(hours)))


def _offsets(lake: pa.Table, ends: Mapping[int, int]) -> Iterator[list[str]]:
    counts = pc.value_counts(lake["partition"]).to_pylist()
    rows = {count["values"]: count["counts"] for count in counts}
    for number, end in sorted(ends.items()):
        yield [str(number), f"0 to {end - 1:,}" if end else "none", f"{rows.get(number, 0):,}"]
    yield ["all", f"{sum(ends.values()):,}", f"{lake.num_rows:,}"]


def _months(flights: pa.Table) -> Iterator[list[str]]:
    sums = flights.group_by("month").aggregate(
        [([], "count_all"), ("dep_delay", "count"), ("dep_delay", "mean"), ("distance", "sum")]
    )
    for row in sums.sort_by("month").to_pylist():
        cancelled = row["count_all"] - row["dep_delay_count"]
        yield [
            MONTHS[row["month"] - 1],
            f"{row['count_all']:,}",
            _share(cancelled, row["count_all"]),
            _minutes(row["dep_delay_mean"]),
            f"{row['distance_sum']:,}",
        ]


def _carriers(hours: pa.Table) -> Iterator[list[str]]:
    names = dataset.airline_names()
    for row in _by_delay(hours, ["carrier"]).to_pylist():
        yield [row["carrier"], names.get(row["carrier"], ""), *_figures(row)]


def _worst(hours: pa.Table) -> Iterator[list[str]]:
    names, weather = dataset.airport_names(), dataset.weather()
    table = _by_delay(hours, ["time_hour", "origin"])
    table = table.filter(pc.greater_equal(table["flights_sum"], FLIGHTS_MIN)).slice(0, WORST_HOURS)
    # A join does not preserve order.
    table = table.join(weather, ["time_hour", "origin"]).sort_by([("mean", "descending")])
    for row in table.to_pylist():
        flights, _, delay = _figures(row)
        yield [
            f"{datetime.fromisoformat(row['time_hour']):%b %d %H:%M}",
            names.get(row["origin"], row["origin"]),
            flights,
            delay,
            _measured(row["wind_speed"], "{:.0f} mph"),
            _measured(row["precip"], "{:.2f} in"),
            _measured(row["visib"], "{:.0f} mi"),
        ]


def _by_delay(hours: pa.Table, columns: list[str]) -> pa.Table:
    """Return the worst delays first.

    A mean of means would be wrong, so the topic also contains sums.
    """
    sums = hours.group_by(columns).aggregate([("flights", "sum"), ("cancelled", "sum"), ("delay_sum", "sum")])
    departed = pc.subtract(sums["flights_sum"], sums["cancelled_sum"])
    mean = pc.divide(sums["delay_sum_sum"].cast(pa.float64()), pc.if_else(pc.equal(departed, 0), None, departed))
    order: list[tuple[str, str]] = [("mean", "descending"), *((name, "ascending") for name in columns)]
    return sums.append_column("mean", mean).sort_by(order)


def _figures(row: Mapping[str, int]) -> list[str]:
    cancelled = _share(row["cancelled_sum"], row["flights_sum"])
    return [f"{row['flights_sum']:,}", cancelled, _minutes(row["mean"])]


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Create a table; a column whose name ends in > is a number, aligned to the right."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _minutes(value: float | None) -> str:
    return _measured(value, "{:.1f} min")


def _measured(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
