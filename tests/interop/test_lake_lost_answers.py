"""A lake in an object store whose response to a commit is lost: the loader still learns the outcome."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import lossy_line
import pyarrow as pa
import pytest
from object_store import ObjectStore

from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.spark.delta_lake import Lake
from odradek.spark.lake_making import SCHEMA, table_at
from odradek.spark.lake_place import Place
from odradek.spark.parquet import ParquetFiles
from odradek.spark.source_options import Subscribe

pytestmark = pytest.mark.spark

TOPICS, AT, ID = Subscribe(("t",)), TopicPartition(TopicName("t"), 0), Uuid(bytes(range(16)))


class Line:
    """A lossy line to a store, for `with`."""

    def __init__(self, store: ObjectStore) -> None:
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, lossy_line.__file__, str(store.port)]
        self._process = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.endpoint = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._read_line()}"}

    def lose(self, what: str) -> None:
        """Lose the next commit's request or response."""
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)

    def has_lost(self) -> bool:
        """Return True once the request or response was lost; wait for that."""
        return self._read_line() == "lost"

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("objects") / "store") as running:
        yield running


def load(lake: Lake, first: int) -> None:
    """Load ten records of the partition, from that offset on."""
    columns = {name: [None] * 10 for name in ("key", "value", "headers")} | {
        "topic": ["t"] * 10,
        "partition": [0] * 10,
        "offset": list(range(first, first + 10)),
        "timestamp": [datetime(2026, 1, 1, tzinfo=UTC)] * 10,
        "timestampType": [0] * 10,
    }
    with ParquetFiles(lake.place, "part") as writing:
        writing.write(pa.RecordBatch.from_pydict(columns, schema=SCHEMA))
    lake.commit(writing.files(), {AT: first}, {AT: first + 10}, {"t": ID})


@pytest.mark.parametrize("what", ["request", "answer"])
def test_a_commit_with_a_lost_message_is_done_once(store: ObjectStore, what: str) -> None:
    with Line(store) as line:
        place = Place.of(store.url(what), store.environment | line.endpoint)
        lake = Lake.open(place, TOPICS, patience_ms=60_000)
        load(lake, 0)
        line.lose(what)
        load(lake, 10)
        assert line.has_lost()
        assert (lake.version, lake.next_offset(AT)) == (2, 20)
        load(lake, 20)
        offsets = table_at(place).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
        assert sorted(offsets) == list(range(30))
    assert len(list(store.file(place.uri).glob("*.parquet"))) == 3
