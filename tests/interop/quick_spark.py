"""Quick starts of Spark in tests: loaded Java classes come from an archive (quick_java.py), and little is compiled.

Its Python processes, a dozen in each Spark, import PySpark as compiled by pip (unzipped/sitecustomize.py). Code that
starts a Spark, in this or another process, first calls soon_up(), whose settings all processes inherit. Run as a
program, this starts Spark and executes typical operations of the tests, against the broker at the address, to create
the archive: python quick_spark.py ADDRESS FOLDER.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from zlib import crc32

import client_peers
import pyspark
import quick_java
from kafka_peer import CACHE

import odradek
from odradek.spark.java import NoJava, java_home

SOURCE = Path(odradek.__file__).parents[1]
SECONDS_MAX = 600
ROWS = 100
UNZIPPED = str(Path(__file__).parent / "unzipped")  # On the PYTHONPATH of processes that start Spark.

# Queries of a few rows: generating and compiling Java code takes longer than the query.
NOT_GENERATED = ("-Dspark.sql.codegen.wholeStage=false", "-Dspark.sql.codegen.factoryMode=NO_CODEGEN")


@cache
def soon_up() -> None:
    """Make every Spark started from now on use the archive, which is created if necessary."""
    os.environ["PYTHONPATH"] = os.pathsep.join([UNZIPPED, *filter(None, [os.environ.get("PYTHONPATH")])])
    CACHE.mkdir(parents=True, exist_ok=True)
    os.environ["SPARK_LAUNCHER_OPTS"] = " ".join(quick_java.OPTIONS)  # For the Java that builds the command line.
    with suppress(NoJava):  # Tests that need Spark report it.
        os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*_options(), *NOT_GENERATED])


def _options() -> Sequence[str]:
    if shutil.which("java") is None:  # Java from a wheel cannot create archives.
        return quick_java.OPTIONS
    jars = Path(pyspark.__file__).parent / "jars"
    # An archive fits the jars at that path only.
    which = f"{java_home()} {jars} {jars.stat().st_mtime_ns}"
    return quick_java.options(CACHE, f"spark-{pyspark.__version__}-{crc32(which.encode()):08x}", _run)


def _run(options: Sequence[str]) -> None:
    environment = os.environ | {"SPARK_SUBMIT_OPTS": " ".join([*quick_java.OPTIONS, *options, *NOT_GENERATED])}
    with tempfile.TemporaryDirectory(prefix="odradek-test-") as folder:
        subprocess.run(
            [sys.executable, __file__, client_peers.odradek(), folder],
            env=environment | {"PYTHONPATH": os.pathsep.join([str(SOURCE), *sys.path])},
            check=False,  # Without an archive, tests are only slower.
            timeout=SECONDS_MAX,
        )


def main(address: str, folder: Path) -> None:
    """Write, read, stream and load some rows, and wait until Java has ended."""
    from pyspark import SparkContext
    from rich.console import Console

    from odradek.spark.load import LoadOptions, run
    from odradek.spark.session import session

    spark = session(quick=True, log=folder / "log")
    kafka = {"kafka.bootstrap.servers": address}
    rows = spark.sql(f"SELECT CAST(id AS STRING) AS key, CAST(id AS STRING) AS value FROM range({ROWS})")
    rows.write.format("odradek").mode("append").options(**kafka, topic="first").save()
    assert spark.read.format("odradek").options(**kafka, subscribe="first").load().orderBy("offset").collect()
    stream = spark.readStream.format("odradek").options(**kafka, subscribe="first", startingOffsets="earliest").load()
    for sink, options in (("odradek", {**kafka, "topic": "second"}), ("parquet", {"path": str(folder / "out")})):
        checkpoint = str(folder / f"checkpoint-{sink}")
        writing = stream.select("key", "value").writeStream.format(sink).options(**options)
        writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    assert spark.read.parquet(str(folder / "out")).groupBy("key").count().count() == ROWS
    assert run(LoadOptions(address, folder / "lake", ("first",)), Console(quiet=True)) == 0
    java = SparkContext._gateway.proc
    spark.stop()
    java.stdin.close()
    java.wait(SECONDS_MAX)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
