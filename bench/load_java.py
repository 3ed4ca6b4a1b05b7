"""Transactions through the Java client, a process of its own that starts with a cold JVM and is warmed up."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import measure
from load import Gate, LoadFailed, Report, Work
from load_transactions import RECORDS, Plan

PROGRAM = Path(__file__).with_name("Transactions.java")
WARMUP_SECONDS_MIN = 1.5


def work(plan: Plan) -> Work:
    command = _command(plan, _class_path())
    return lambda gate: _run(plan, command, gate)


@cache
def _class_path() -> str:
    """Where the client is, and the program, compiled once."""
    import kafka_peer  # On the path since `brokers` is imported.

    folder = tempfile.mkdtemp(prefix="odradek-bench-java-")
    atexit.register(shutil.rmtree, folder, True)  # ignore_errors
    jars = f"{kafka_peer.jars()}/*"
    subprocess.run(["javac", "-cp", jars, "-d", folder, str(PROGRAM)], check=True)
    return f"{folder}:{jars}"


def _run(plan: Plan, command: list[str], gate: Gate) -> Report:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        process.kill()
        raise LoadFailed("the Java client did not get ready")
    gate.wait()
    begun, cpu = time.monotonic(), measure.cpu_seconds(process.pid)
    process.stdin.write("\n")
    process.stdin.flush()
    output = process.stdout.readline().split()
    ended, cpu = time.monotonic(), measure.cpu_seconds(process.pid) - cpu
    if process.wait() or not output:
        raise LoadFailed("the Java client failed")
    warm, *nanoseconds = map(int, output)
    return Report(
        begun=begun,
        ended=ended,
        requests=len(nanoseconds),
        records=len(nanoseconds) * RECORDS,
        wire_bytes=len(nanoseconds) * plan.value_bytes,
        cpu_seconds=cpu,
        latencies=[(took / 1e9, 1) for took in nanoseconds],
        total_records=(warm + len(nanoseconds)) * RECORDS,
    )


def _command(plan: Plan, class_path: str) -> list[str]:
    arguments = [
        f"127.0.0.1:{plan.port}",
        plan.transactional_id,
        plan.topic,
        str(plan.partitions),
        str(RECORDS),
        str(len(plan.values[0])),
        plan.group or "",
        str(max(plan.warmup_seconds, WARMUP_SECONDS_MIN)),
        str(plan.seconds),
    ]
    return ["java", "-cp", class_path, PROGRAM.stem, *arguments]
