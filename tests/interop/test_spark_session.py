"""Sessions in which Spark finds the data source, and those that have to register it.

Each runs in a process of its own, started as by an IDE or cron: this Python by its path, while the first python3 on the
PATH lacks our packages. Spark takes that one unless configured otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from uuid import uuid4

import pytest
from quick_spark import soon_up
from spark_brokers import odradek
from spark_support import SOURCE

from odradek.spark.java import NoJava, java_home

pytestmark = [pytest.mark.spark, pytest.mark.java]

THEIRS = ("PYSPARK", "SPARK")  # Variables that Spark reads from the environment.
QUICK = ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS")  # Variables that soon_up() sets.

SCRIPT = """
import sys
from pyspark.sql import SparkSession
import odradek.spark

how, address, topic, checkpoint = sys.argv[1:]
kafka = {"kafka.bootstrap.servers": address}
if how != "session":
    plain = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        plain.read.format("odradek").options(**kafka, subscribe=topic).load()
    except Exception as error:
        print("DATA_SOURCE_NOT_FOUND" in str(error))
if how == "register":
    odradek.spark.register(plain)
    spark = plain
else:
    from odradek.spark.session import session
    spark = session()

numbers = spark.sql("SELECT CAST(id AS STRING) AS value FROM range(10)")
numbers.write.format("odradek").options(**kafka, topic=topic).mode("append").save()
print(spark.read.format("odradek").options(**kafka, subscribe=topic).load().count())
if how == "late":
    sys.exit()  # Micro-batches find the data source like the batch above, and take as long as all the rest.
stream = spark.readStream.format("odradek").options(**kafka, subscribe=topic)
query = (
    stream.options(startingOffsets="earliest", maxOffsetsPerTrigger=3).load().selectExpr("value")
    .writeStream.format("odradek").options(**kafka, topic=topic + "-copy", checkpointLocation=checkpoint)
    .trigger(availableNow=True).start()
)
query.awaitTermination()
print(len(query.recentProgress))
spark.sql(
    f"CREATE TEMPORARY VIEW copied USING odradek"
    f" OPTIONS (`kafka.bootstrap.servers` '{address}', subscribe '{topic}-copy')"
)
print(spark.sql("SELECT count(*) FROM copied").first()[0])
spark.stop()
"""


def run(folder: Path, how: str, python: str = sys.executable, **environment: str) -> tuple[list[str], str]:
    """Run the script; return its output, and the standard error of all processes that Spark started."""
    try:
        java = str(java_home())
    except NoJava as error:
        pytest.skip(str(error))
    other = folder / "python3"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')  # Without site-packages and PYTHONPATH.
    other.chmod(0o755)
    script = folder / "script.py"
    script.write_text(SCRIPT)
    soon_up()
    variables = {name: value for name, value in os.environ.items() if name in QUICK or not name.startswith(THEIRS)}
    variables |= {"JAVA_HOME": java, "PATH": f"{folder}:{variables['PATH']}", "PYTHONPATH": str(SOURCE), **environment}
    arguments = [how, odradek().address, f"t-{uuid4().hex[:12]}", str(folder / "checkpoint")]
    done = subprocess.run([python, script, *arguments], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def test_a_users_session_registers_the_data_source(tmp_path: Path) -> None:
    printed, errors = run(tmp_path, "register")
    assert printed == ["True", "10", "4", "10"]
    assert errors.count("Micro-batches are faster with") == 1, "said once, and not with each of four batches"
    assert "spark.python.unix.domain.socket.enabled=true" in errors


def test_our_session_reuses_a_running_one(tmp_path: Path) -> None:
    assert run(tmp_path, "late")[0] == ["True", "10"]


def test_our_session_finds_the_data_source(tmp_path: Path) -> None:
    """The command pyspark starts the driver with PYSPARK_DRIVER_PYTHON, which is jupyter in a notebook."""
    printed, errors = run(tmp_path, "session", PYSPARK_DRIVER_PYTHON="jupyter")
    assert printed == ["10", "4", "10"]
    assert "Micro-batches are faster with" not in errors


@pytest.mark.soak
def test_the_oldest_declared_pyspark_works(tmp_path: Path) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    dependencies = project["dependencies"] + project["optional-dependencies"]["spark"]
    oldest = [name.replace(">=", "==") if name.startswith("pyspark") else name for name in dependencies]
    assert sum("pyspark==" in name for name in oldest) == 1
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", *oldest], check=True)
    assert run(tmp_path, "session", python)[0] == ["10", "4", "10"]
