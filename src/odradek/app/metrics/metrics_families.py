"""Conversion of a snapshot to prometheus_client's families, in the thread of the scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family

from odradek import __version__
from odradek.app.metrics import metrics_replication_table as replicated
from odradek.app.metrics import metrics_table as table
from odradek.app.metrics.metrics_kinds import Metric
from odradek.app.metrics.metrics_replication import LeaderPartition, Replication
from odradek.app.metrics.metrics_snapshot import Histogram, OneLog, Snapshot
from odradek.core.cleaner.cleaning_steps import CleanerStats
from odradek.net.loop.traffic import BUCKETS, MICROSECONDS

# Bucket n of Latencies ends at 2ⁿ µs. Nobody needs buckets below 16 µs, and the last has no end.
FIRST_SHOWN, LAST_SHOWN = 4, BUCKETS - 2
BOUNDS = tuple(str(2**n / MICROSECONDS) for n in range(FIRST_SHOWN, LAST_SHOWN + 1))

SAMPLES_PER_TURN = 50
PAUSE_SECONDS = 0.0002

Thing = TypeVar("Thing")
Value = tuple[Sequence[str], float]


def _paced(items: Iterable[Thing]) -> Iterator[Thing]:
    """Yield the things, and regularly release the interpreter to other threads, above all the loop's."""
    for number, item in enumerate(items, start=1):
        if number % SAMPLES_PER_TURN == 0:
            time.sleep(PAUSE_SECONDS)
        yield item


class _PacedSamples(list):  # type: ignore[type-arg]  # prometheus_client only iterates over it.
    def __iter__(self) -> Iterator[object]:
        return _paced(super().__iter__())


def of_loop(is_responsive: bool, overdue_seconds: float) -> list[Family]:
    """Return the families that need no snapshot of the loop."""
    return [_one(table.LOOP_RESPONSIVE, int(is_responsive)), _one(table.LOOP_OVERDUE, overdue_seconds)]


def of_snapshot(snapshot: Snapshot) -> Iterator[Family]:
    s = snapshot
    yield _family(table.APP_INFO, [((__version__, str(s.broker_id), s.cluster_id), 1)])
    yield _family(table.REQUESTS, [(labels, one.times) for labels, one in s.requests.items()])
    yield _histogram(table.TOTAL_TIME, s.requests.items())
    yield _one(table.BYTES_IN, s.bytes_in)
    yield _one(table.BYTES_OUT, s.bytes_out)
    yield _family(table.CONNECTIONS, [((listener,), count) for listener, count in s.connections.items()])
    yield _one(table.CONNECTIONS_MADE, s.connections_accepted)
    yield _one(table.CONNECTIONS_REFUSED, s.connections_refused)
    yield _family(table.MESSAGES_IN, [((topic,), count) for topic, count in s.messages_in.items()])
    yield _family(table.TOPIC_BYTES_IN, [((topic,), count) for topic, count in s.topic_bytes_in.items()])
    yield _of_logs(table.LOG_SIZE, s, lambda log: log.size_bytes)
    yield _of_logs(table.LOG_START, s, lambda log: log.start_offset)
    yield _of_logs(table.LOG_END, s, lambda log: log.end_offset)
    yield _of_logs(table.LOG_SEGMENTS, s, lambda log: log.segments)
    yield _histogram(table.FLUSH_TIME, [((), s.syncs)])
    yield _one(table.PARTITIONS, s.partitions)
    yield _one(table.LEADERS, s.leaders)
    yield _one(table.ACTIVE_CONTROLLER, s.is_controller)
    yield _one(table.ACTIVE_BROKERS, s.brokers)
    yield _one(table.OFFLINE, s.offline)
    yield _one(table.OFFLINE_DIRECTORIES, sum(s.directories.values()))
    yield _family(table.OFFLINE_DIRECTORY, [((path,), is_offline) for path, is_offline in s.directories.items()])
    yield _one(table.DAMAGED, s.damaged)
    yield from of_replication(s.replication)
    yield _one(table.PURGATORY, s.parked)
    yield _one(table.FETCH_SESSIONS, s.fetch_sessions)
    yield _family(table.GROUPS, s.groups.items())
    yield _one(table.GROUP_OFFSETS, s.group_offsets)
    yield _family(table.TRANSACTIONS, s.transactions.items())
    yield _one(table.PRODUCER_IDS, s.producer_ids)
    yield from _of_cleaner(s.cleaner, s.uncleanable)
    yield _histogram(table.LOOP_LAG, [((), s.lag)])
    yield _one(table.LOOP_LAG_MAX, s.lag_max_seconds)
    yield _one(table.SCRAPE_LOOP, s.loop_seconds)


