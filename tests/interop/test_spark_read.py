"""The source, batch and stream, in a real Spark with real brokers and records written by librdkafka."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType
from spark_brokers import BROKERS, STARTERS, apache_kafka, odradek
from spark_support import SECONDS_MAX, Kafka, Message, raises_one_sentence, spark, values

from support.serving import Serving

pytestmark = [pytest.mark.spark, pytest.mark.java]

# The schema of spark.read.format("kafka") with includeHeaders.
SPARKS_OWN_SCHEMA = """
{"type":"struct","fields":[
  {"name":"key","type":"binary","nullable":true,"metadata":{}},
  {"name":"value","type":"binary","nullable":true,"metadata":{}},
  {"name":"topic","type":"string","nullable":true,"metadata":{}},
  {"name":"partition","type":"integer","nullable":true,"metadata":{}},
  {"name":"offset","type":"long","nullable":true,"metadata":{}},
  {"name":"timestamp","type":"timestamp","nullable":true,"metadata":{}},
  {"name":"timestampType","type":"integer","nullable":true,"metadata":{}},
  {"name":"headers","type":{"type":"array","containsNull":true,"elementType":{"type":"struct","fields":[
    {"name":"key","type":"string","nullable":true,"metadata":{}},
    {"name":"value","type":"binary","nullable":true,"metadata":{}}]}},"nullable":true,"metadata":{}}]}
