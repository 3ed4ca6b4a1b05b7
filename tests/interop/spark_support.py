"""Common parts of the Spark tests: one session for the process, brokers to read from, and records by librdkafka."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")
confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from confluent_kafka import Producer  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from kafka_peer import CACHE  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from quick_spark import soon_up  # noqa: E402

import odradek  # noqa: E402
from odradek.spark.java import NoJava  # noqa: E402
from odradek.spark.session import session  # noqa: E402

SOURCE = Path(odradek.__file__).parents[1]
SECONDS_MAX = 150


class Message(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()


CONNECTOR = CACHE / "spark-kafka-4.2.0"
CONNECTOR_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>peers</groupId><artifactId>peer</artifactId><version>1</version><dependencies>{}</dependencies></project>"""
CONNECTOR_JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)


def connector_jars() -> list[Path]:
    """Return Spark's own Kafka source, a few MB from Maven Central on first use; none without mvn."""
    if not (CONNECTOR / "complete").exists():
        if not shutil.which("mvn"):
            return []
        CONNECTOR.mkdir(parents=True, exist_ok=True)
        nothing_else = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        dependencies = (
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
            f"{nothing_else}</dependency>"
            for group, name, version in CONNECTOR_JARS
        )
        (CONNECTOR / "pom.xml").write_text(CONNECTOR_POM.format("".join(dependencies)))
        maven = ["mvn", "-q", "-B", "-f", str(CONNECTOR / "pom.xml"), "dependency:copy-dependencies"]
        if subprocess.run([*maven, f"-DoutputDirectory={CONNECTOR / 'libs'}"], check=False).returncode:
            return []
        (CONNECTOR / "complete").touch()
    return sorted((CONNECTOR / "libs").glob("*.jar"))


@cache
def spark() -> SparkSession:
    soon_up()
    log = Path(tempfile.mkdtemp(prefix="odradek-test-")) / "spark.log"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"spark.sql.shuffle.partitions": "2", "spark.jars": ",".join(map(str, connector_jars()))}
    try:
        made = session("odradek tests", quick=True, log=log, settings=settings)
    except NoJava as error:
        pytest.skip(str(error))
    made.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")

    def stop() -> None:
        made.stop()
        shutil.rmtree(log.parent, ignore_errors=True)

    atexit.register(stop)
    return made


class Kafka:
    """A broker, given by its address, with librdkafka as its client."""

    def __init__(self, address: str, is_odradek: bool) -> None:
        self.address = address
        self.is_odradek = is_odradek
        self.admin = AdminClient({"bootstrap.servers": address})

    def topic(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        name = name or f"t-{uuid4().hex[:12]}"
        # Tests use old timestamps, and retention would delete such records at once.
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, partitions, 1, config=settings)
        for done in self.admin.create_topics([topic]).values():
            done.result(SECONDS_MAX)
        return name

    def delete(self, name: str) -> None:
        for done in self.admin.delete_topics([name], operation_timeout=SECONDS_MAX).values():
            done.result(SECONDS_MAX)

    def produce(self, topic: str, messages: Iterable[Message], **config: object) -> None:
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 50, **config})
        for message in messages:
            while True:
                try:
                    producer.produce(
                        topic,
                        value=message.value,
                        key=message.key,
                        partition=message.partition,
                        timestamp=message.timestamp,
                        headers=list(message.headers) or None,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(SECONDS_MAX) == 0

    def numbers(self, topic: str, first: int, count: int, partitions: int = 1) -> None:
        """Return the numbers as text, distributed over the partitions in turn."""
        self.produce(topic, (Message(b"%d" % n, partition=n % partitions) for n in range(first, first + count)))

    def read(self, **options: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.address, **options}
        return spark().read.format("odradek").options(**options).load()

    def stream(self, **options: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.address, "startingOffsets": "earliest", **options}
        return spark().readStream.format("odradek").options(**options).load()


@contextmanager
def raises_one_sentence(message: str) -> Iterator[None]:
    """Expect an error of Spark with only Spark's own text before the message."""
    with pytest.raises(PySparkException, match=message) as failed:
        yield
    text = str(failed.value)
    assert "Traceback" not in text
    assert re.search(message, "\n".join(text.splitlines()[:2]).partition("odradek.")[2]), text


def values(frame: DataFrame) -> list[bytes | None]:
    return [None if row.value is None else bytes(row.value) for row in frame.select("value").collect()]


def loader_command(address: str, lake: Path, *topics: str, **options: object) -> list[str]:
    """Return the command of a load in a separate process, with these LoadOptions."""
    soon_up()
    arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return [
        sys.executable,
        "-c",
        f"import sys; from pathlib import Path; from odradek.spark.load import LoadOptions, run\n"
        f"sys.exit(run(LoadOptions({address!r}, Path({str(lake)!r}), {topics!r}, {arguments})))",
    ]
