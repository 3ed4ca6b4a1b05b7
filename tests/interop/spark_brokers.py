"""The brokers of the Spark tests: Odradek, and beside it a real Apache Kafka, fetched with Maven and run with Java.

Each is started once for the process and stopped with it.  Brokers that are up already can be named in the environment:
ODRADEK_TEST_BROKER and ODRADEK_TEST_KAFKA, as host:port.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from base64 import urlsafe_b64encode
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest
from spark_support import Kafka

from support.serving import Serving

KAFKA_VERSION = "4.3.0"
JARS = Path(os.environ.get("ODRADEK_PEERS", Path.home() / ".cache" / "odradek-peers")) / f"kafka-{KAFKA_VERSION}"
START_SECONDS_MAX = 60

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>peers</groupId><artifactId>peer</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId><version>2.24.3</version></dependency>
</dependencies></project>"""


@cache
def odradek() -> Kafka:
    if given := os.environ.get("ODRADEK_TEST_BROKER"):
        return Kafka(given, is_odradek=True)
    directory = folder()
    broker = Serving(directory, **{"num.partitions": "1"}).start()
    atexit.register(broker.stop)
    return Kafka(broker.address, is_odradek=True)


@cache
def apache_kafka() -> Kafka:
    if given := os.environ.get("ODRADEK_TEST_KAFKA"):
        return Kafka(given, is_odradek=False)
    jars, data = kafka_jars(), folder()
    port, controller = free_port(), free_port()
    (data / "server.properties").write_text(
        f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={data / 'data'}\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
        "transaction.state.log.num.partitions=1\ngroup.initial.rebalance.delay.ms=0\n"
    )
    java = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    cluster = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    format_storage = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(data / "server.properties")]
    subprocess.run(java + format_storage, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with (data / "log").open("wb") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(data / "server.properties")], stdout=log, stderr=log)
    atexit.register(process.kill)
    wait_for_port(port, data / "log")
    return Kafka(f"127.0.0.1:{port}", is_odradek=False)


def kafka_jars() -> Path:
    """Fetched on first use, some 80 MB; the same folder that other runs use."""
    if not shutil.which("java"):
        pytest.skip("needs java for a real Apache Kafka")
    if not (JARS / "complete").exists():
        if not shutil.which("mvn"):
            pytest.skip("needs mvn to fetch Apache Kafka")
        JARS.mkdir(parents=True, exist_ok=True)
        (JARS / "pom.xml").write_text(POM.format(version=KAFKA_VERSION))
        maven = ["mvn", "-q", "-B", "-f", str(JARS / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*maven, "-DincludeScope=runtime", f"-DoutputDirectory={JARS / 'libs'}"], check=True)
        (JARS / "complete").touch()
    return JARS / "libs"


def folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="odradek-test-"))
    atexit.register(shutil.rmtree, made, True)  # ignore_errors
    return made


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"Apache Kafka did not start: {log.read_text()[-2000:]}")


BROKERS = {"odradek": odradek, "apache-kafka": apache_kafka}
