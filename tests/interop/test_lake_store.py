"""A lake in an object store: the guarantees of local folders, with a real S3 server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from object_store import ObjectStore

from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.spark.delta_lake import Fenced, Lake
from odradek.spark.lake_making import SCHEMA, table_at, vacuum
from odradek.spark.lake_place import Place
from odradek.spark.lake_reasons import BadLake
from odradek.spark.parquet import ParquetFiles
from odradek.spark.source_options import Subscribe

pytestmark = pytest.mark.spark

PATIENCE_MS = 60_000
AWAY_SECONDS = 8  # Longer than delta-rs retries on its own.
T = Subscribe(("t",))
AT = TopicPartition(TopicName("t"), 0)
ID = Uuid(bytes(range(16)))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("objects") / "store") as running:
        yield running


def place_in(store: ObjectStore, name: str) -> Place:
    return Place.of(store.url(name), store.environment)


def rows(first: int, count: int, size: int = 1) -> pa.RecordBatch:
    offsets = list(range(first, first + count))
    columns = {
        "key": [None] * count,
        "value": [offset.to_bytes(8, "big") * size for offset in offsets],
        "topic": ["t"] * count,
        "partition": [0] * count,
        "offset": offsets,
        "timestamp": [datetime(2026, 1, 1, tzinfo=UTC)] * count,
        "timestampType": [0] * count,
        "headers": [None] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def load(lake: Lake, first: int, count: int) -> None:
    with ParquetFiles(lake.place, "part") as writing:
        writing.write(rows(first, count))
    lake.commit(writing.files(), {AT: first}, {AT: first + count}, {"t": ID})


def offsets(place: Place) -> list[int]:
    return sorted(table_at(place).to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


def test_rows_and_offsets_move_together(store: ObjectStore) -> None:
    place = place_in(store, "a/lake")
    lake = Lake.open(place, T)
    load(lake, 0, 10)
    load(lake, 10, 10)
    again = Lake.open(place, T)
    assert (again.version, again.next_offset(AT), again.rows()) == (2, 20, 20)
    assert lake.compact() == 1
    load(again, 20, 5)
    assert offsets(place) == list(range(25))


def test_one_of_many_concurrent_loaders_wins_each_turn(store: ObjectStore) -> None:
    place = place_in(store, "many")
    Lake.open(place, T)

    def run(number: int) -> int:
        lake, won = Lake.open(place, T), 0
        while (first := lake.next_offset(AT) or 0) < 200:
            try:
                load(lake, first, 10)
                won += 1
            except Fenced:
                lake.refresh()
        return won

    with ThreadPoolExecutor(4) as pool:
        wins = list(pool.map(run, range(4)))
    assert sum(wins) == 20
    assert offsets(place) == list(range(200))


def test_a_large_file_is_uploaded_in_parts_and_a_failed_one_is_absent(store: ObjectStore) -> None:
    place = place_in(store, "large")
    lake = Lake.open(place, T)
    with ParquetFiles(place, "part") as writing:
        for first in range(0, 40_000, 10_000):
            writing.write(rows(first, 10_000, 200))
    (file,) = writing.files()
    assert (store.file(place.uri) / file.name).stat().st_size == file.size
    lake.commit([file], {AT: 0}, {AT: 40_000}, {"t": ID})
    assert offsets(place) == list(range(40_000))
    with pytest.raises(ZeroDivisionError), ParquetFiles(place, "part") as lost:
        lost.write(rows(0, 10_000, 200))
        raise ZeroDivisionError
    assert [path.name for path in store.file(place.uri).glob("*.parquet")] == [file.name]


def test_vacuum_removes_unreferenced_files(store: ObjectStore) -> None:
    place = place_in(store, "untidy")
    lake = Lake.open(place, T)
    load(lake, 0, 10)
    with ParquetFiles(place, "part") as writing:
        writing.write(rows(10, 10))
    assert vacuum(place, 1, execute=True) == [], "it is new, so it may be that of a batch"
    assert vacuum(place, 0, execute=True) == [writing.files()[0].name]
    assert offsets(place) == list(range(10))


def test_store_errors_get_one_sentence(store: ObjectStore) -> None:
    right = store.environment
    for url, storage, message in (
        (store.url("x"), right | {"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch"),
        ("s3://no-such-bucket/x", right, "NoSuchBucket"),
        (store.url("x"), right | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "max_retries": "0"}, "127.0.0.1:1: Conn"),
    ):
        with pytest.raises(BadLake, match=message) as refused:
            Lake.open(Place.of(url, storage), T)
        assert "\n" not in str(refused.value)
        assert "\x1b" not in str(refused.value)


def test_a_store_outage_is_waited_out(store: ObjectStore, tmp_path: Path) -> None:
    with ObjectStore(tmp_path / "other") as other:
        place = place_in(other, "lake")
        lake = Lake.open(place, T, patience_ms=PATIENCE_MS)
        load(lake, 0, 10)
        other.kill()
        with ThreadPoolExecutor(1) as pool:
            refreshed = pool.submit(lake.refresh)
            time.sleep(AWAY_SECONDS)
            other.start()
            refreshed.result()
            load(lake, 10, 10)
            with ParquetFiles(place, "part") as writing:
                writing.write(rows(20, 10))
            other.kill()
            committed = pool.submit(lake.commit, writing.files(), {AT: 20}, {AT: 30}, {"t": ID})
            time.sleep(AWAY_SECONDS)
            other.start()
            committed.result()
        assert offsets(place) == list(range(30))
        impatient = Lake.open(place, T)
        other.stop()
        for access in (impatient.refresh, partial(impatient.next_offset, AT)):
            with pytest.raises(BadLake, match=r"Failed to read lake .*: http://127\.0\.0\.1"):
                access()
