"""Results as pairs that may be compared: the same work, with the same promise about the disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

import measure
from work import Numbers

# (ours, theirs, what is said of the pair).  Where a pair's names are missing from a case, the pair is.
SYNCED, DEFAULTS = "synced", "with defaults"
LIKE_FOR_LIKE = (
    ("odradek-unsynced", "kafka", ""),
    ("odradek-relaxed", "kafka", ""),
    ("odradek", "kafka-synced", SYNCED),
    ("odradek", "kafka-strict", SYNCED),
    ("odradek", "kafka", DEFAULTS),  # Said only where there is another pair to tell it from.
)


@dataclass(frozen=True, slots=True)
class Pair:
    """One case, measured on both; `bound` where there was one."""

    group: str
    name: str
    case: dict[str, Any]
    ours: Numbers
    theirs: Numbers
    bound: Numbers | None
    promise: str = ""

    @property
    def is_synced(self) -> bool:
        return self.promise == SYNCED

    @property
    def label(self) -> str:
        return f"{self.name}, {self.promise}" if self.promise else self.name

    @property
    def rate(self) -> float:
        """Ours over Kafka's: above 1 is faster."""
        return self.ours["records_per_s"] / self.theirs["records_per_s"]

    @property
    def cpu(self) -> float | None:
        """The broker's processor time for each record, ours over Kafka's; None where one is too short to be seen."""
        ours, theirs = self.ours["cpu_s_per_million"], self.theirs["cpu_s_per_million"]
        return ours / theirs if ours and theirs else None

    @property
    def p99(self) -> float | None:
        return self.ours["p99"] / self.theirs["p99"] if "p99" in self.ours and "p99" in self.theirs else None


@dataclass(frozen=True, slots=True)
class Results:
    """A file of results, with the medians of its repetitions."""

    mode: str
    machine: dict[str, str]
    cases: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Results:
        content = json.loads(path.read_text())
        return cls(content["mode"], content["machine"], content["cases"])

    def of(self, group: str) -> list[tuple[dict[str, Any], dict[str, Numbers]]]:
        """Cases with the medians of each target."""
        return [
            (case, {target: measure.medians(numbers) for target, numbers in case["results"].items()})
            for case in self.cases
            if case["group"] == group
        ]

    def pairs(self, group: str) -> list[Pair]:
        return [pair for case, found in self.of(group) for pair in _pairs(case, found)]

    def errors(self) -> list[str]:
        return [
            f"{case['group']}, {case['name']}, {target}: {error}"
            for case in self.cases
            for target, error in case["errors"].items()
        ]


def _pairs(case: dict[str, Any], found: dict[str, Numbers]) -> Iterator[Pair]:
    for ours, theirs, promise in LIKE_FOR_LIKE:
        if ours in found and theirs in found and not (promise == DEFAULTS and "kafka-synced" in case["targets"]):
            promise_label = "" if case["targets"][0] == ours and promise == DEFAULTS else promise
            yield Pair(case["group"], case["name"], case, found[ours], found[theirs], found.get("bound"), promise_label)


def typical(ratios: list[float]) -> float:
    """The geometric mean: half as fast and twice as fast make 1."""
    return exp(sum(log(ratio) for ratio in ratios) / len(ratios))
