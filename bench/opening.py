"""How long a broker with many partitions takes until it serves: after a clean stop, and after kill -9.

    python bench/opening.py [--partitions 2000] [--segments 3] [--rounds 3] [--python PATH]

Each partition has some segments, one batch in the last of them beyond the recovery point when the broker is killed.
Printed are the seconds from the start of the process to its line `ready`, and its resident memory then.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from odradek.base.units import BrokerId, LeaderEpoch, TimestampMs, TopicName, TopicPartition
from odradek.log.directory.directory import LogDirectory
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.log_config import LogConfig
from odradek.log.files.unsynced import UnsyncedDisk
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch

BATCH_BYTES, BATCHES_PER_SEGMENT = 1000, 20
CONFIG = LogConfig(segment_bytes=BATCH_BYTES * BATCHES_PER_SEGMENT)
BROKER = BrokerId(1)


def now_ms() -> TimestampMs:
    return TimestampMs(time.time_ns() // 1_000_000)


def batch() -> Batch:
    return Batch.checked(memoryview(encode_batch([(None, bytes(BATCH_BYTES - 80), (), now_ms())])))


def opened(folder: Path) -> LogDirectory:
    return open_log_directory(
        UnsyncedDisk(), str(folder), now_ms(), broker_id=BROKER, cluster_id=None, config_of=lambda _: CONFIG
    )


def fill(folder: Path, partitions: int, segments: int) -> None:
    """Writes logs as a broker does, and stops cleanly."""
    directory = opened(folder)
    for number in range(partitions):
        log = directory.create(TopicPartition(TopicName("t"), number), None, CONFIG, now_ms())
        for _ in range(BATCHES_PER_SEGMENT * segments - 1):
            log.append(batch(), LeaderEpoch(0), now_ms())
    assert not directory.close(now_ms())


def append_and_die(folder: Path) -> None:
    """Appends a batch to each log, as a broker that is killed before the next sync."""
    directory = opened(folder)
    for log in directory.logs.values():
        log.append(batch(), LeaderEpoch(0), now_ms())
    directory.abandon()


def started(python: str, folder: Path) -> tuple[subprocess.Popen[str], float]:
    """Returns the broker, and how long it took to be ready."""
    settings = {"log.dirs": str(folder / "data"), "listeners": "PLAINTEXT://127.0.0.1:0", "broker.id": str(BROKER)}
    command = [python, "-m", "odradek", "serve", *(f"--override={key}={value}" for key, value in settings.items())]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready "), line
    return process, time.monotonic() - began


def ended(process: subprocess.Popen[str], number: signal.Signals) -> int:
    """Ends the broker; returns how much memory it had, in MB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    process.send_signal(number)
    process.wait()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) // 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--segments", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the odradek to be measured")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="odradek-opening-"))
    try:
        fill(folder / "data", options.partitions, options.segments)
        print(f"{options.partitions} partitions of {options.segments} segments", flush=True)
        process, _ = started(options.python, folder)  # It takes the logs over as a topic, which is done once.
        ended(process, signal.SIGTERM)
        for _ in range(options.rounds):
            for state in ("after a clean stop", "after kill -9"):
                if state == "after kill -9":
                    append_and_die(folder / "data")
                process, seconds = started(options.python, folder)
                memory = ended(process, signal.SIGTERM)
                print(f"{state:20} {seconds:6.2f} s {memory:5} MB", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
