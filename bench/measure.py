"""Numbers of processes and of samples."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}

Weighted = Sequence[tuple[float, int]]


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads since the start, ended ones too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def resident_mb(pid: int) -> float:
    return _status_mb(pid, "VmRSS")


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mb(pid: int) -> float:
    """Returns the most that was resident since the peak was forgotten; the kernel keeps it, so nobody has to look."""
    return _status_mb(pid, "VmHWM")


def _status_mb(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def quantiles(samples: Weighted) -> dict[str, float]:
    """In microseconds, of (seconds, how many requests took that long)."""
    ordered = sorted(samples)
    total = sum(count for _, count in ordered)
    found: dict[str, float] = {}
    targets = iter(QUANTILES.items())
    name, share = next(targets)
    seen = 0
    for seconds, count in ordered:
        seen += count
        while seen >= share * total:
            found[name] = round(seconds * 1e6, 1)
            name, share = next(targets, ("", 2.0))
    return found


def medians(repetitions: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each number that every repetition has."""
    names: Iterable[str] = repetitions[0].keys() if repetitions else ()
    return {
        name: median(repetition[name] for repetition in repetitions)
        for name in names
        if all(name in repetition for repetition in repetitions)
    }
