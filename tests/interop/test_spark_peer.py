"""Comparison with Spark's own Kafka source and sink, in Java: the same rows and offsets, and a checkpoint of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from spark_brokers import BROKERS, STARTERS
from spark_support import Kafka, Message, connector_jars, raises_one_sentence, spark, values

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.skipif(not connector_jars(), reason="needs mvn to fetch Spark's Kafka connector"),
]


@pytest.fixture(params=BROKERS)
def kafka(request: pytest.FixtureRequest) -> Kafka:
    return STARTERS[request.param]()


def read(kafka: Kafka, kind: str, **options: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": kafka.address, **options}
    return spark().read.format(kind).options(**options).load()


def test_both_sources_return_the_same_rows(kafka: Kafka) -> None:
    topic = kafka.topic(3)
    for turn, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        kafka.produce(
            topic,
            (
                Message(
                    None if n % 11 == 0 else b"v%d" % n,
                    None if n % 7 == 0 else b"k%d" % n,
                    n % 3,
                    1_700_000_000_000 + n,
                    (("a", b"%d" % n), ("b", None))[: n % 3],
                )
                for n in range(turn * 200, turn * 200 + 200)
            ),
            **{"compression.type": codec},
        )
    for options in (
        {},
        {"startingOffsets": json.dumps({topic: {"0": 100, "1": -2, "2": 333}})},
        {"startingTimestamp": "1700000000500", "endingTimestamp": "1700000000700"},
        {"endingOffsets": json.dumps({topic: {"0": 7, "1": -1, "2": 100}})},
    ):
        theirs, ours = (
            read(kafka, kind, subscribe=topic, includeHeaders="true", **options) for kind in ("kafka", "odradek")
        )
        assert ours.schema == theirs.schema
        rows = [frame.orderBy("partition", "offset").collect() for frame in (theirs, ours)]
        assert rows[0] == rows[1]
        assert rows[0]


@pytest.mark.parametrize("loss", ["true", "false"])
def test_both_sources_refuse_the_same_ranges(kafka: Kafka, loss: str) -> None:
    """A start after its end is refused, however it comes about; a start at its end reads nothing."""
    topic = kafka.topic(2)
    kafka.produce(topic, (Message(b"%d" % n, partition=n % 2, timestamp=1000 + n // 2) for n in range(20)))

    def offsets(first: int, second: int) -> str:
        return json.dumps({topic: {"0": first, "1": second}})

    def outcome(kind: str, options: dict[str, str]) -> object:
        try:
            return sorted(values(read(kafka, kind, subscribe=topic, failOnDataLoss=loss, **options)))
        except Exception as error:
            return {"kafka": "greater than", "odradek": f"{topic}-0: starting offset"}[kind] in str(error)

    at_its_end = {"startingOffsets": offsets(10, 8)}
    assert outcome("odradek", at_its_end) == outcome("kafka", at_its_end) == [b"17", b"19"]
    for options in (
        {"startingOffsets": offsets(8, 0), "endingOffsets": offsets(3, 5)},
        {"startingOffsets": offsets(100, 0)},
        {"startingTimestamp": "1008", "endingTimestamp": "1002"},
        {
            "startingTimestamp": "9000",
            "startingOffsetsByTimestampStrategy": "latest",
            "endingOffsets": offsets(3, 10),
        },
    ):
        assert outcome("odradek", options) is outcome("kafka", options) is True, options


def test_a_stream_that_begins_beyond_the_end_behaves_alike(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.numbers(topic, 0, 10)

    def run(kind: str, loss: str) -> list[int]:
        folder = tmp_path / kind / loss
        options = {
            "kafka.bootstrap.servers": kafka.address,
            "subscribe": topic,
            "startingOffsets": json.dumps({topic: {"0": 1000}}),
            "failOnDataLoss": loss,
        }
        query = (
            spark()
            .readStream.format(kind)
            .options(**options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(folder))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [json.loads(progress.sources[0].endOffset)[topic]["0"] for progress in query.recentProgress]

    with pytest.raises(PySparkException, match="1000 to 10"):
        run("kafka", "true")
    message = f"startingOffsets starts partition {topic}-0 at offset 1000, but its log ends at 10"
    with raises_one_sentence(message):
        run("odradek", "true")
    assert run("kafka", "false")[-1:] == run("odradek", "false")[-1:] == [10]


def test_each_source_reads_what_the_other_sink_wrote(kafka: Kafka) -> None:
    frame = spark().sql(
        "SELECT CAST(id AS STRING) AS key, CAST(id * id AS STRING) AS value,"
        " ARRAY(STRUCT('h' AS key, CAST('x' AS BINARY) AS value)) AS headers FROM range(300)"
    )
    placed = []
    for writes, reads in (("kafka", "odradek"), ("odradek", "kafka")):
        topic = kafka.topic(5)
        options = {"kafka.bootstrap.servers": kafka.address, "topic": topic, "includeHeaders": "true"}
        frame.write.format(writes).mode("append").options(**options).save()
        rows = read(kafka, reads, subscribe=topic, includeHeaders="true").select("key", "value", "partition", "headers")
        placed.append(sorted(map(str, rows.collect())))
    assert placed[0] == placed[1], "the same records in the same partitions"
    assert len(placed[0]) == 300


def test_a_checkpoint_moves_between_the_sources(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    for turn, kind in enumerate(("kafka", "odradek", "kafka", "odradek")):
        kafka.numbers(topic, turn * 100, 100, 2)
        options = {"kafka.bootstrap.servers": kafka.address, "subscribe": topic, "startingOffsets": "earliest"}
        query = (
            spark()
            .readStream.format(kind)
            .options(**options)
            .load()
            .writeStream.format("parquet")
            .options(path=str(tmp_path / "out"), checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [100]
    read_back = spark().read.parquet(str(tmp_path / "out"))
    assert sorted(int(value or b"") for value in values(read_back)) == list(range(400))
