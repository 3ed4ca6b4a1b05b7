"""A client in another language: a process that reads commands and writes results as lines of JSON.

Its packages come from `scripts/clients`; the programs are in ../go and ../node.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clients.client import RECORD_BYTES_MAX, SECONDS_MAX, ClientError, Cluster, Question, Start, Topic
from clients.dialogue_groups import DialogueMember
from clients.members import Committed, Joining
from clients.records import CODECS, Read, Record

INTEROP = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("ODRADEK_CLIENTS", Path.home() / ".cache" / "odradek-clients"))
STOP_SECONDS_MAX = 60


def lacks(language: str, sources: Iterable[Path]) -> str | None:
    """Return the reason why the clients cannot run, or None: they must be built from the current files."""
    try:
        stamp = (CACHE / language / "stamp").read_text().split()[0]
    except (FileNotFoundError, IndexError):
        return f"needs the clients of {language}: scripts/clients {language}"
    now = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    return None if stamp == now else f"has clients of another time: scripts/clients {language}"


class DialogueClient:
    """One process. Subclasses define the limitations of their library."""

    name = ""
    codecs: Sequence[str] = CODECS
    sets_time = True
    answers: frozenset[Question] = frozenset(("earliest", "latest"))

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version: str = self._answer()["version"]

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
        details = {"records": [_in_json(one) for one in records], "record_bytes_max": record_bytes_max}
        self.call("produce", topic=topic, codec=codec, idempotent=idempotent, **details)

    def consume(self, topic: str, start: Start, count: int, *, committed: bool = False) -> list[Read]:
        place = {"where": start.where, "at": start.at, "reset": start.reset}
        return [_read(one) for one in self.call("consume", topic=topic, count=count, committed=committed, **place)]

    def join(self, joining: Joining) -> DialogueMember:
        return DialogueMember(self, joining)

    def committed(self, group: str, topic: str) -> dict[int, Committed]:
        offsets = self.call("committed", group=group, topic=topic)
        return {int(number): Committed(one["offset"], one["metadata"]) for number, one in offsets.items()}

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self.call("create_topic", topic=topic, partitions=partitions, configs=configs)

    def create_partitions(self, topic: str, total: int) -> None:
        self.call("create_partitions", topic=topic, partitions=total)

    def describe_topic(self, topic: str) -> Topic:
        leaders = self.call("describe_topic", topic=topic)
        return Topic({int(index): leader for index, leader in leaders.items()})

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        return dict(self.call("describe_configs", topic=topic))

    def describe_cluster(self) -> Cluster:
        cluster = self.call("describe_cluster")
        brokers = {int(number): address for number, address in cluster["brokers"].items()}
        return Cluster(cluster["id"] or None, cluster["controller"], brokers)

    def list_offsets(self, topic: str, question: Question | int) -> int:
        place = {"question": "time", "at": question} if isinstance(question, int) else {"question": question}
        return int(self.call("list_offsets", topic=topic, **place))

    def delete_topic(self, topic: str) -> None:
        self.call("delete_topic", topic=topic)

    def hold(self, topic: str, count: int) -> None:
        """Connect this number of clients at once, let each write its number, and keep them all."""
        self.call("hold", topic=topic, codec="none", count=count, record_bytes_max=RECORD_BYTES_MAX)

    def release(self) -> None:
        self.call("release")

    def call(self, order: str, **details: object) -> Any:
        """Execute a command; raise ClientError with the error that the client's user would see."""
        assert self._process.stdin is not None
        # A program that hangs is killed.
        guard = threading.Timer(3 * SECONDS_MAX, self._process.kill)
        guard.start()
        try:
            print(json.dumps({"do": order, **details}), file=self._process.stdin, flush=True)
            answer = self._answer()
        finally:
            guard.cancel()
        if error := answer.get("error"):
            raise ClientError(error["code"], error["text"])
        return answer["ok"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            return answer
        raise AssertionError(f"the client ended, with status {self._process.wait()}")


def _in_json(one: Record) -> dict[str, object]:
    headers = [{"name": name, "value": _text(value)} for name, value in one.headers]
    return {"key": _text(one.key), "value": _text(one.value), "headers": headers, "timestamp_ms": one.timestamp_ms}


def _read(one: dict[str, Any]) -> Read:
    headers = tuple((header["name"], _bytes(header["value"])) for header in one["headers"])
    return Read(one["offset"], Record(_bytes(one["key"]), _bytes(one["value"]), headers, one["timestamp_ms"]))


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