"""


@pytest.fixture(params=BROKERS)
def kafka(request: pytest.FixtureRequest) -> Kafka:
    return STARTERS[request.param]()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(value or b"") for value in values(frame))


def run(frame: DataFrame, folder: Path, **options: str) -> StreamingQuery:
    """Write all available records into Parquet below `folder`."""
    query = (
        frame.writeStream.format("parquet")
        .options(path=str(folder / "out"), checkpointLocation=str(folder / "checkpoint"), **options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def written(folder: Path) -> list[int]:
    return numbers(spark().read.parquet(str(folder / "out")))


def batches(query: StreamingQuery) -> list[int]:
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_the_schema_equals_that_of_sparks_own_source() -> None:
    kafka = odradek()
    own = StructType.fromJson(json.loads(SPARKS_OWN_SCHEMA))
    assert kafka.read(subscribe="any", includeHeaders="true").schema == own
    assert kafka.read(subscribe="any").schema == StructType(own.fields[:-1])
    assert kafka.read(subscribe="any", includeKey="false", includeValue="false").columns == own.fieldNames()[2:-1]


def test_every_field_of_a_record_is_read(kafka: Kafka) -> None:
    topic = kafka.topic(2)
    kafka.produce(
        topic,
        [
            Message(b"one", b"k", 0, 1_600_000_000_123, (("a", b"1"), ("a", None), ("\u00e9", b""))),
            Message(None, None, 1, 1_600_000_000_456),
            Message(b"", b"", 1, 1_600_000_000_789),
        ],
    )
    rows = kafka.read(subscribe=topic, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [tuple(row)[:5] for row in rows] == [
        (b"k", b"one", topic, 0, 0),
        (None, None, topic, 1, 0),
        (b"", b"", topic, 1, 1),
    ]
    assert rows[0].timestamp.astimezone(UTC) == datetime(2020, 9, 13, 12, 26, 40, 123_000, tzinfo=UTC)
    assert [row.timestampType for row in rows] == [0, 0, 0]
    assert [tuple(header) for header in rows[0].headers] == [("a", b"1"), ("a", None), ("\u00e9", b"")]
    assert rows[1].headers is None


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(kafka: Kafka, codec: str) -> None:
    topic = kafka.topic()
    kafka.produce(topic, (Message(b"%d" % n) for n in range(5_000)), **{"compression.type": codec})
    assert numbers(kafka.read(subscribe=topic)) == list(range(5_000))


def test_topics_are_selected_in_three_ways(kafka: Kafka) -> None:
    first, second = kafka.topic(2), kafka.topic()
    kafka.numbers(first, 0, 10, 2)
    kafka.numbers(second, 100, 5)
    assert numbers(kafka.read(subscribe=f"{first},{second}")) == [*range(10), *range(100, 105)]
    assert numbers(kafka.read(subscribePattern=f"{first[:-1]}.|{second}")) == [*range(10), *range(100, 105)]
    assert numbers(kafka.read(assign=json.dumps({first: [1]}))) == [1, 3, 5, 7, 9]
    assert numbers(kafka.read(subscribePattern="nothing-is-called-this")) == []


def test_offsets_and_times_limit_a_batch(kafka: Kafka) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, (Message(b"%d" % n, partition=n % 2, timestamp=1000 + n // 2) for n in range(20)))

    def read(**options: str) -> list[int]:
        return numbers(kafka.read(subscribe=topic, **options))

    assert read(startingOffsets=json.dumps({topic: {"0": 8, "1": -2}})) == [1, 3, 5, 7, 9, 11, 13, 15, 16, 17, 18, 19]
    assert read(endingOffsets=json.dumps({topic: {"0": 1, "1": -1}})) == [0, *range(1, 20, 2)]
    assert read(startingTimestamp="1008") == [16, 17, 18, 19]
    assert read(startingTimestamp="1002", endingTimestamp="1004") == [4, 5, 6, 7]
    assert read(endingTimestamp="99999") == list(range(20)), "no record so late: up to the end"
    assert read(startingOffsetsByTimestamp=json.dumps({topic: {"0": 1009, "1": 1005}})) == [11, 13, 15, 17, 18, 19]
    assert read(startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest") == []
    with raises_one_sentence("has no record at or after time 5000"):
        read(startingTimestamp="5000")
    with raises_one_sentence(f"{topic}-0: starting offset 100 is after the log end offset 10"):
        read(startingOffsets=json.dumps({topic: {"0": 100, "1": -2}}))
    with raises_one_sentence(f"{topic}-0: starting offset 8 is after the ending offset 2"):
        read(startingTimestamp="1008", endingTimestamp="1002")


def test_large_partitions_are_split_and_small_ones_combined() -> None:
    kafka = odradek()
    topic = kafka.topic(3)
    kafka.numbers(topic, 0, 3_000, 3)
    assert kafka.read(subscribe=topic).rdd.getNumPartitions() == 1
    for options, tasks in (({"minPartitions": "6"}, 6), ({"maxRecordsPerPartition": "300"}, 12)):
        frame = kafka.read(subscribe=topic, **options)
        assert frame.rdd.getNumPartitions() == tasks
        assert numbers(frame) == list(range(3_000))


def test_refused_reads_get_one_sentence() -> None:
    kafka = odradek()
    for options, message in (
        ({"subscribe": "no-such-topic"}, "Topic 'no-such-topic' does not exist on these brokers."),
        ({}, "exactly one of the options assign, subscribe and subscribePattern; none is set"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "startingOffsets must not be latest"),
        (
            {"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "100"},
            "refused",
        ),
        ({"subscribe": "a/b"}, "a/b"),
        ({"subscribe": "t", "kafka.security.protocol": "SASL_SSL"}, "Option kafka.security.protocol=SASL_SSL is not"),
    ):
        with raises_one_sentence(message):
            kafka.read(**options).count()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "no-such-topic"}, "Topic 'no-such-topic' does not exist on these brokers."),
        ({}, "exactly one of the options assign, subscribe and subscribePattern; none is set"),
        ({"subscribe": "t", "endingOffsets": "latest"}, "Option endingOffsets is only valid in batch queries"),
        ({"subscribe": "t", "includeKey": "perhaps"}, "Option includeKey must be true or false, not 'perhaps'"),
        (
            {"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "100"},
            "cannot connect to 127.0.0.1:1: connection refused",
        ),
    ],
)
def test_refused_streams_get_one_sentence(options: dict[str, str], message: str, tmp_path: Path) -> None:
    with raises_one_sentence(message):
        run(odradek().stream(**options), tmp_path)


def test_a_damaged_batch_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with Serving(tmp_path) as broker:
        kafka = Kafka(broker.address, is_odradek=True)
        topic = kafka.topic()
        kafka.numbers(topic, 0, 100)
        (log,) = tmp_path.rglob(f"{topic}-0/*.log")
        with log.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(bytes([log.read_bytes()[-1] ^ 0xFF]))
        with raises_one_sentence("CORRUPT_MESSAGE"):
            kafka.read(subscribe=topic).collect()
        with raises_one_sentence("CORRUPT_MESSAGE"):
            run(kafka.stream(subscribe=topic), tmp_path)


def test_sql_needs_no_python() -> None:
    kafka = odradek()
    topic = kafka.topic()
    kafka.numbers(topic, 0, 7)
    spark().sql(
        f"CREATE OR REPLACE TEMPORARY VIEW seen USING odradek"
        f" OPTIONS (`kafka.bootstrap.servers` '{kafka.address}', subscribe '{topic}')"
    )
    assert spark().sql("SELECT sum(int(string(value))) AS total FROM seen").collect()[0].total == 21


def test_a_stream_obeys_its_rate_limit_and_resumes(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    kafka.numbers(topic, 0, 1_000, 2)
    query = run(kafka.stream(subscribe=topic, maxOffsetsPerTrigger="300"), tmp_path)
    assert batches(query) == [300, 300, 300, 100]
    assert json.loads(query.lastProgress.sources[0].endOffset) == {topic: {"0": 500, "1": 500}}
    kafka.numbers(topic, 1_000, 500, 2)
    assert batches(run(kafka.stream(subscribe=topic), tmp_path)) == [500]
    assert batches(run(kafka.stream(subscribe=topic), tmp_path)) == [], "nothing new is no batch"
    assert written(tmp_path) == list(range(1_500))


def test_an_unfinished_batch_is_read_again_unchanged(tmp_path: Path) -> None:
    kafka = odradek()
    topic = kafka.topic()
    kafka.numbers(topic, 0, 100)
    first = tmp_path / "first"
    run(kafka.stream(subscribe=topic), first)
    (first / "checkpoint" / "commits" / "0").unlink()
    kafka.numbers(topic, 100, 50)
    query = run(kafka.stream(subscribe=topic), first)
    # The parquet sink knows batch 0 and writes nothing for it; the batch itself is the same range, then comes the rest.
    assert [json.loads(progress.sources[0].endOffset)[topic]["0"] for progress in query.recentProgress] == [100, 150]
    assert written(first) == list(range(150))


def test_a_stream_killed_in_its_first_batch_restarts_at_its_start(tmp_path: Path) -> None:
    """It started at the end, which is later on restart: records written in between are read."""
    kafka = odradek()
    topic, failed, seen = kafka.topic(), list[bytes | None](), list[bytes | None]()

    def fail(rows: DataFrame, batch: int) -> None:
        failed.extend(values(rows))
        if failed:
            raise RuntimeError("the process dies here")

    def keep(rows: DataFrame, batch: int) -> None:
        seen.extend(values(rows))

    def started(take: Callable[[DataFrame, int], None]) -> StreamingQuery:
        stream = kafka.stream(subscribe=topic, startingOffsets="latest")
        return stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).start()

    with Trickle(kafka, topic):
        query = started(fail)
        with pytest.raises(PySparkException, match="the process dies here"):
            query.awaitTermination(SECONDS_MAX)
        query = started(keep)
        wait_for(lambda: len(seen) > len(failed))
        query.stop()
    assert seen[: len(failed)] == failed


class Trickle:
    """A steady writer of records, for `with`."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._send = partial(kafka.numbers, topic)
        self._is_over = Event()
        self._thread = Thread(target=self._run)

    def _run(self) -> None:
        for number in count():
            if self._is_over.wait(0.01):
                return
            self._send(number, 1)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def test_a_running_stream_finds_new_records_partitions_and_topics(tmp_path: Path) -> None:
    kafka = odradek()
    prefix = kafka.topic()
    query = (
        kafka.stream(subscribePattern=f"{prefix}.*")
        .writeStream.format("memory")
        .queryName("seen_live")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        kafka.numbers(prefix, 0, 10)
        wait_for(lambda: numbers(spark().table("seen_live")) == list(range(10)))
        kafka.numbers(kafka.topic(2, f"{prefix}-more"), 10, 10, 2)
        wait_for(lambda: numbers(spark().table("seen_live")) == list(range(20)))
        before = query.lastProgress.batchId
        time.sleep(1.5)
        assert query.lastProgress.batchId == before, "an idle stream makes no batches"
    finally:
        query.stop()


def test_few_records_wait_for_minoffsetspertrigger(tmp_path: Path) -> None:
    """With a delay of an hour the batch waits for enough records, with one of a second until that is over."""
    kafka = odradek()
    for delay, more, sizes in (("1h", 95, [5, 100]), ("1s", 0, [5, 5])):
        topic = kafka.topic()
        kafka.numbers(topic, 0, 5)
        query = (
            kafka.stream(subscribe=topic, minOffsetsPerTrigger="100", maxTriggerDelay=delay)
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / delay))
            .start()
        )
        try:
            wait_for(lambda query=query: batches(query) == [5])
            kafka.numbers(topic, 5, 5)
            if more:
                time.sleep(2)  # A stream that does not wait would take the five now.
                kafka.numbers(topic, 10, more)
            wait_for(lambda query=query: len(batches(query)) == 2)
            assert batches(query) == sizes
        finally:
            query.stop()


