"""On what, and with which versions, the numbers were made."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def describe(folder: Path) -> dict[str, str]:
    """`folder` is where the brokers keep their data."""
    memory_kib = _memory_kib("MemTotal")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _first(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo")),
        "cores": str(os.cpu_count()),
        "memory": f"{memory_kib / 1048576:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _output("findmnt", "-n", "-o", "FSTYPE", "-T", str(folder)),
        "Python": platform.python_version(),
        "uvloop": _version("uvloop"),
        "Odradek": f"{_version('odradek')}, {'interpreted' if is_interpreted() else 'compiled'}, {_commit()}",
        "Apache Kafka": "4.4.0",
        "Java": _output("java", "-version").partition("\n")[0],
        "librdkafka": _librdkafka(),
        "load at the start": f"{os.getloadavg()[0]:.2f}",
    }


def available_bytes() -> int:
    """Returns how much memory there is without taking any from somebody."""
    return _memory_kib("MemAvailable") * 1024


def _memory_kib(name: str) -> int:
    return int(_first(rf"{name}:\s*(\d+)", Path("/proc/meminfo")))


@contextmanager
def stolen(into: dict[str, float], name: str) -> Iterator[None]:
    """Notes how much of the processors a virtual machine's host kept for itself meanwhile, in percent."""
    before = processor_ticks()
    yield
    after = processor_ticks()
    into[f"{name}_steal_percent"] = round(100 * (after[7] - before[7]) / max(sum(after) - sum(before), 1), 1)


def processor_ticks() -> list[int]:
    """Returns those of all processors together: user, nice, system, idle, iowait, irq, softirq, steal (proc(5))."""
    return [int(ticks) for ticks in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]


def _first(pattern: str, path: Path) -> str:
    found = re.search(pattern, path.read_text())
    return found[1].strip() if found else "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return "not installed"
    return (done.stdout or done.stderr).strip()


def _commit() -> str:
    return _output("git", "-C", str(ROOT), "describe", "--always", "--dirty")


def is_interpreted() -> bool:
    """What is measured as odradek runs as in the editable installation, not as users install it."""
    return os.environ.get("ODRADEK_ROOMS") == "0"


def _librdkafka() -> str:
    """Asked of another process: this one forks, and should not have librdkafka's library in it."""
    code = "import confluent_kafka; print(confluent_kafka.libversion()[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return f"{done.stdout.strip()}, confluent-kafka {_version('confluent-kafka')}" if done.stdout else "not installed"
