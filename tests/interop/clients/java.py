"""The Java client in any version: one JVM for each, controlled by lines of commands (../java/Dialogue.java)."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path

from kafka_peer import client_jars

from clients.client import RECORD_BYTES_MAX, SECONDS_MAX, ClientError, Cluster, Question, Start, Topic
from clients.java_groups import JavaMember, JavaTransactor
from clients.members import Committed, Joining
from clients.records import CODECS, Headers, Read, Record

SOURCES = Path(__file__).resolve().parents[1] / "java"
QUESTIONS: dict[Question, int] = {"earliest": -2, "latest": -1, "max timestamp": -3}
CLASSES = ("Wire", "Records", "Members", "Transactors", "Dialogue")
NULL = "~"
STOP_SECONDS_MAX = 60


class JavaClient:
    name = "Java client"
    codecs = CODECS
    sets_time = True

    def __init__(self, address: str, version: str, main_class: str, answers: Iterable[Question]) -> None:
        self.version = version
        self.answers = frozenset(answers)
        self._numbers = count()
        self._folder = Path(tempfile.mkdtemp(prefix="odradek-test-"))
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
        self._process = subprocess.Popen(
            ["java", *options, "-cp", _compiled(version, main_class), main_class, address, str(SECONDS_MAX)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self._folder / "stderr.txt").open("wb"),
            text=True,
            encoding="utf-8",
        )

    def writes(self, record: Record) -> bool:
        return True

    def produce(
        self,
        topic: str,
        codec: str,
        records: Sequence[Record],
        *,
        record_bytes_max: int = RECORD_BYTES_MAX,
        idempotent: bool | None = None,
    ) -> None:
        lines = [_line(record) for record in records]
        idempotence = "" if idempotent is None else str(idempotent).lower()
        self._call("produce", topic, codec, record_bytes_max, idempotence, len(lines), more=lines)

    def consume(self, topic: str, start: Start, count: int, *, committed: bool = False) -> list[Read]:
        isolation = "read_committed" if committed else "read_uncommitted"
        rows = self._call("consume", topic, start.where, start.at, start.reset, isolation, count)
        assert len(rows) == count, f"{len(rows)} of {count}"
        return [_read(row) for row in rows]

    def join(self, joining: Joining) -> JavaMember:
        return JavaMember(self._call, joining)

    def committed(self, group: str, topic: str) -> dict[int, Committed]:
        rows = self._call("committed", group, topic)
        return {int(number): Committed(int(at), (_bytes(metadata) or b"").decode()) for number, at, metadata in rows}

    def transactor(self, transactional_id: str, *, group: str = "", source: str = "") -> JavaTransactor:
        return JavaTransactor(self._call, f"transactor-{next(self._numbers)}", transactional_id, group, source)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):  # It was killed.
            self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self._call("create-topic", topic, partitions, *(f"{key}={value}" for key, value in configs.items()))

    def create_partitions(self, topic: str, total: int) -> None:
        self._call("create-partitions", topic, total)

    def describe_topic(self, topic: str) -> Topic:
        return Topic({int(index): int(leader) for index, leader in self._call("describe-topic", topic)})

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        entries = ((name, _bytes(value)) for name, value in self._call("describe-configs", topic))
        return {name: None if value is None else value.decode() for name, value in entries}

    def describe_cluster(self) -> Cluster:
        (cluster, controller), *brokers = self._call("describe-cluster")
        return Cluster(cluster, int(controller), {int(one): address for one, address in brokers})

    def list_offsets(self, topic: str, question: Question | int) -> int:
        number = question if isinstance(question, int) else QUESTIONS[question]
        ((offset,),) = self._call("list-offsets", topic, number)
        return int(offset)

    def delete_topic(self, topic: str) -> None:
        self._call("delete-topic", topic)

    def _call(self, *fields: object, more: Iterable[str] = ()) -> list[list[str]]:
        """Return the rows of the response. A program that hangs is killed, and its output is shown."""
        assert self._process.stdin is not None and self._process.stdout is not None
        guard = threading.Timer(3 * SECONDS_MAX, self._process.kill)
        guard.start()
        try:
            self._process.stdin.write("".join(f"{line}\n" for line in ["\t".join(map(str, fields)), *more]))
            self._process.stdin.flush()
            rows: list[list[str]] = []
            for line in self._process.stdout:
                match line.rstrip("\n").split("\t"):
                    case ["done"]:
                        return rows
                    case ["error", code, text]:
                        # -1 is the code of errors that the client raises itself.
                        raise ClientError(int(code) if code != "-1" else None, (_bytes(text) or b"").decode())
                    case row:
                        rows.append(row)
        finally:
            guard.cancel()
        raise AssertionError(f"the Java program ended: {(self._folder / 'stderr.txt').read_text()[-2000:]}")


@cache
def _compiled(version: str, main_class: str) -> str:
    """Compile the program with the client of that version, and return its class path."""
    classes = Path(tempfile.mkdtemp(prefix="odradek-test-"))
    atexit.register(shutil.rmtree, classes, True)  # ignore_errors
    jars = f"{client_jars(version)}/*"
    sources = [str(SOURCES / f"{name}.java") for name in (*CLASSES, main_class)]
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(classes), *sources], check=True)
    return f"{classes}:{jars}"


def _text(data: bytes | None) -> str:
    return NULL if data is None else b64encode(data).decode()


def _bytes(text: str) -> bytes | None:
    return None if text == NULL else b64decode(text)


def _line(record: Record) -> str:
    headers = ",".join(f"{_text(name.encode())}:{_text(value)}" for name, value in record.headers)
    return "\t".join([str(record.timestamp_ms), _text(record.key), _text(record.value), headers])


def _read(row: Sequence[str]) -> Read:
    offset, timestamp_ms, key, value, headers = row
    return Read(int(offset), Record(_bytes(key), _bytes(value), _headers(headers), int(timestamp_ms)))


def _headers(text: str) -> Headers:
    pairs = (one.split(":") for one in text.split(",") if one)
    return tuple(((_bytes(name) or b"").decode(), _bytes(value)) for name, value in pairs)
