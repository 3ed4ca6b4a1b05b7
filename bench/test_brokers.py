"""How long a test waits for its broker, and what it costs: Odradek in the test's process, and what else there is.

    python bench/test_brokers.py              # prints the table of docs/TESTING.md

Each is started and stopped several times.  Beside the median stand the first, which imports and compiles what the
later ones find, and the fastest, which other work on the machine has disturbed least.  Up means that a client which is
there already gets an answer: the time is from the call that starts it to an answered ApiVersions or, for librdkafka's
mock cluster, which has no start of its own, to an answered Metadata.  Memory is what the first one adds to the test's
process, with what it imports, or what its own process has; resident.

Apache Kafka is its process alone (KRaft, one node, a small heap, a directory formatted before).  A container of it
starts the same process after Docker has made the container, so it takes longer than what is measured here; the image
that is compiled ahead of time (apache/kafka-native) is another program, and not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
for folder in ("src", "tests", "tests/interop"):
    sys.path.insert(0, str(ROOT / folder))

from kafka_peer import KafkaBroker, missing  # noqa: E402

from support.raw_client import Closed, RawClient  # noqa: E402
from support.serving import Serving  # noqa: E402

MS = 1000


class Round(NamedTuple):
    """One start and stop, in milliseconds; memory in MiB."""

    up: float
    down: float
    memory: float


def wait_for_answer(port: int) -> None:
    while True:
        try:
            with RawClient(port) as client:
                return client.ping()
        except (OSError, Closed):
            time.sleep(0.002)


def resident(pid: int | str = "self") -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def in_process() -> Round:
    before = resident()
    from odradek.testing.embedded_broker import Broker

    began = time.perf_counter()
    broker = Broker().start()
    wait_for_answer(broker.port)
    up = time.perf_counter()
    memory = resident() - before
    for number in range(3):
        broker.create_topic(f"t{number}")
    stopping = time.perf_counter()
    broker.close()
    return Round((up - began) * MS, (time.perf_counter() - stopping) * MS, memory)


def as_a_process() -> Round:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        broker = Serving(Path(folder)).start()
        wait_for_answer(broker.port)
        up, memory = time.perf_counter(), resident(broker.pid)
        broker.stop()
        return Round((up - began) * MS, (time.perf_counter() - up) * MS, memory)


def apache_kafka() -> Round:
    with tempfile.TemporaryDirectory() as folder:
        broker = KafkaBroker(Path(folder))
        broker.start()  # Formats the directory, and compiles nothing for later: only the second start is timed.
        broker.stop()
        began = time.perf_counter()
        broker.start()
        wait_for_answer(broker.port)
        up, memory = time.perf_counter(), _java_memory(broker)
        broker.stop()
        return Round((up - began) * MS, (time.perf_counter() - up) * MS, memory)


def _java_memory(broker: KafkaBroker) -> float:
    process = broker._process
    assert process is not None
    return resident(process.pid)


def mock_cluster() -> Round:
    before = resident()
    from confluent_kafka.admin import AdminClient

    began = time.perf_counter()
    admin = AdminClient({"test.mock.num.brokers": 1, "log_level": 0})
    admin.list_topics(timeout=10)
    up, memory = time.perf_counter(), resident() - before
    del admin
    return Round((up - began) * MS, (time.perf_counter() - up) * MS, memory)


KINDS: dict[str, tuple[str, Callable[[], Round]]] = {
    "odradek": ("`odradek.testing`, in the test's process", in_process),
    "serve": ("`odradek serve`, a process", as_a_process),
    "mock": ("librdkafka's mock cluster, in the test's process", mock_cluster),
    "kafka": ("Apache Kafka 4.4.0, its process without a container", apache_kafka),
}


def rounds_of(kind: str, count: int) -> list[Round]:
    """In a fresh interpreter, so that the first is the first of a process."""
    script = f"import json, test_brokers as b; print(json.dumps([b.KINDS[{kind!r}][1]() for _ in range({count})]))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    ended = subprocess.run(
        [sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    return [Round(*numbers) for numbers in json.loads(ended.stdout)]


def import_ms(module: str) -> float:
    """What importing it adds to an interpreter that has what pytest has loaded anyway."""
    script = f"import pytest, time; t = time.perf_counter(); import {module}; print((time.perf_counter() - t) * 1000)"
    runs = [subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE) for _ in range(5)]
    return statistics.median(float(run.stdout) for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    print(f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} processors\n")
    print(f"import odradek.testing.embedded_broker: {import_ms('odradek.testing.embedded_broker'):.0f} ms")
    print(f"import confluent_kafka: {import_ms('confluent_kafka.admin'):.0f} ms\n")
    print("| Broker | First startup | Median startup | Fastest startup | Median shutdown | Memory |")
    print("|---|--:|--:|--:|--:|--:|")
    for kind, (title, _) in KINDS.items():
        if kind == "kafka" and missing() is not None:
            print(f"| {title} | {missing()} | | | | |")
            continue
        found = rounds_of(kind, max(3, rounds // 3) if kind == "kafka" else rounds)
        up, down = statistics.median(one.up for one in found), statistics.median(one.down for one in found)
        times = f"{found[0].up:.0f} ms | {up:.0f} ms | {min(found).up:.0f} ms | {down:.0f} ms"
        print(f"| {title} | {times} | {found[0].memory:.0f} MB |")


if __name__ == "__main__":
    main()
