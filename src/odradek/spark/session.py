"""Spark session with settings that measured well for Odradek, on the available Java.

The settings of spark/settings.py save time. With local[*, 4] a failed task is retried, unlike with plain local[*].

By default, Spark starts its Python workers with `python3` of the PATH, which may differ from the current interpreter.
Spark passes on PYTHONPATH but not sys.path. The Python that looks for data sources is PYSPARK_DRIVER_PYTHON, else
PYSPARK_PYTHON, else `python3`, in the environment that Java started with; later, only register() helps.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from odradek.spark.data_source import OdradekDataSource
from odradek.spark.java import java_home
from odradek.spark.settings import FAST

TASK_ATTEMPTS = 4

SETTINGS = FAST | {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# First, quick compiler only: half the start-up time, a third of the speed in a long run.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def session(
    name: str = "odradek",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    quick: bool = False,
    log: Path | None = None,
) -> SparkSession:
    """Return the process's Spark session; `settings` override the defaults above.

    quick: for tests, and for jobs whose data stays in Python. log: destination of the standard error of Java and the
    Python workers, instead of this process's. If a session is already running, return it and apply the settings that
    can change at run time. Raise NoJava.
    """
    is_running = SparkSession.getActiveSession() is not None
    if not is_running:
        _prepare_environment()
    chosen = SETTINGS | ({"spark.driver.extraJavaOptions": QUICK_START} if quick else {}) | dict(settings or {})
    builder = SparkSession.Builder().appName(name).master(master or f"local[*, {TASK_ATTEMPTS}]")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with standard_error_to(log):
        made = builder.getOrCreate()
    if is_running:
        register(made)
    return made


def register(spark: SparkSession) -> None:
    """Register the data source, which is required if Spark's Python for data sources does not have it."""
    context = spark.sparkContext
    python = context.pythonExec
    if (context.master or "").startswith("local"):  # On other masters, PYSPARK_PYTHON has a valid path.
        context.pythonExec = sys.executable
    try:
        spark.dataSource.register(OdradekDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    finally:
        context.pythonExec = python


def stop_session(spark: SparkSession) -> None:
    """Stop the session, even if its Java has already ended."""
    with suppress(Py4JError, OSError):
        spark.stop()


@contextmanager
def standard_error_to(log: Path | None) -> Iterator[None]:
    """Redirect standard error to the log: Java inherits it, and Spark has no other way to redirect it."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _prepare_environment() -> None:
    """Set the environment that Java inherits."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if os.environ.get("PYSPARK_DRIVER_PYTHON") != sys.executable:  # Such as Jupyter, which can't look for data sources.
        os.environ.pop("PYSPARK_DRIVER_PYTHON", None)
    source = str(Path(__file__).resolve().parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if source not in paths and "site-packages" not in source:
        os.environ["PYTHONPATH"] = os.pathsep.join([source, *filter(None, paths)])
