"""A real Apache Kafka for tests: its jars from Maven Central, its tools, its broker (KRaft, one node).

The jars are stored once in $ODRADEK_PEERS (default ~/.cache/odradek-peers), together with archives that speed up the
start of Java (quick_java.py). `pytestmark = REAL_KAFKA` marks the tests of a module, and skips them if java or mvn is
missing.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType

import pytest
import quick_java

from support.ports import free_port

VERSION = "4.4.0"
CACHE = Path(os.environ.get("ODRADEK_PEERS", Path.home() / ".cache" / "odradek-peers"))
START_SECONDS_MAX = 300
STOP_SECONDS_MAX = 120
TOOL_SECONDS_MAX = 300
LOG_FORMAT = "[%d] %p %m (%c)%n"

DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
STORAGE = "kafka.tools.StorageTool"

_FORMATTED: dict[tuple[str, str], Path] = {}  # Data directories, by version and node.


def missing(name: str = f"kafka-{VERSION}") -> str | None:
    """Return the reason why these jars cannot be run, or None."""
    if shutil.which("java") is None:
        return "needs java (17 or later) to run what is of Apache Kafka"
    if not (CACHE / name / "complete").exists() and shutil.which("mvn") is None:
        return "needs mvn to fetch the jars of Apache Kafka"
    return None


REAL_KAFKA = [pytest.mark.java, pytest.mark.skipif(missing() is not None, reason=missing() or "")]
# On Apache Kafka, a test of a client or command verifies the test itself: no change of Odradek can break it.
CONTROL = [*REAL_KAFKA, pytest.mark.nightly]


@cache
def jars(version: str = VERSION) -> Path:
    """Return the folder with all jars of one version (4.0 or later)."""
    return fetched(
        f"kafka-{version}",
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.apache.kafka", "kafka-tools", version),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
        ("org.apache.logging.log4j", "log4j-core", "2.24.3"),
    )


@cache
def client_jars(version: str) -> Path:
    """Return the folder with the Java client of any version, without logging."""
    return fetched(
        f"kafka-clients-{version}",
        ("org.apache.kafka", "kafka-clients", version),
        ("org.slf4j", "slf4j-nop", "1.7.36"),
    )


def fetched(name: str, *artifacts: tuple[str, str, str]) -> Path:
    """Return the folder with these artifacts, as (group, artifact, version), and their runtime dependencies."""
    folder = CACHE / name
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(_pom(artifacts))
        command = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={folder / 'libs'}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (folder / "complete").touch()
    return folder / "libs"


def _pom(artifacts: Iterable[tuple[str, str, str]]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{number}</version></dependency>"
        for group, artifact, number in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>peers</groupId><artifactId>peer</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def java_options(version: str = VERSION) -> list[str]:
    """Return the options of all programs that run with the jars of one version."""
    jars(version)  # They have to exist first.

    def run(options: Sequence[str]) -> None:
        with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder), version=version, options=options):
            """Once it has started, most of what anything loads is loaded."""

    return quick_java.options(jars(version).parent, "broker", run)


def _java(
    version: str, main_class: str, *arguments: str, level: str, folder: Path, options: Iterable[str] = ()
) -> list[str]:
    logging = folder / "log4j2.properties"
    logging.write_text(
        f"rootLogger.level={level}\nrootLogger.appenderRef.out.ref=OUT\nappender.out.type=Console\n"
        f"appender.out.name=OUT\nappender.out.target=SYSTEM_ERR\n"
        f"appender.out.layout.type=PatternLayout\nappender.out.layout.pattern={LOG_FORMAT}\n"
    )
    own = ["-Xmx512m", *java_options(version), f"-Dlog4j2.configurationFile={logging}"]
    return ["java", *own, *options, "-cp", f"{jars(version)}/*", main_class, *arguments]


def run_tool(folder: Path, main_class: str, *arguments: str, version: str = VERSION) -> str:
    """Run a tool, and return both of its output streams; fail the test on an error. `folder` is for scratch files."""
    return printed(_java(version, main_class, *arguments, level="WARN", folder=folder))


def printed(command: list[str]) -> str:
    """Return both output streams of a tool; fail the test on an error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS_MAX, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def dump_log(folder: Path, *files: Path, options: tuple[str, ...] = ("--deep-iteration",)) -> str:
    return run_tool(folder, DUMP_LOG, *options, "--files", ",".join(map(str, files)))


class KafkaBroker:
    """A broker with its own folder, for `with`. start() may follow stop(); the data stays."""

    def __init__(
        self,
        folder: Path,
        *,
        version: str = VERSION,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
        options: Iterable[str] = (),
    ) -> None:
        """Create a broker; `options` are Java's."""
        self._folder = folder
        self._version = version
        self._settings = dict(settings or {})
        self._options = tuple(options)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port() if port is None else port
        self.data = folder / "data"
        self.output = folder / "output.txt"
        self.cluster_id = "AAAAAAAAAAAAAAAAAAAAAQ"
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self.launch()
        self.await_started()

    def launch(self) -> None:
        """Start the process; a node of a cluster is not ready before others run, too."""
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        if not (self.data / "meta.properties").exists():
            self._format(properties)
        command = _java(
            self._version, "kafka.Kafka", str(properties), level="INFO", folder=self._folder, options=self._options
        )
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)

    def _format(self, properties: Path) -> None:
        """Format the folder, with a cached result: it depends only on version and node, and the tool takes a JVM."""
        key = self._version, self._settings.get("node.id", "1")
        if key in _FORMATTED:
            shutil.copytree(_FORMATTED[key], self.data)
            return
        run_tool(self._folder, STORAGE, "format", "-t", self.cluster_id, "-c", str(properties), version=self._version)
        kept = Path(tempfile.mkdtemp(prefix="odradek-test-"))
        atexit.register(shutil.rmtree, kept, True)  # ignore_errors
        _FORMATTED[key] = shutil.copytree(self.data, kept / "data")

    def _properties(self) -> dict[str, str]:
        controller = free_port()
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        } | self._settings

    def await_started(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while b"Kafka Server started" not in self.output.read_bytes():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.kill()
                pytest.fail("Apache Kafka did not start:\n" + "\n".join(self._complaints()[:20]))
            time.sleep(0.05)

    def _complaints(self) -> list[str]:
        words = (" ERROR ", " FATAL ", "Exception: ")
        return [line for line in self.output.read_text().splitlines() if any(word in line for word in words)]

    def stop(self) -> None:
        """Stop cleanly, or kill the broker if that takes too long."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Stop all responses without ending the process, until resume() or kill()."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