def test_a_checkpoint_of_another_topic_is_refused(tmp_path: Path) -> None:
    kafka = odradek()
    first, second = kafka.topic(), kafka.topic()
    kafka.numbers(first, 0, 10)
    kafka.numbers(second, 0, 10)
    run(kafka.stream(subscribe=first), tmp_path)
    with raises_one_sentence(f"contains offsets of {first}-0, which this query does not read"):
        run(kafka.stream(subscribe=second), tmp_path)


def test_a_recreated_topic_is_handled(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.numbers(topic, 0, 100)
    run(kafka.stream(subscribe=topic), tmp_path)
    kafka.delete(topic)
    wait_for(lambda: topic not in kafka.admin.list_topics(timeout=SECONDS_MAX).topics)
    kafka.topic(1, topic)
    kafka.numbers(topic, 1_000, 30)
    with raises_one_sentence(f"{topic}-0 was read up to offset 100, but its log now ends at"):
        run(kafka.stream(subscribe=topic), tmp_path)
    run(kafka.stream(subscribe=topic, failOnDataLoss="false"), tmp_path)
    assert written(tmp_path) == [*range(100), *range(1_000, 1_030)]


def test_records_removed_before_the_read_are_reported(tmp_path: Path) -> None:
    kafka = apache_kafka()
    topic = kafka.topic()
    kafka.numbers(topic, 0, 100)
    run(kafka.stream(subscribe=topic, maxOffsetsPerTrigger="20"), tmp_path / "all")
    reading = kafka.stream(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 10}}))
    for done in kafka.admin.delete_records([TopicPartition(topic, 0, 60)]).values():
        done.result(SECONDS_MAX)
    with raises_one_sentence(rf"{topic}-0: 50 offsets \(10 to 59\) were removed before they were read"):
        run(reading, tmp_path / "strict")
    run(
        kafka.stream(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 10}}), failOnDataLoss="false"),
        tmp_path / "lenient",
    )
    assert written(tmp_path / "lenient") == list(range(60, 100))
    assert numbers(kafka.read(subscribe=topic)) == list(range(60, 100)), "earliest is where the log starts: no loss"