def of_replication(one: Replication) -> Iterator[Family]:
    yield _one(replicated.UNDER_REPLICATED, sum(led.is_under_replicated for led in one.led))
    yield _one(replicated.UNDER_MIN_ISR, sum(led.is_under_min_isr for led in one.led))
    yield _one(replicated.AT_MIN_ISR, sum(led.is_at_min_isr for led in one.led))
    yield _one(replicated.ISR_SHRINKS, one.isr_shrinks)
    yield _one(replicated.ISR_EXPANDS, one.isr_expands)
    yield _one(replicated.ISR_FAILURES, one.failed_isr_updates)
    yield _of_led(replicated.PARTITION_UNDER_REPLICATED, one, lambda led: led.is_under_replicated)
    yield _of_led(replicated.PARTITION_IN_SYNC, one, lambda led: led.in_sync)
    yield _one(replicated.REPLICATION_IN, one.bytes_in)
    yield _one(replicated.REPLICATION_OUT, one.bytes_out)
    yield _one(replicated.FETCHER_MAX_LAG, max((lag.records for lag in one.lags), default=0))
    yield _one(replicated.FETCHER_FAILED, one.failed)
    yield _family(replicated.FETCHER_LAG, (((lag.fetcher, lag.topic, lag.partition), lag.records) for lag in one.lags))
    yield _one(replicated.OFFLINE_PARTITIONS, one.offline_partitions)
    yield _one(replicated.NOT_PREFERRED, one.not_preferred)
    yield _one(replicated.UNCLEAN_ELECTIONS, one.unclean_elections)


def _of_cleaner(cleaner: CleanerStats, uncleanable: Mapping[str, int]) -> Iterator[Family]:
    yield _one(table.CLEANER_DIRTY, round(cleaner.max_dirty_ratio * 100))
    yield _family(table.CLEANER_SET_ASIDE, [((directory,), count) for directory, count in uncleanable.items()])
    yield _one(table.CLEANER_RECOPY, round(cleaner.last_recopied_ratio * 100))
    yield _one(table.CLEANER_PASSES, cleaner.passes)
    yield _one(table.CLEANER_READ, cleaner.read_bytes)
    yield _one(table.CLEANER_KEPT, cleaner.kept_bytes)
    yield _one(table.CLEANER_DROPPED, cleaner.dropped_records)


def _one(metric: Metric, value: float) -> Family:
    return _family(metric, [((), value)])


def _of_led(metric: Metric, replication: Replication, value: Callable[[LeaderPartition], float]) -> Family:
    return _family(metric, (((led.topic, led.partition), value(led)) for led in replication.led))


def _of_logs(metric: Metric, snapshot: Snapshot, value: Callable[[OneLog], float]) -> Family:
    return _family(metric, (((log.topic, log.partition), value(log)) for log in snapshot.logs))


def _family(metric: Metric, values: Iterable[Value]) -> Family:
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in _paced(values):
        family.add_metric(labels, value)
    family.samples = _PacedSamples(family.samples)
    return family


def _histogram(metric: Metric, values: Iterable[tuple[Sequence[str], Histogram]]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    for labels, histogram in values:
        family.add_metric(labels, cumulative(histogram), histogram.seconds)
    family.samples = _PacedSamples(family.samples)
    return family


def cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    below = sum(histogram.buckets[:FIRST_SHOWN])
    buckets: list[tuple[str, float]] = []
    for bound, count in zip(BOUNDS, histogram.buckets[FIRST_SHOWN:], strict=False):
        below += count
        buckets.append((bound, below))
    buckets.append(("+Inf", histogram.times))
    return buckets
