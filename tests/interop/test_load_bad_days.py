"""`odradek load` while everything around it is killed or stopped: each committed record is in the table once.

That holds at every version of the table. A seed determines the plan of faults, and the plan what the loader may do:
continue, or end as it should.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")
pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from load_checks import check_table
from load_days import TOPIC, BadDays, place
from load_faults import FAULTS, OF_THE_STORE, befall, plan
from load_runs import loaded
from load_writers import PARTITIONS, Writers, committed_records, differences
from workload.brokers import broker, create_topics

from support.serving import Serving

pytestmark = [pytest.mark.spark, pytest.mark.java]

READ_SECONDS_MAX = 300


def live_through(kind: str, faults: Sequence[str], folder: Path, seed: int) -> None:
    random = Random(seed)
    done: list[str] = []
    with broker("odradek", folder / "broker") as running, place(kind, folder) as (where, store):
        assert isinstance(running, Serving)
        create_topics(running.address, {TOPIC: PARTITIONS})
        with BadDays(running, store, where, folder, random) as days:
            try:
                with Writers(running.address, TOPIC, seed) as writers:
                    for name in faults:
                        done.append(name)
                        befall(days, name)
                    days.progress()
                assert days.load.terminate() == 0
                status, output = loaded(running, where.url, TOPIC, storage=where.storage)
                assert status == 0, output
                records = committed_records(running.address, TOPIC, time.monotonic() + READ_SECONDS_MAX)
                assert not differences(writers.written, records)
                check_table(where, TOPIC, records, random)
                assert "Traceback" not in days.outputs() + output
            finally:
                print(f"seed {seed}, {len(done)} of {len(faults)} faults: {', '.join(done)}")
                print(f"{writers.written}; version {where.version()}\n{days.outputs()}")


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        ("folder", ("broker killed", "loader killed", "worker killed")),
        ("store", ("store killed", "loader killed", "store paused")),
    ],
    ids=["folder", "store"],
)
def test_some_faults_lose_and_duplicate_no_record(tmp_path: Path, kind: str, faults: Sequence[str]) -> None:
    live_through(kind, faults, tmp_path, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("kind", ["folder", "store"])
def test_many_faults_lose_and_duplicate_no_record(tmp_path: Path, kind: str, seed: int) -> None:
    kinds = [name for name in FAULTS if kind == "store" or name not in OF_THE_STORE]
    live_through(kind, plan(kinds, 32, Random(seed)), tmp_path, seed)