def test_aborted_transactions_and_markers_are_gaps_and_not_losses(tmp_path: Path) -> None:
    kafka = apache_kafka()
    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions(SECONDS_MAX)
    for turn in range(6):
        producer.begin_transaction()
        for n in range(50):
            producer.produce(topic, b"%d" % (turn * 50 + n), partition=0)
        producer.flush()
        (producer.abort_transaction if turn % 2 else producer.commit_transaction)()
    committed = [turn * 50 + n for turn in (0, 2, 4) for n in range(50)]
    read_committed = {"kafka.isolation.level": "read_committed"}
    assert numbers(kafka.read(subscribe=topic, **read_committed)) == committed
    assert numbers(kafka.read(subscribe=topic)) == list(range(300))
    query = run(kafka.stream(subscribe=topic, maxOffsetsPerTrigger="70", **read_committed), tmp_path)
    assert written(tmp_path) == committed
    assert json.loads(query.lastProgress.sources[0].endOffset) == {topic: {"0": 306}}, "300 records and 6 markers"


def test_an_open_transaction_is_not_read() -> None:
    kafka = apache_kafka()
    topic = kafka.topic()
    kafka.numbers(topic, 0, 3)
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"99", partition=0)
    producer.flush()
    assert numbers(kafka.read(subscribe=topic, **{"kafka.isolation.level": "read_committed"})) == [0, 1, 2]
    assert numbers(kafka.read(subscribe=topic)) == [0, 1, 2, 99]
    producer.abort_transaction()


def wait_for(condition, seconds: float = 300) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.1)
