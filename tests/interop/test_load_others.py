"""`odradek load` while other writers change its table and topics."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import load_other_writer
import pytest
from load_other_writer import DELETED_ROWS, WORKS
from load_process import Load, Place
from load_runs import loaded, numbers
from spark_brokers import odradek
from spark_support import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.java]

SECONDS_MAX = 300
TIMES, BATCHES = 5, 10  # The other writer does each operation at least so often, and the loader too.


# Other writers of the table.


def test_a_load_tolerates_other_writers_of_the_table(tmp_path: Path) -> None:
    kafka, place, output, count = odradek(), Place.in_folder(tmp_path / "lake"), tmp_path / "others.txt", 100
    topic = kafka.topic(2)
    kafka.numbers(topic, 0, count, 2)
    steady = ("--continuous", "--interval-ms=0", "--batch-records=1000")
    with Load(kafka.address, place, *steady, folder=tmp_path / "load", topics=topic) as load:
        load.wait_for_version(1)
        command = [sys.executable, load_other_writer.__file__, str(place.folder), f"odradek-load:{topic}:0"]
        with output.open("w") as file, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file) as other:
            while least(output) < TIMES or (place.table().transaction_version("odradek-load") or 0) < BATCHES:
                assert (load.status, other.poll()) == (None, None), load.output()
                kafka.numbers(topic, count, 100, 2)
                count += 100
                time.sleep(0.2)
            other.communicate(timeout=SECONDS_MAX)
        assert other.returncode == 0
        assert load.terminate() == 0
        assert "another loader" not in load.output().lower()
    assert loaded(kafka, place.folder, topic)[0] == 0
    rounds = [number for what, number in done(output) if what == "delete"]
    deleted = {2 * (DELETED_ROWS * number + n) for number in rounds for n in range(DELETED_ROWS)}  # Partition 0: even.
    assert numbers(place.folder) == [n for n in range(count) if n not in deleted]


def least(output: Path) -> int:
    """Return the count of the other writer's least frequent operation."""
    counts = Counter(what for what, _ in done(output))
    return min(counts[what] for what in WORKS)


def done(output: Path) -> list[tuple[str, int]]:
    """Return the other writer's operations so far, with their rounds."""
    return [(what, number) for what, number in map(json.loads, output.read_text().splitlines())]


# Deleted topics.


def wait_until_deleted(kafka: Kafka, topic: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while topic in kafka.admin.list_topics(timeout=SECONDS_MAX).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def recreate(kafka: Kafka, topic: str, first: int) -> None:
    """Delete the topic and create it again, with other records."""
    kafka.delete(topic)
    wait_until_deleted(kafka, topic)
    kafka.topic(1, topic)
    kafka.numbers(topic, first, 10)


def test_deleted_topics_do_not_stop_a_load_of_others(tmp_path: Path) -> None:
    kafka, lake = odradek(), tmp_path / "lake"
    stays, deleted, recreated = kafka.topic(), kafka.topic(), kafka.topic()
    for number, topic in enumerate((stays, deleted, recreated)):
        kafka.numbers(topic, number * 10, 10)
    assert loaded(kafka, lake, stays, deleted, recreated)[0] == 0
    kafka.delete(deleted)
    wait_until_deleted(kafka, deleted)
    recreate(kafka, recreated, 100)
    kafka.numbers(stays, 30, 10)

    status, output = loaded(kafka, lake, stays, deleted, recreated)
    assert status == 1
    assert output.count(f"topic '{deleted}'") == 1
    assert output.count(f"topic '{recreated}' was deleted and recreated") == 1
    assert numbers(lake) == list(range(40))

    kafka.topic(1, deleted)
    status, output = loaded(kafka, lake, stays, deleted, recreated, fail_on_data_loss=False)
    assert (status, output.count(f"topic '{recreated}'")) == (0, 1), output
    assert numbers(lake) == [*range(40), *range(100, 110)]


def wait_for_rows(load: Load, count: int) -> None:
    """Wait until the table has so many rows, or the load has ended."""
    load.wait_for_version(0)
    load.until(lambda: load.status is not None or load.place.table().count() == count, f"{count} rows")


@pytest.mark.nightly
def test_topics_deleted_during_a_load_do_not_stop_it(tmp_path: Path) -> None:
    kafka, place = odradek(), Place.in_folder(tmp_path / "lake")
    topics = stays, deleted, recreated = kafka.topic(), kafka.topic(), kafka.topic()
    for number, topic in enumerate(topics):
        kafka.numbers(topic, number * 10, 10)
    steady = ("--continuous", "--interval-ms=100")
    with Load(kafka.address, place, *steady, folder=tmp_path / "load", topics=",".join(topics)) as load:
        wait_for_rows(load, 30)
        kafka.delete(deleted)
        recreate(kafka, recreated, 100)
        for turn in range(3):
            kafka.numbers(stays, 30 + turn * 10, 10)
            wait_for_rows(load, 40 + turn * 10)
        assert load.terminate() == 0
        assert load.output().count(f"topic '{deleted}'") == 1
        assert load.output().count(f"topic '{recreated}' was deleted and recreated") == 1
        assert "Traceback" not in load.output()
    assert numbers(place.folder) == list(range(60))
