"""The Spark driver of the demo: python -m odradek.demo.pipeline ADDRESS FOLDER, until SIGTERM.

Two pipelines share one session, which saves a second Java process and its start: a streaming query from topic to topic,
and the loader from topic to lake. Neither knows whether it was killed before: the query finds its checkpoint, the
loader the offsets in the table.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import avg, coalesce, col, concat_ws, count, from_json, lit, struct, to_json
from pyspark.sql.functions import sum as sum_of
from pyspark.sql.streaming.query import StreamingQuery

from odradek.demo import feed, hours
from odradek.spark.load import LoadOptions
from odradek.spark.load import run as load
from odradek.spark.session import QUICK_START, session, stop_session

# Small batches, so that both are in the middle of a batch when they are killed.
STREAM_BATCH = 40_000
LOAD_BATCH = 30_000
LOAD_INTERVAL_MS = 1_000
STREAM_INTERVAL = "1 second"
STREAM_STARTS_MAX = 5

FLIGHT = "time_hour STRING, origin STRING, carrier STRING, dep_delay INT"


def departures_by_hour(records: DataFrame) -> DataFrame:
    """Convert the records of the topic flights to key and value of the derived topic.

    A cancelled flight has no delay. Hours never close, so the state is as large as the result, a year's hundred
    thousand keys. For an endless topic, withWatermark would close and remove them.
    """
    flights = records.select(from_json(col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")
    by_hour = flights.groupBy(hours.KEY).agg(
        count("*").alias("flights"),
        (count("*") - count("dep_delay")).alias("cancelled"),
        coalesce(sum_of("dep_delay"), lit(0)).alias("delay_sum"),
        avg("dep_delay").alias("delay_mean"),
    )
    # The key determines the partition, so the newer value of an hour always follows the older one.
    return by_hour.select(concat_ws("/", *hours.KEY).alias("key"), to_json(struct("*")).alias("value"))


def start_stream(spark: SparkSession, address: str, folder: Path) -> StreamingQuery:
    """Start the streaming query, which writes at least once.

    An interrupted batch is written again from the same state, and therefore with the same values. The query uses
    foreachBatch because Spark 4.3 does not support Python sinks in output mode update. For append-only rows,
    .writeStream.format("odradek") is sufficient.
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
    """Run both pipelines and return the exit status."""
    spark = session(
        "odradek demo",
        settings={
            "spark.driver.extraJavaOptions": f"{QUICK_START} -XX:-UsePerfData -Djava.io.tmpdir={tempfile.gettempdir()}",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    try:
        stream = Stream(spark, address, folder)
        stream.start()
        options = LoadOptions(
            bootstrap_servers=address,
            lake=folder / "lake",
            topics=(feed.TOPIC,),
            continuous=True,
            trigger_interval_ms=LOAD_INTERVAL_MS,
            max_records_per_batch=LOAD_BATCH,
        )
        status = load(options)  # Returns after SIGTERM.
        return stream.stop() or status
    finally:
        stop_session(spark)


class Stream:
    """The query, restarted from its checkpoint after a failure.

    It may fail without an error of its own: Spark gives a Python process that it starts for a query ten seconds to
    connect back, and no setting changes that. After STREAM_STARTS_MAX starts the whole driver fails.
    """

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self._start_query = partial(start_stream, spark, address, folder)
        self._query = self._start_query()
        self._is_stopping = threading.Event()
        self._failure = ""

    def start(self) -> None:
        threading.Thread(target=self._supervise, daemon=True).start()

    def stop(self) -> int:
        """Stop the query and return the exit status; write the reason of a failure at the end of the log."""
        self._is_stopping.set()
        if self._failure:
            sys.stderr.write(f"The stream failed: {self._failure}\n")
            return 1
        self._query.stop()
        return 0

    def _supervise(self) -> None:
        """Restart the query; after its final failure, end the loader on the main thread with SIGTERM."""
        for number in range(1, STREAM_STARTS_MAX + 1):
            try:
                if number > 1:
                    self._query = self._start_query()
                self._query.awaitTermination()
                return
            except PySparkException as error:
                if self._is_stopping.is_set():
                    return
                sys.stderr.write(f"The stream ended, start {number} of {STREAM_STARTS_MAX}: {error}\n")
                reason = str(error).split("\n", 1)[0]
        self._failure = reason
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], Path(sys.argv[2])))
