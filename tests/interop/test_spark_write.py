"""The sink, batch and stream, checked with librdkafka and with our own source."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException
from spark_brokers import BROKERS, STARTERS, odradek
from spark_support import SECONDS_MAX, Kafka, Message, raises_one_sentence, spark, values

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture(params=BROKERS)
def kafka(request: pytest.FixtureRequest) -> Kafka:
    return STARTERS[request.param]()


def write(kafka: Kafka, query: str, **options: str) -> None:
    (
        spark()
        .sql(query)
        .write.format("odradek")
        .mode("append")
        .options(**{"kafka.bootstrap.servers": kafka.address, **options})
        .save()
    )


def test_every_column_is_written(kafka: Kafka) -> None:
    topic = kafka.topic(2)
    write(
        kafka,
        f"""SELECT * FROM VALUES
            ('{topic}', 1, CAST('k1' AS BINARY), 'v1', ARRAY(STRUCT('h' AS key, CAST('x' AS BINARY) AS value))),
            ('{topic}', 0, NULL, NULL, NULL),
            ('{topic}', 1, CAST('' AS BINARY), '', ARRAY())
            AS rows(topic, partition, key, value, headers)""",
    )
    rows = kafka.read(subscribe=topic, includeHeaders="true").orderBy("partition", "key").collect()
    assert [(row.partition, row.key, row.value) for row in rows] == [(0, None, None), (1, b"", b""), (1, b"k1", b"v1")]
    assert [row.headers and [tuple(header) for header in row.headers] for row in rows] == [None, None, [("h", b"x")]]


def test_keys_go_to_the_partitions_of_kafkas_producers(kafka: Kafka) -> None:
    ours, theirs = kafka.topic(7), kafka.topic(7)
    write(kafka, "SELECT CAST(id AS STRING) AS key, 'v' AS value FROM range(500)", topic=ours)
    kafka.produce(theirs, (Message(b"v", b"%d" % n, partition=-1) for n in range(500)), partitioner="murmur2_random")
    placed = [
        {bytes(row.key): row.partition for row in kafka.read(subscribe=topic).select("key", "partition").collect()}
        for topic in (ours, theirs)
    ]
    assert placed[0] == placed[1]
    assert len(placed[0]) == 500


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_reads_every_codec_in_order(kafka: Kafka, codec: str) -> None:
    topic = kafka.topic()
    write(
        kafka,
        "SELECT CAST(id AS STRING) AS value FROM range(0, 20000, 1, 1)",
        topic=topic,
        **{"kafka.compression.type": codec, "kafka.batch.size": "50000"},
    )
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read: list[bytes | None] = []
    while len(read) < 20_000:
        message = consumer.poll(SECONDS_MAX)
        assert message, "no more records came"
        read.append(message.value())
    consumer.close()
    assert read == [b"%d" % n for n in range(20_000)]


def test_records_without_keys_go_to_every_partition() -> None:
    kafka = odradek()
    topic = kafka.topic(3)
    write(kafka, "SELECT 'v' AS value FROM range(0, 200000, 1, 2)", topic=topic)
    counts = kafka.read(subscribe=topic).groupBy("partition").count().collect()
    assert sum(row["count"] for row in counts) == 200_000
    assert len(counts) == 3


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("SELECT 'x' AS text", {"topic": "t"}, "Column value is required, but missing; the columns are: text"),
        ("SELECT 'x' AS value", {}, "set the option topic, or add a column topic"),
        ("SELECT 5 AS value", {"topic": "t"}, "Column value must be string or binary, not int"),
        ("SELECT 'x' AS value, 5L AS partition", {"topic": "t"}, "Column partition must be int, not bigint"),
        ("SELECT 'x' AS value, CAST(NULL AS STRING) AS topic", {}, "The topic of a row is null"),
        (
            "SELECT 'x' AS value, 7 AS partition",
            {"topic": "HERE"},
            "partition of a row is 7, but topic t-.* has 1 partitions",
        ),
        ("SELECT 'x' AS value", {"topic": "t", "kafka.compression.type": "rar"}, "must be none or gzip"),
        ("SELECT 'x' AS value", {"topic": "t", "kafka.value.serializer": "x"}, "cannot be set"),
    ],
)
def test_refused_writes_get_one_sentence(query: str, options: dict[str, str], message: str) -> None:
    kafka = odradek()
    if options.get("topic") == "HERE":
        options = {"topic": kafka.topic()}
    with raises_one_sentence(message):
        write(kafka, query, **options)


def test_a_topic_is_never_overwritten() -> None:
    kafka = odradek()
    frame = spark().sql("SELECT 'x' AS value").write.format("odradek").mode("overwrite")
    with raises_one_sentence("Overwriting a topic is not supported"):
        frame.options(**{"kafka.bootstrap.servers": kafka.address, "topic": "t"}).save()


def test_spark_requires_a_mode_for_python_sinks() -> None:
    """docs/SPARK.md lists it among the differences from Spark's own sink."""
    writing = spark().sql("SELECT 'x' AS value").write.format("odradek").option("topic", "t")
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writing.save()


def test_aggregates_of_a_stream_are_written(tmp_path: Path) -> None:
    """Mode complete writes all groups again; Python sinks have no update mode, so foreachBatch replaces it."""
    kafka = odradek()
    source = kafka.topic()
    kafka.produce(source, (Message(b"%d" % n, b"%d" % (n % 3)) for n in range(30)))
    counts = kafka.stream(subscribe=source).groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")
    topics = {"complete": kafka.topic(), "update": kafka.topic()}
    options = {mode: {"kafka.bootstrap.servers": kafka.address, "topic": topic} for mode, topic in topics.items()}
    complete = counts.writeStream.format("odradek").options(**options["complete"])
    update = counts.writeStream.foreachBatch(
        lambda rows, _: rows.write.format("odradek").mode("append").options(**options["update"]).save()
    )
    for mode, writing in (("complete", complete), ("update", update)):
        checkpoint = str(tmp_path / mode)
        query = writing.outputMode(mode).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        rows = kafka.read(subscribe=topics[mode]).select("key", "value").collect()
        assert sorted((bytes(row.key), bytes(row.value)) for row in rows) == [(b"%d" % n, b"10") for n in range(3)]


def test_a_stream_copies_records_between_topics(kafka: Kafka, tmp_path: Path) -> None:
    source, sink = kafka.topic(2), kafka.topic(2)
    for first in (0, 500):
        kafka.numbers(source, first, 500, 2)
        query = (
            kafka.stream(subscribe=source, maxOffsetsPerTrigger="200")
            .selectExpr("key", "CAST(CAST(CAST(value AS STRING) AS INT) * 2 AS STRING) AS value")
            .writeStream.format("odradek")
            .options(**{"kafka.bootstrap.servers": kafka.address, "topic": sink})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert sorted(int(value or b"") for value in values(kafka.read(subscribe=sink))) == list(range(0, 2_000, 2))
