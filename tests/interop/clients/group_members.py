"""Group members in separate processes, over librdkafka or the Java client, with either group protocol.

Each reports its assignment and the records that it reads (group_member.py and ../java/Member.java); `kill` is kill -9.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType

from kafka_peer import VERSION, client_jars

JAVA_SOURCE = Path(__file__).resolve().parents[1] / "java" / "Member.java"
PYTHON_SOURCE = Path(__file__).with_name("group_member.py")
SECONDS_MAX = 90
STEP_SECONDS = 0.02

Command = Callable[[], list[str]]


def librdkafka() -> list[str]:
    return [sys.executable, str(PYTHON_SOURCE)]


def java() -> list[str]:
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", _java_classes(), "Member"]


@cache
def _java_classes() -> str:
    jars, made = f"{client_jars(VERSION)}/*", mkdtemp(prefix="odradek-test-")
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", made, str(JAVA_SOURCE)], check=True)
    return f"{made}:{jars}"


class Member:
    """A member process, for `with`. `assigned` and `read` contain its reports so far."""

    def __init__(self, command: Command, address: str, subscription: str, settings: Mapping[str, str]) -> None:
        arguments = [f"{name}={value}" for name, value in settings.items()]
        self.assigned: set[str] = set()
        self.read: list[str] = []  # Values, in their order.
        self.output: list[str] = []
        self._process = subprocess.Popen(
            [*command(), address, subscription, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, *rest = line.split()
            if what == "assigned":
                self.assigned |= set(rest)
            elif what == "revoked":
                self.assigned -= set(rest)
            if what == "read":
                self.read.append(rest[1])
            else:
                self.output.append(line.strip())

    def __enter__(self) -> Member:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def close(self) -> None:
        """Close the consumer, which leaves its group."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("close\n")
            self._process.stdin.close()
        self._process.wait(SECONDS_MAX)
        self._reader.join(SECONDS_MAX)
        assert self.output[-1:] == ["closed"], self.output

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(SECONDS_MAX)


def share(members: Sequence[Member], partitions: set[str]) -> None:
    """Wait until each member has partitions, and together they have all."""
    until(lambda: _is_shared(members, partitions), lambda: [(one.assigned, one.output) for one in members])


def _is_shared(members: Sequence[Member], partitions: set[str]) -> bool:
    assigned = [partition for member in members for partition in member.assigned]
    return all(member.assigned for member in members) and sorted(assigned) == sorted(partitions)


def until(condition: Callable[[], bool], otherwise: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(STEP_SECONDS)
