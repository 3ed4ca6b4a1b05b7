"""Types of the metric tables metrics_table and metrics_replication_table."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """Metric family. `name` is as scraped, without a histogram's _bucket, _sum and _count."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    unit: str
    meaning: str
    mbean: str = ""


def counter(name: str, labels: str, unit: str, meaning: str, mbean: str = "") -> Metric:
    return Metric(name, "counter", tuple(labels.split()), unit, meaning, mbean)


def gauge(name: str, labels: str, unit: str, meaning: str, mbean: str = "") -> Metric:
    return Metric(name, "gauge", tuple(labels.split()), unit, meaning, mbean)


def histogram(name: str, labels: str, meaning: str, mbean: str = "") -> Metric:
    return Metric(name, "histogram", tuple(labels.split()), "seconds", meaning, mbean)
