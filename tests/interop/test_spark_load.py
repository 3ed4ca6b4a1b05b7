"""`odradek load`: each record once in the table, whatever is killed: the driver, a task, the broker."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from io import StringIO
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from deltalake import DeltaTable
from rich.console import Console
from spark_brokers import BROKERS, STARTERS, apache_kafka, folder, odradek
from spark_support import Kafka, Message, loader_command, spark

from odradek.spark.load import LoadOptions, run
from support.serving import Serving

pytestmark = [pytest.mark.spark, pytest.mark.java]

SECONDS_MAX = 600  # A limit for a hang: on a slow and busy machine two drivers take minutes for their start.


@pytest.fixture(params=BROKERS)
def kafka(request: pytest.FixtureRequest) -> Kafka:
    return STARTERS[request.param]()


class Loaded:
    """One run in this process and its session: the exit status and the output."""

    def __init__(self, broker: Kafka, lake: Path | str, *topics: str, **options: object) -> None:
        spark()
        console = Console(record=True, width=1000, file=StringIO())
        self.status = run(LoadOptions(broker.address, lake, topics, **options), console)  # type: ignore[arg-type]
        self.output = console.export_text()


def numbers(lake: Path) -> list[int]:
    return sorted(int(value) for value in DeltaTable(lake).to_pyarrow_table(columns=["value"])["value"].to_pylist())


def no_offset_twice(lake: Path) -> bool:
    rows = DeltaTable(lake).to_pyarrow_table(columns=["topic", "partition", "offset"])
    counts = rows.group_by(["topic", "partition", "offset"]).aggregate([([], "count_all")])
    return counts.num_rows == rows.num_rows


def test_a_second_load_continues_the_first(kafka: Kafka, tmp_path: Path) -> None:
    topics = kafka.topic(3), kafka.topic()
    kafka.numbers(topics[0], 0, 1_000, 3)
    kafka.numbers(topics[1], 1_000, 100)
    lake = tmp_path / "lake"
    first = Loaded(kafka, lake, *topics, max_records_per_batch=400)
    assert (first.status, numbers(lake)) == (0, list(range(1_100))), first.output
    assert DeltaTable(lake).version() == 3, "400, 400 and 300"
    assert "Loaded 1,100 records" in first.output
    assert Loaded(kafka, lake, *topics).status == 0
    assert DeltaTable(lake).version() == 3, "nothing new is no commit"
    kafka.numbers(topics[0], 1_100, 100, 3)
    assert Loaded(kafka, lake, *topics, optimize=True).status == 0
    assert numbers(lake) == list(range(1_200))
    assert no_offset_twice(lake)
    assert len(DeltaTable(lake).file_uris()) == 1


def test_every_column_equals_the_sources(tmp_path: Path) -> None:
    kafka = odradek()
    topic = kafka.topic(2)
    kafka.produce(
        topic,
        (
            Message(
                b"%d" % n, None if n % 3 else b"k%d" % n, n % 2, 1_600_000_000_000 + n, (("h", b"%d" % n),) * (n % 3)
            )
            for n in range(100)
        ),
    )
    lake = tmp_path / "lake"
    assert Loaded(kafka, lake, topic).status == 0
    seen = spark().read.parquet(*DeltaTable(lake).file_uris())
    source = kafka.read(subscribe=topic, includeHeaders="true")
    assert seen.schema == source.schema
    assert sorted(map(str, seen.collect())) == sorted(map(str, source.collect()))


def test_a_pattern_loads_topics_created_later(tmp_path: Path) -> None:
    kafka = odradek()
    prefix = kafka.topic()
    kafka.numbers(prefix, 0, 10)
    lake = tmp_path / "lake"
    assert Loaded(kafka, lake, pattern=f"{prefix}.*").status == 0
    kafka.numbers(kafka.topic(2, f"{prefix}-b"), 10, 10, 2)
    assert Loaded(kafka, lake, pattern=f"{prefix}.*").status == 0
    assert numbers(lake) == list(range(20))


def test_refused_loads_get_one_sentence(tmp_path: Path) -> None:
    kafka = odradek()
    topic, other = kafka.topic(), kafka.topic()
    kafka.numbers(topic, 0, 10)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "holiday.jpg").touch()
    assert Loaded(kafka, tmp_path / "lake", topic).status == 0
    no_broker, ssl = Kafka("127.0.0.1:1", is_odradek=True), {"security.protocol": "SSL"}
    for loaded, status, message in (
        (Loaded(kafka, tmp_path / "lake", other), 1, "is loaded from"),
        (Loaded(kafka, tmp_path / "full", topic), 1, "is not a Delta table"),
        (Loaded(kafka, tmp_path / "new", "no-such-topic"), 1, "topic 'no-such-topic' does not exist"),
        (Loaded(no_broker, tmp_path / "new", topic, patience_ms=1), 1, "cannot connect to 127.0.0.1:1"),
        (Loaded(kafka, tmp_path / "new"), 2, "choose what to load"),
        (Loaded(kafka, "dbfs:/new", topic), 2, "is not supported: use a local directory or s3://"),
        (Loaded(kafka, tmp_path / "new", pattern="("), 2, "invalid regular expression"),
        (Loaded(kafka, tmp_path / "new", topic, patience_ms=1, kafka=ssl), 1, "is it an SSL listener?"),
        (Loaded(kafka, tmp_path / "new", topic, kafka={"security.protocol": "SASL_SSL"}), 2, "PLAINTEXT and SSL"),
    ):
        assert loaded.status == status, loaded.output
        assert message in loaded.output
        assert loaded.output.count("\n") == 1
    assert not Path("dbfs:").exists()
    assert not (tmp_path / "new").exists(), "nothing is made before it is known to be right"


def test_a_recreated_topic_is_refused(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.numbers(topic, 0, 10)
    assert Loaded(kafka, tmp_path / "lake", topic).status == 0
    kafka.delete(topic)
    deadline = time.monotonic() + SECONDS_MAX
    while topic in kafka.admin.list_topics(timeout=SECONDS_MAX).topics and time.monotonic() < deadline:
        time.sleep(0.1)
    kafka.topic(1, topic)
    kafka.numbers(topic, 100, 50)
    again = Loaded(kafka, tmp_path / "lake", topic)
    assert again.status == 1
    assert "was deleted and recreated" in again.output
    assert numbers(tmp_path / "lake") == list(range(10))


def test_records_removed_before_the_load_are_reported(tmp_path: Path) -> None:
    kafka, lake = apache_kafka(), tmp_path / "lake"
    topic = kafka.topic()
    kafka.numbers(topic, 0, 10)
    assert Loaded(kafka, lake, topic).status == 0
    kafka.numbers(topic, 10, 10)
    for done in kafka.admin.delete_records([TopicPartition(topic, 0, 15)]).values():
        done.result(SECONDS_MAX)
    strict = Loaded(kafka, lake, topic)
    assert strict.status == 1
    assert f"partition {topic}-0: 5 offsets (10 to 14) were deleted before they were loaded" in strict.output
    assert Loaded(kafka, lake, topic, fail_on_data_loss=False).status == 0
    assert numbers(lake) == [*range(10), *range(15, 20)]


def test_only_committed_transactions_are_loaded(tmp_path: Path) -> None:
    kafka = apache_kafka()
    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions(SECONDS_MAX)
    for turn in range(4):
        producer.begin_transaction()
        for n in range(10):
            producer.produce(topic, b"%d" % (turn * 10 + n), partition=0)
        (producer.abort_transaction if turn % 2 else producer.commit_transaction)()
    assert Loaded(kafka, tmp_path / "lake", topic, max_records_per_batch=7).status == 0
    assert numbers(tmp_path / "lake") == [*range(10), *range(20, 30)]


class Load:
    """A load in a process of its own."""

    def __init__(self, address: str, lake: Path, *topics: str, **options: object) -> None:
        self.lake = lake
        self.log = folder() / "load.log"
        with self.log.open("wb") as log:
            command = loader_command(address, lake, *topics, **options)
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def wait_for(self, version: int, seconds: float = SECONDS_MAX) -> None:
        """Wait until the table has this version."""
        deadline = time.monotonic() + seconds
        path = self.lake / "_delta_log" / f"{version:020d}.json"
        while not path.exists():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"no version {version} in time: {self.log.read_text()}"
            time.sleep(0.005)

    def workers(self) -> list[int]:
        """Return the Python processes that run tasks."""
        found = subprocess.run(["ps", "-eo", "pid,sid,args"], capture_output=True, text=True, check=True).stdout
        rows = [line.split(None, 2) for line in found.splitlines()[1:]]
        return [int(pid) for pid, sid, args in rows if int(sid) == self.process.pid and "pyspark.daemon" in args]

    def kill(self) -> None:
        """Kill the driver with kill -9; its Java then ends, and can commit nothing before."""
        self.process.kill()
        self.process.wait()

    def end(self, seconds: float = SECONDS_MAX) -> int:
        return self.process.wait(seconds)


def test_each_record_once_whatever_is_killed(tmp_path: Path) -> None:
    """Kill tasks, the broker, and the driver twice; then stop in order, and load the rest."""
    lake, count, chance = tmp_path / "lake", 90_000, random.Random(20130101)
    with Serving(folder()) as broker:
        kafka = Kafka(broker.address, is_odradek=True)
        topic = kafka.topic(3)
        kafka.numbers(topic, 0, count, 3)

        load = Load(kafka.address, lake, topic, max_records_per_batch=1_500, continuous=True)
        for version in (1, 3, 5):
            load.wait_for(version)
            for pid in load.workers():
                os.kill(pid, signal.SIGKILL)
        load.wait_for(7)
        broker.kill()
        time.sleep(1)
        broker.start()
        load.wait_for(9)
        time.sleep(chance.random() / 4)
        load.kill()

        load = Load(kafka.address, lake, topic, max_records_per_batch=1_500, continuous=True)
        load.wait_for(DeltaTable(lake).version() + chance.randrange(1, 5))
        time.sleep(chance.random() / 4)
        load.kill()

        load = Load(kafka.address, lake, topic, max_records_per_batch=1_500, continuous=True)
        load.wait_for(DeltaTable(lake).version() + 1)
        load.process.terminate()
        assert load.end() == 0, load.log.read_text()
        assert "the next run continues after them" in load.log.read_text()

        assert 0 < len(numbers(lake)) < count, "all of this happened on the way"
        assert Loaded(kafka, lake, topic).status == 0
    assert numbers(lake) == list(range(count))
    assert no_offset_twice(lake)


@pytest.mark.nightly
def test_one_of_two_drivers_gives_way(tmp_path: Path) -> None:
    kafka, lake, count = odradek(), tmp_path / "lake", 60_000
    topic = kafka.topic(3)
    kafka.numbers(topic, 0, count, 3)
    both = [Load(kafka.address, lake, topic, max_records_per_batch=1_500) for _ in range(2)]
    statuses = sorted(load.end() for load in both)
    output = [load.log.read_text() for load in both]
    assert statuses in ([0, 1], [0, 0]), output
    if statuses == [0, 1]:
        assert any("another loader writes to" in text and "No records were loaded twice" in text for text in output), (
            output
        )
    assert numbers(lake) == list(range(count))
    assert no_offset_twice(lake)
