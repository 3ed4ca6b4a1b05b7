"""The same workload in other languages: programs that record events like `recorder`, without a final read.

Each is called with ADDRESS HISTORY SEED NEWEST NAME:PARTITIONS..., where NEWEST is a group protocol, and runs until its
standard input ends.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kafka_peer import client_jars

from workload.worker import PAUSE_SECONDS, Setting, Worker

HERE = Path(__file__).resolve().parent
JAVA = {"java-4.4.0": "4.4.0", "java-3.9.1": "3.9.1"}  # By the version of the client.
FRANZ_GO = "franz-go"
PROGRAMS = (*JAVA, FRANZ_GO)


@cache
def built(client: str) -> list[str]:
    """Return the command that starts the workload of a client."""
    folder = tempfile.mkdtemp(prefix="odradek-test-")
    atexit.register(shutil.rmtree, folder, True)  # ignore_errors
    return _go(folder) if client == FRANZ_GO else _java(JAVA[client], folder)


def _java(version: str, folder: str) -> list[str]:
    jars = f"{client_jars(version)}/*"
    sources = [str(source) for source in sorted((HERE / "java").glob("*.java"))]
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", folder, *sources], check=True)
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return ["java", *options, "-cp", f"{folder}:{jars}", "Workload"]


def _go(folder: str) -> list[str]:
    made = f"{folder}/workload"
    subprocess.run(["go", "build", "-C", str(HERE.parent / "go"), "-o", made, "./workload"], check=True)
    return [made]


class Program(Worker):
    """All clients of a program; its processes are numbered from 0, and it records into its own file."""

    def __init__(self, setting: Setting, command: Sequence[str], arguments: Sequence[str]) -> None:
        super().__init__(setting, process=0, seed=0)
        self._command = [*command, *arguments]

    def run(self) -> None:
        with tempfile.TemporaryFile("w+") as errors:
            with subprocess.Popen(self._command, stdin=subprocess.PIPE, stderr=errors) as process:
                while process.poll() is None and not self.setting.is_over.wait(PAUSE_SECONDS):
                    pass
            if process.returncode:
                errors.seek(0)
                raise RuntimeError(f"exit {process.returncode}: {errors.read()}")
