"""The steps of the demo.

1. The broker starts, and Spark with two pipelines. A producer replays the year at a steady pace.
2. Half-way, with flights in flight and Spark at work, the broker and all of Spark are killed with kill -9.
3. Both restart with the same data. The producer continues at the end of the log, the pipelines at their positions.
4. When every flight has arrived everywhere, Spark is stopped. The broker keeps running for the checks.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from odradek.demo import dataset, feed, hours
from odradek.demo.feed import Feed
from odradek.demo.hours import Hours
from odradek.demo.processes import Broker, Pipeline
from odradek.demo.row_counts import RowCount
from odradek.demo.screen import Screen
from odradek.demo.watch import Watch

FLIGHTS_PER_SECOND = 12_000  # A year in half a minute.
TICK_SECONDS = 0.05
SUBMITTED_WHEN_KILLED = 2_000


class Story:
    def __init__(self, broker: Broker, pipeline: Pipeline, flights: pa.Table, screen: Screen) -> None:
        self._broker = broker
        self._pipeline = pipeline
        self._flights = flights
        self._screen = screen

    def run_steps(self, lake: Path) -> None:
        """Run the steps; exceptions of the parts contain one sentence each."""
        self._start_broker()
        for topic, partitions in ((feed.TOPIC, dataset.PARTITIONS), (hours.TOPIC, hours.PARTITIONS)):
            feed.create_topic(self._broker.address, topic, partitions)
        self._start_pipeline()
        with Hours(self._broker.address) as derived:
            watch = Watch([self._broker, self._pipeline], RowCount(lake), derived, self._screen)
            producer = self._first_half(watch)
            self._kill(producer)
            self._start_broker()
            ends = self._log_ends(producer)
            self._start_pipeline()
            self._second_half(watch, ends)
            self._wait_for_all(watch)
        self._screen.print_message("Everything has arrived; Spark stops")
        self._pipeline.stop()

    def _start_broker(self) -> None:
        self._broker.start()
        self._screen.print_message(f"Broker ready at {self._broker.address}")

    def _start_pipeline(self) -> None:
        self._pipeline.start(self._broker.address)
        self._screen.print_message("Spark starts: a stream into departures-by-hour, and odradek load into the lake")

    def _first_half(self, watch: Watch) -> Feed:
        """Replay a quarter while Spark starts and another while it writes, so that all are busy at the kill."""
        half = self._flights.num_rows // 2
        producer = Feed(self._broker.address, self._flights)
        _replay(producer, half // 2, watch)
        while not (watch.counts.loaded and watch.counts.derived):
            producer.submit(0)
            watch.check_progress(producer.submitted)
            time.sleep(TICK_SECONDS)
        _replay(producer, half, watch)
        return producer

    def _kill(self, producer: Feed) -> None:
        producer.submit(SUBMITTED_WHEN_KILLED)
        self._broker.kill()
        processes = self._pipeline.kill()
        in_flight = producer.discard()  # Before the broker restarts, see feed.py.
        self._screen.print_message(
            f"[bold red]kill -9[/bold red] of the broker and of Spark's {processes} processes,"
            f" with {in_flight:,} flights not acknowledged"
        )

    def _log_ends(self, producer: Feed) -> dict[int, int]:
        ends = feed.ends_after_restart(self._broker.address, producer.acknowledged)
        more = sum(ends.values()) - sum(producer.acknowledged.values())
        self._screen.print_message(
            f"The log has every flight that was acknowledged, and {more:,} more; the producer goes on there"
        )
        return ends

    def _second_half(self, watch: Watch, ends: dict[int, int]) -> None:
        producer = Feed(self._broker.address, dataset.remaining(self._flights, ends))
        _replay(producer, producer.total, watch, before=sum(ends.values()))
        producer.finish()

    def _wait_for_all(self, watch: Watch) -> None:
        total = self._flights.num_rows
        while min(watch.counts.loaded, watch.counts.derived) < total:
            watch.check_progress(total)
            time.sleep(TICK_SECONDS)


def _replay(producer: Feed, goal: int, watch: Watch, before: int = 0) -> None:
    """Produce until `goal` flights are handed over; `before` is the initial number of flights in the log."""
    started, first = time.monotonic(), producer.submitted
    while producer.submitted < goal:
        due = first + int((time.monotonic() - started) * FLIGHTS_PER_SECOND)
        producer.submit(max(min(due, goal) - producer.submitted, 0))
        watch.check_progress(before + producer.submitted)
        time.sleep(TICK_SECONDS)
