"""A broker that has just been started: how soon it answers, what it takes to be idle, and its first seconds of work.

Tests and CI meet brokers like this; a JVM is then still interpreting.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import work
from brokers import BROKERS
from cases import Case
from work import Budget, Numbers, Target

SETTLE_SECONDS = 1.0

COLD = {
    "cold_one_at_a_time": Case("start", "", "produce", batch_bytes=1, window=1),
    "cold_50_in_flight": Case("start", "", "produce", batch_bytes=1, window=50),
    "cold_produce_1k": Case("start", "", "produce", value_bytes=1024),
}


def measure(name: str, folder: Path, budget: Budget, idle_seconds: float) -> Numbers:
    broker = BROKERS[name](folder)
    try:
        numbers = {"ready_s": broker.start()}
        time.sleep(min(SETTLE_SECONDS, idle_seconds))
        before = broker.cpu_seconds()
        time.sleep(idle_seconds)
        numbers["idle_cores"] = (broker.cpu_seconds() - before) / idle_seconds
        numbers["idle_rss_mb"] = broker.resident_mb()
        target = Target(name, broker, {})
        for label, case in COLD.items():
            cold = work.produce(target, case, replace(budget, seconds=min(1.0, budget.seconds)), 0)
            numbers[f"{label}_per_s"] = cold["records_per_s"]
            numbers[f"{label}_p99"] = cold["p99"]
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return numbers
