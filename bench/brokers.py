"""What is measured, as processes: Odradek, Apache Kafka, and the lower bound.

Odradek runs as users install it, compiled; with ODRADEK_ROOMS=0 as in the editable installation, interpreted.
Kafka has the heap and the flags of its own kafka-server-start.sh, and its default settings but for addresses and what
Odradek has too: a moment instead of a minute until deleted files are gone, since a run makes many gigabytes, and groups
and transactions that wait as little as they can, since otherwise the waiting is what is measured.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import cache
from itertools import count
from pathlib import Path
from typing import ClassVar

import machine
import measure
from control import Control

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "interop")]

from support.ports import free_port  # noqa: E402  # Of the tests, which are on the path by now.

READY_SECONDS_MAX = 90
STOP_SECONDS_MAX = 30
POLL_SECONDS = 0.001
BOTH = {
    "log.segment.delete.delay.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "add.partitions.to.txn.retry.backoff.ms": "1",
    "offsets.topic.replication.factor": "1",  # As in the server.properties that Kafka comes with; and the next two.
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}

# bin/kafka-server-start.sh and bin/kafka-run-class.sh of 4.3.0.
KAFKA_FLAGS = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"

_topic_numbers = count(1)


def new_topic() -> str:
    """Always of the same length."""
    return f"bench-{next(_topic_numbers):06}"


class Broker:
    """One process on its own folder.  `start` returns the seconds to the first answered ApiVersions and Metadata."""

    name = ""
    verifies = True  # False for what only moves bytes.

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Control | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def control(self) -> Control:
        assert self._control is not None
        return self._control

    def prepare(self) -> None:
        """What has to be there before the first start."""

    def environment(self) -> dict[str, str]:
        """What is added to that of the benchmark."""
        return {}

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> float:
        self.prepare()
        with (self.folder / "output.txt").open("ab") as output:
            environment = {**os.environ, **self.environment()}
            begun = time.monotonic()
            self._process = subprocess.Popen(
                self.command(), stdout=output, stderr=output, cwd=self.folder, env=environment
            )
        self._wait_until_ready(begun)
        return time.monotonic() - begun

    def _wait_until_ready(self, begun: float) -> None:
        while not self.answers():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > begun + READY_SECONDS_MAX:
                self.kill()
                tail = (self.folder / "output.txt").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self.name} did not start:\n{tail}")
            time.sleep(POLL_SECONDS)

    def answers(self) -> bool:
        from odradek.client.connection.client_errors import ClientError
        from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse

        try:
            control = Control(self.port)
        except ClientError:
            return False
        response = control._call(MetadataRequest(topics=[]), MetadataResponse, version=8)
        if not response.brokers:
            control.close()
            return False
        self._control = control
        return True

    def stop(self) -> None:
        if self._process is None:
            return
        if self._control is not None:
            self._control.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        self.control.create_topic(topic, partitions, configs)

    def delete(self, topic: str) -> None:
        """Waits until the space is free again, so that one case's dirty pages are not written in the next."""
        self.control.delete_topic(topic)
        deadline = time.monotonic() + 10
        while any(self.data.glob(f"{topic}-*")) and time.monotonic() < deadline:
            time.sleep(0.02)

    def drop_page_cache(self, topic: str) -> None:
        """Written out, then dropped: the next read comes from the disk."""
        for path in self.data.glob(f"{topic}-*/*.log"):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def cpu_seconds(self) -> float:
        return measure.cpu_seconds(self.pid)

    def resident_mb(self) -> float:
        return measure.resident_mb(self.pid)


class Odradek(Broker):
    name = "odradek"
    settings: ClassVar[dict[str, str]] = {}

    def environment(self) -> dict[str, str]:
        return {} if machine.is_interpreted() else {"PYTHONPATH": as_installed()}

    def command(self) -> list[str]:
        place = {"log.dirs": str(self.data), "listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}
        settings = {**place, **BOTH, **self.settings}
        return [
            sys.executable,
            "-m",
            "odradek",
            "serve",
            *(f"--override={key}={text}" for key, text in settings.items()),
        ]


class Interpreted(Odradek):
    name = "odradek-interpreted"

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(ROOT / "src")}


class Relaxed(Odradek):
    """Answers acks=all from the page cache, as Kafka does, and what coordinators keep is no exception."""

    name = "odradek-relaxed"
    settings: ClassVar[dict[str, str]] = {"log.flush.interval.messages": "9223372036854775807"}


class Kafka(Broker):
    """Apache Kafka 4.4.0, KRaft, broker and controller in one process."""

    name = "kafka"
    settings: ClassVar[dict[str, str]] = {}

    def prepare(self) -> None:
        import kafka_peer

        controller = free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data),
            "log.initial.task.delay.ms": "1000",  # Until then, half a minute by default, nothing is deleted.
            **BOTH,
            **self.settings,
        }
        properties = self.folder / "server.properties"
        if (self.data / "meta.properties").exists():
            return
        properties.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
        kafka_peer.run_tool(self.folder, kafka_peer.STORAGE, "format", "-t", CLUSTER_ID, "-c", str(properties))

    def command(self) -> list[str]:
        import kafka_peer

        logging = self.folder / "logging.properties"
        logging.write_text(
            "rootLogger.level=INFO\nrootLogger.appenderRef.out.ref=OUT\nappender.out.type=Console\n"
            "appender.out.name=OUT\nappender.out.target=SYSTEM_ERR\n"
            "appender.out.layout.type=PatternLayout\nappender.out.layout.pattern=[%d] %p %m (%c)%n\n"
        )
        options = [*KAFKA_FLAGS, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{kafka_peer.jars()}/*"]
        return ["java", *options, "kafka.Kafka", str(self.folder / "server.properties")]


class Strict(Kafka):
    """Syncs whatever is written before it answers, as Odradek does for acks=all and what coordinators keep."""

    name = "kafka-strict"
    settings: ClassVar[dict[str, str]] = {"log.flush.interval.messages": "1"}


class LowerBound(Broker):
    name = "bound"
    verifies = False

    def command(self) -> list[str]:
        self.data.mkdir(exist_ok=True)
        return [sys.executable, str(BENCH / "lower_bound.py"), str(self.port), str(self.data / "bytes"), new_topic()]

    def answers(self) -> bool:
        import lower_bound

        return lower_bound.is_up(self.port)

    def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        import lower_bound

        lower_bound.reset(self.port)

    def delete(self, topic: str) -> None:
        self.create(topic, 0, {})

    def drop_page_cache(self, topic: str) -> None:
        with (self.data / "bytes").open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@cache
def as_installed() -> str:
    """The folder of the package as users install it; made now if it is not up to date, which takes minutes."""
    done = subprocess.run([ROOT / "scripts" / "compiled"], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


BROKERS: dict[str, type[Broker]] = {
    kind.name: kind for kind in (Odradek, Interpreted, Relaxed, Kafka, Strict, LowerBound)
}
