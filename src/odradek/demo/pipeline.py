"""The Spark driver of the demo: python -m odradek.demo.pipeline ADDRESS FOLDER, until SIGTERM.

Two pipelines share one session, which saves a Java and its start: a streaming query from topic to topic, and the loader
from topic to lake.  Neither knows whether it was killed before: the query finds its checkpoint, the loader the offsets
in the table.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import avg, coalesce, col, concat_ws, count, from_json, lit, struct, to_json
from pyspark.sql.functions import sum as sum_of
from pyspark.sql.streaming.query import StreamingQuery

from odradek.demo import feed, hours
from odradek.spark.load import LoadOptions
from odradek.spark.load import run as load
from odradek.spark.session import QUICK_START, ended, session

# Small batches, so that both are in the middle of something when they are killed.
STREAM_BATCH = 40_000
LOAD_BATCH = 30_000
LOAD_INTERVAL_MS = 1_000
STREAM_INTERVAL = "1 second"

FLIGHT = "time_hour STRING, origin STRING, carrier STRING, dep_delay INT"


def departures_by_hour(records: DataFrame) -> DataFrame:
    """From the records of the topic flights to those of the derived topic: key and value.

    A flight that never left has no delay.  Hours stay open for ever, so the state is as large as the result, a year's
    hundred thousand keys; over an endless topic, withWatermark would close and forget them.
    """
    flights = records.select(from_json(col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")
    by_hour = flights.groupBy(hours.KEY).agg(
        count("*").alias("flights"),
        (count("*") - count("dep_delay")).alias("cancelled"),
        coalesce(sum_of("dep_delay"), lit(0)).alias("delay_sum"),
        avg("dep_delay").alias("delay_mean"),
    )
    # The key decides the partition: the newer value of an hour always comes after the older one.
    return by_hour.select(concat_ws("/", *hours.KEY).alias("key"), to_json(struct("*")).alias("value"))


def start_stream(spark: SparkSession, address: str, folder: Path) -> StreamingQuery:
    """At least once: a batch that was cut off is written again, from the same state, so with the same values.

    foreachBatch, because Spark 4.3 lets no Python sink take part in output mode update.  Where rows are only appended,
    .writeStream.format("odradek") does it.
    """

    def write(changed: DataFrame, batch: int) -> None:
        (
            changed.write.format("odradek")
            .option("kafka.bootstrap.servers", address)
            .option("kafka.compression.type", "lz4")
            .option("topic", hours.TOPIC)
            .mode("append")
            .save()
        )

    records = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", feed.TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", STREAM_BATCH)
        .load()
    )
    return (
        departures_by_hour(records)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode("update")
        .trigger(processingTime=STREAM_INTERVAL)
        .start()
    )


def run(address: str, folder: Path) -> int:
    """The exit status."""
    spark = session(
        "odradek demo",
        settings={
            "spark.driver.extraJavaOptions": f"{QUICK_START} -XX:-UsePerfData -Djava.io.tmpdir={tempfile.gettempdir()}",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    try:
        query = start_stream(spark, address, folder)
        broken: list[str] = []
        threading.Thread(target=_stop_when_it_ends, args=(query, broken), daemon=True).start()
        options = LoadOptions(
            bootstrap_servers=address,
            lake=folder / "lake",
            topics=(feed.TOPIC,),
            continuous=True,
            trigger_interval_ms=LOAD_INTERVAL_MS,
            max_records_per_batch=LOAD_BATCH,
        )
        status = load(options)  # Returns after SIGTERM.
        query.stop()
        return status or len(broken)
    finally:
        ended(spark)


def _stop_when_it_ends(query: StreamingQuery, broken: list[str]) -> None:
    """The loader runs in the main thread, where it takes signals; this is how it learns that the stream has failed."""
    try:
        query.awaitTermination()
    except PySparkException as error:
        broken.append(str(error))
        sys.stderr.write(f"The stream failed: {error}\n")
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], Path(sys.argv[2])))
