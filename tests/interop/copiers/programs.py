"""Commands of each client's copier; programs are compiled once in the process."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from clients import golang
from kafka_peer import REAL_KAFKA, VERSION, client_jars

INTEROP = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Program:
    client: str
    protocol: str  # Of its group.
    command: Callable[[], list[str]]

    def __str__(self) -> str:
        return f"{self.client}-{self.protocol}"


@cache
def _folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="odradek-test-"))
    atexit.register(shutil.rmtree, made, True)  # ignore_errors
    return made


def _librdkafka() -> list[str]:
    return [sys.executable, "-m", "copiers.librdkafka"]


@cache
def _java_classes() -> str:
    jars = f"{client_jars(VERSION)}/*"
    source = INTEROP / "java" / "Copier.java"
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(_folder() / "java"), str(source)], check=True)
    return f"{_folder() / 'java'}:{jars}"


def _java() -> list[str]:
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", _java_classes(), "Copier"]


@cache
def _go() -> str:
    made = str(_folder() / "copier")
    subprocess.run(["go", "build", "-C", str(INTEROP / "go"), "-o", made, "./copier"], check=True)
    return made


GO = pytest.mark.skipif(golang.missing is not None, reason=golang.missing or "")
PROGRAMS = [
    Program("librdkafka", "classic", _librdkafka),
    Program("librdkafka", "consumer", _librdkafka),
    pytest.param(Program("java", "classic", _java), marks=REAL_KAFKA),
    pytest.param(Program("java", "consumer", _java), marks=REAL_KAFKA),
    pytest.param(Program("franz-go", "classic", lambda: [_go()]), marks=GO),
]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(INTEROP.parent), str(INTEROP)])}
