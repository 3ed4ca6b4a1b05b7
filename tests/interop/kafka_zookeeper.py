"""Apache Kafka versions with ZooKeeper for tests: one node, with its own ZooKeeper.

`pytestmark = OLD_KAFKA` marks the tests of a module, and skips them if java or mvn is missing.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType

import pytest
import quick_java
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka_peer import LOG_FORMAT, START_SECONDS_MAX, STOP_SECONDS_MAX, fetched, missing, printed

from support.ports import free_port

V3, V0 = "3.9.1", "0.11.0.3"
OLD_KAFKA = [
    pytest.mark.java,
    *(
        pytest.mark.skipif(missing(f"kafka-{each}") is not None, reason=missing(f"kafka-{each}") or "")
        for each in (V3, V0)
    ),
]
DUMP_LOG = "kafka.tools.DumpLogSegments"
SERVER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@cache
def old_jars(version: str) -> Path:
    """Return the folder with all jars of a version before 4."""
    kafka = "org.apache.kafka"
    tools = (kafka, "kafka-tools", version)
    if version == V0:  # jaxb-api left Java with version 11.
        more = [("javax.xml.bind", "jaxb-api", "2.3.1"), ("org.slf4j", "slf4j-log4j12", "1.7.30")]
        return fetched(f"kafka-{version}", (kafka, "kafka_2.12", version), tools, *more)
    return fetched(f"kafka-{version}", (kafka, "kafka_2.13", version), tools, ("org.slf4j", "slf4j-reload4j", "1.7.36"))


def java_options(version: str, *, is_broker: bool) -> list[str]:
    """Return the options of programs with the jars of one version; ZooKeeper loads other classes than a broker."""

    def broker(options: Sequence[str]) -> None:
        with tempfile.TemporaryDirectory() as folder, OldKafka(Path(folder), version, options=options):
            """Once it has started, most of what anything loads is loaded."""

    def zookeeper(options: Sequence[str]) -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            ZooKeeper(Path(folder), options=options, version=version) as running,
        ):
            running.end(signal.SIGTERM)

    name, run = ("broker", broker) if is_broker else ("zookeeper", zookeeper)
    return quick_java.options(old_jars(version).parent, name, run)


def old_java(
    version: str, main_class: str, *arguments: str, level: str, folder: Path, options: Iterable[str] = ()
) -> list[str]:
    logging = folder / "log4j.properties"
    logging.write_text(
        f"log4j.rootLogger={level}, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        f"log4j.appender.out.target=System.err\nlog4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        f"log4j.appender.out.layout.ConversionPattern={LOG_FORMAT}\n"
    )
    quick = java_options(version, is_broker=main_class != SERVER)
    own = ["-Xmx512m", *quick, f"-Dlog4j.configuration=file:{logging}"]
    return ["java", *own, *options, "-cp", f"{old_jars(version)}/*", main_class, *arguments]


def old_dump_log(version: str, folder: Path, *files: Path, options: tuple[str, ...] = ("--deep-iteration",)) -> str:
    """Return the output of kafka-dump-log of a version before 4, both streams; it must not fail."""
    arguments = (*options, "--files", ",".join(map(str, files)))
    return printed(old_java(version, DUMP_LOG, *arguments, level="WARN", folder=folder))


class _Java:
    """A process that reports when it is ready."""

    def __init__(self, command: list[str], output: Path, is_ready: bytes) -> None:
        with output.open("wb") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=file)
        deadline = time.monotonic() + START_SECONDS_MAX
        while is_ready not in output.read_bytes():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.end(signal.SIGKILL)
                pytest.fail(f"{' '.join(command)} did not start:\n{output.read_text()[-3000:]}")
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self, signal_number: int) -> None:
        self._process.send_signal(signal_number)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class ZooKeeper:
    """A ZooKeeper server with its own folder, for `with`, of the version included in a Kafka release.

    `settings` are added to zoo.cfg, `options` are Java's; `within` is a command that runs it, for example in a
    namespace.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        options: Iterable[str] = (),
        version: str = V3,
        host: str = "127.0.0.1",
        within: Iterable[str] = (),
    ) -> None:
        self.port = free_port()
        self.host = host
        self._within = tuple(within)
        self._version = version
        self._settings = dict(settings or {})
        self._options = tuple(options)
        self._folder = folder
        self._server: _Java | None = None

    def start(self) -> None:
        config = self._folder / "zoo.cfg"
        self._folder.mkdir(parents=True, exist_ok=True)
        config.write_text(
            f"dataDir={self._folder / 'zookeeper'}\nclientPort={self.port}\nclientPortAddress={self.host}\n"
            "admin.enableServer=false\ntickTime=500\n"
            + "".join(f"{key}={value}\n" for key, value in self._settings.items())
        )
        command = old_java(self._version, SERVER, str(config), level="INFO", folder=self._folder, options=self._options)
        # It listens before it serves, and never responds to connections in between.
        serves = b"(org.apache.zookeeper.server.ContainerManager)" if self._version == V3 else b"binding to port"
        self._server = _Java([*self._within, *command], self._folder / "zookeeper.txt", serves)

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def kill(self) -> None:
        """Kill the process with kill -9; `start` may follow, with the same data and port."""
        self.end(signal.SIGKILL)

    def end(self, signal_number: int) -> None:
        if self._server is not None:
            self._server.end(signal_number)
            self._server = None

    def __enter__(self) -> ZooKeeper:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class OldKafka:
    """A broker with ZooKeeper and its own folder, for `with`. start() may follow stop() and kill()."""

    def __init__(
        self,
        folder: Path,
        version: str,
        settings: Mapping[str, str] | None = None,
        *,
        zookeeper: str | None = None,
        awaits_controller: bool = True,
        options: Iterable[str] = (),
    ) -> None:
        """Create a broker; `zookeeper` is the address of another, running one, and `options` are Java's."""
        self.version = version
        self.data = folder / "data"
        self.port = free_port()
        own = ZooKeeper(folder)
        self._zookeeper = own if zookeeper is None else None
        self.zookeeper_address = zookeeper or f"127.0.0.1:{own.port}/kafka"
        self._folder = folder
        self._settings = dict(settings or {})
        self._awaits_controller = awaits_controller
        self._options = tuple(options)
        self._broker: _Java | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._broker is not None
        return self._broker.pid

    def __enter__(self) -> OldKafka:
        if self._zookeeper is not None:
            self._zookeeper.__enter__()
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._zookeeper is not None:
            self._zookeeper.__exit__(kind, error, trace)

    def start(self) -> None:
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        command = old_java(
            self.version, "kafka.Kafka", str(properties), level="INFO", folder=self._folder, options=self._options
        )
        self._broker = _Java(command, self._folder / "output.txt", b"started (kafka.server.KafkaServer)")
        if self._awaits_controller:
            self._await_controller()

    def _await_controller(self) -> None:
        """Wait for a controller: librdkafka waits a minute if the first metadata contains none."""
        deadline = time.monotonic() + START_SECONDS_MAX
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        while not self._names_controller(client):
            assert time.monotonic() < deadline, "there is no controller"
            time.sleep(0.05)

    @staticmethod
    def _names_controller(client: AdminClient) -> bool:
        with suppress(KafkaException):  # An answer without any broker is an error for librdkafka.
            return client.list_topics(timeout=START_SECONDS_MAX).controller_id >= 0
        return False

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, signal_number: int) -> None:
        if self._broker is not None:
            self._broker.end(signal_number)
            self._broker = None

    def _properties(self) -> dict[str, str]:
        return {
            "broker.id": "1",
            "zookeeper.connect": self.zookeeper_address,
            "zookeeper.session.timeout.ms": "2000",  # So that a killed broker can be restarted soon.
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        } | self._settings
