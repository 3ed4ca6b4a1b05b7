"""Metrics without a broker: histograms, the configuration, and the table in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.app.config.listener_config import Endpoint
from odradek.app.config.server_config import settings
from odradek.app.metrics import metrics_families, metrics_table
from odradek.app.metrics.metrics_snapshot import Histogram
from odradek.core.configs.definition import ConfigError
from odradek.net.loop.traffic import Latencies

DOCUMENT = Path(__file__).parents[4] / "docs" / "OPERATIONS.md"


def test_document_contains_the_table_of_metrics() -> None:
    assert "\n".join(metrics_table.markdown()) in DOCUMENT.read_text()


def test_metric_names_show_type_and_unit() -> None:
    for metric in (*metrics_table.METRICS, *metrics_table.PROCESS_METRICS):
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        if metric.name.startswith(("odradek_", "process_")) or metric.kind == "histogram":
            assert metric.name.removesuffix("_total").endswith("_seconds") == (metric.unit == "seconds"), metric.name
        assert metric.name.startswith("kafka_") == bool(metric.mbean), metric.name


@pytest.mark.parametrize(
    ("seconds", "bound"),
    [
        (0.0, "1.6e-05"),
        (15e-6, "1.6e-05"),
        (16.5e-6, "3.2e-05"),
        (0.001, "0.001024"),
        (30.0, "33.554432"),
        (40, "+Inf"),
    ],
)
def test_latency_is_counted_in_its_bucket_and_all_larger_ones(seconds: float, bound: str) -> None:
    latencies = Latencies()
    latencies.add(seconds)
    buckets = dict(metrics_families.cumulative(Histogram.of(latencies)))
    expected, is_reached = {}, False
    for upper in buckets:
        is_reached = is_reached or upper == bound
        expected[upper] = float(is_reached)
    assert buckets == expected
    assert all(seconds <= float(upper) for upper, count in buckets.items() if count)


def test_last_bucket_counts_all_latencies() -> None:
    latencies = Latencies()
    for exponent in range(-7, 4):
        latencies.add(10.0**exponent)
    buckets = metrics_families.cumulative(Histogram.of(latencies))
    counts = [count for _, count in buckets]
    assert counts == sorted(counts)
    assert buckets[-1] == ("+Inf", 11)


def test_metrics_listener_is_parsed() -> None:
    assert settings({}).metrics is None
    assert settings({"metrics.listener": " "}).metrics is None
    assert settings({"metrics.listener": "127.0.0.1:9308"}).metrics == Endpoint("127.0.0.1", 9308)
    assert settings({"metrics.listener": "[::1]:0"}).metrics == Endpoint("::1", 0)
    assert settings({"metrics.listener": "0.0.0.0:9308"}, insecure=True).metrics == Endpoint("0.0.0.0", 9308)


def test_metrics_listener_is_not_described_to_clients() -> None:
    entries = settings({"metrics.listener": "127.0.0.1:9308"}).configs.describe()
    assert not [entry for entry in entries if entry.name == "metrics.listener"]


@pytest.mark.parametrize("wide", ["0.0.0.0:9308", "[::]:9308", "example.org:9308"])
def test_metrics_on_all_interfaces_are_refused(wide: str) -> None:
    with pytest.raises(ConfigError, match="exposes the metrics to the network without authentication"):
        settings({"metrics.listener": wide})


@pytest.mark.parametrize("wrong", ["9308", ":9308", "127.0.0.1", "127.0.0.1:65536", "http://127.0.0.1:9308", "a b:1"])
def test_invalid_metrics_listener_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"Invalid value .* for configuration metrics\.listener: use host:port"):
        settings({"metrics.listener": wrong})
