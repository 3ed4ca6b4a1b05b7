"""kcat, with one process for each call, and one for each written record."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from clients.client import RECORD_BYTES_MAX, SECONDS_MAX, ClientError, Question, Start
from clients.kcat_member import KcatMember
from clients.members import Joining
from clients.records import CODECS, Read, Record

RESETS = {"earliest": "earliest", "latest": "latest", "none": "error"}
QUESTIONS: dict[Question, int] = {"earliest": -2, "latest": -1}
KEY_END, RECORD_END = "<=key", "<=record"

available = shutil.which("kcat") is not None


class Kcat:
    name = "kcat"
    codecs = CODECS
    sets_time = False
    answers = frozenset(QUESTIONS)

    def __init__(self, address: str) -> None:
        self._address = address
        output = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
        version = re.search(r"Version (\S+) .*librdkafka (\S+)", output)
        assert version is not None, output
        self.version = f"{version[1]} (librdkafka {version[2]})"

    def writes(self, record: Record) -> bool:
        """Return whether the record fits on a command line: headers need a name, and null and empty are the same."""
        arguments = ((name, value or b"") for name, value in record.headers)
        return all(name and b"\0" not in value for name, value in arguments) and not (
            None in record[:2] and b"" in record[:2]
        )

    def produce(
        self,
        topic: str,
        codec: str,
        records: Sequence[Record],
        *,
        record_bytes_max: int = RECORD_BYTES_MAX,
        idempotent: bool | None = None,
    ) -> None:
        settings = [f"compression.codec={codec}", "acks=all", f"message.max.bytes={record_bytes_max}"]
        settings += [] if idempotent is None else [f"enable.idempotence={str(idempotent).lower()}"]
        for record in records:
            headers = [name.encode() + (b"" if value is None else b"=" + value) for name, value in record.headers]
            nulls = ["-Z"] if None in record[:2] else []
            place = ["-t", topic, "-p", "0", "-K", KEY_END, "-D", RECORD_END, *nulls]
            arguments = [*place, *(word for one in settings for word in ("-X", one))]
            data = (record.key or b"") + KEY_END.encode() + (record.value or b"")
            self._run("-P", *arguments, *(word for one in headers for word in ("-H", one)), data=data)

    def consume(self, topic: str, start: Start, count: int, *, committed: bool = False) -> list[Read]:
        place = {"beginning": "beginning", "end": "end", "offset": str(start.at), "time": f"s@{start.at}"}
        reset = f"topic.auto.offset.reset={RESETS[start.reset]}"
        isolation = f"isolation.level={'read_committed' if committed else 'read_uncommitted'}"
        where = ["-t", topic, "-p", "0", "-o", place[start.where]]
        settings = ["-X", reset, "-X", isolation, "-X", "fetch.wait.max.ms=100"]
        lines = self._run("-C", "-q", "-J", *where, *settings, "-c", str(count)).splitlines()
        assert len(lines) == count, f"{len(lines)} of {count}"
        return [_read(line) for line in lines]

    def join(self, joining: Joining) -> KcatMember:
        return KcatMember(self._address, joining)

    def close(self) -> None:
        pass

    def list_topic(self, topic: str) -> dict[str, Any]:
        """Return the output of -L for one topic and its cluster."""
        listed: dict[str, Any] = json.loads(self._run("-L", "-J", "-t", topic))
        return listed

    def list_offsets(self, topic: str, question: Question | int) -> int:
        number = question if isinstance(question, int) else QUESTIONS[question]
        output = self._run("-Q", "-t", f"{topic}:0:{number}").decode()
        found = re.search(r"offset (-?\d+)", output)
        assert found is not None, output
        return int(found[1])

    def _run(self, *arguments: str | bytes, data: bytes = b"") -> bytes:
        command = ["kcat", "-b", self._address, *arguments]
        done = subprocess.run(command, input=data, capture_output=True, timeout=SECONDS_MAX, check=False)
        if done.returncode:
            raise ClientError(None, done.stderr.decode(errors="replace"))
        return done.stdout


def _read(line: bytes) -> Read:
    """Parse a line of -J, which contains bytes that are not UTF-8 unchanged."""
    message = json.loads(line.decode(errors="surrogateescape"))
    headers = message.get("headers", [])
    pairs = zip(headers[::2], headers[1::2], strict=True)
    named = tuple((name, _bytes(value)) for name, value in pairs)
    return Read(message["offset"], Record(_bytes(message["key"]), _bytes(message["payload"]), named, message["ts"]))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode(errors="surrogateescape")
