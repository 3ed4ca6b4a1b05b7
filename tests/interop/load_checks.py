"""The expected table of `odradek load`, at every version, compared with the topic's contents."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
from load_process import Place

Records = dict[int, dict[int, str]]  # For each partition values by offset.
Rows = list[tuple[int, int, str]]  # Partition, offset, value.
VERSIONS_MAX = 100  # The checked versions, including the last.


def check_table(place: Place, topic: str, records: Records, random: Random) -> None:
    """Check that the newest version has all records once, and each version those below its offsets."""
    last = place.version()
    files: dict[str, Rows] = {}
    chosen = random.sample(range(last), min(last, VERSIONS_MAX)) if last > 0 else []
    for version in [*sorted(chosen), last]:
        _check_version(place, version, topic, records, files)
    table = place.table()
    for partition, values in records.items():
        loaded = table.transaction_version(f"odradek-load:{topic}:{partition}") or 0
        assert loaded > max(values, default=-1), f"partition {partition} is loaded up to {loaded} only"


def _check_version(place: Place, version: int, topic: str, records: Records, files: dict[str, Rows]) -> None:
    """Check that the rows are those below the offsets in the version's txn actions; `files` caches file contents."""
    table = place.table(version)
    rows: Rows = []
    for uri in table.file_uris():
        if uri not in files:
            files[uri] = _rows(place.folder / uri.removeprefix(place.url).lstrip("/"))
        rows += files[uri]
    for partition, values in records.items():
        loaded = table.transaction_version(f"odradek-load:{topic}:{partition}") or 0
        offsets = sorted(values)
        expected = [(offset, values[offset]) for offset in offsets[: bisect_left(offsets, loaded)]]
        seen = sorted((offset, value) for at, offset, value in rows if at == partition)
        assert seen == expected, (
            f"version {version}, partition {partition}, loaded up to {loaded}: {_difference(seen, expected)}"
        )


def _rows(path: Path) -> Rows:
    read = pq.read_table(path, columns=["partition", "offset", "value"]).to_pylist()
    rows = [(row["partition"], row["offset"], row["value"].decode()) for row in read]
    last: dict[int, int] = {}
    for partition, offset, _ in rows:
        assert last.get(partition, -1) < offset, f"{path.name}: {offset} of partition {partition} after {last}"
        last[partition] = offset
    return rows


def _difference(seen: list[tuple[int, str]], expected: list[tuple[int, str]]) -> str:
    missing, strange = sorted(set(expected) - set(seen)), sorted(set(seen) - set(expected))
    twice = len(seen) - len(set(seen))
    return f"{len(missing)} missing {missing[:5]}, {len(strange)} too many {strange[:5]}, {twice} twice"
