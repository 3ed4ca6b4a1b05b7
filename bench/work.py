"""From a case to numbers: makes the topic and the load, lets it run, checks that everything is there, cleans up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import frames
import load_consume
import load_latency
import load_librdkafka
import load_produce
import measure
from brokers import Broker, new_topic
from cases import IN_FLIGHT, Case
from load import LoadFailed, Report, Work, loaded, measured

Numbers = dict[str, float]


class Target(NamedTuple):
    """A broker, and the settings of the topics it is measured with; or one topic, for all repetitions."""

    name: str
    broker: Broker
    configs: dict[str, str]
    topic: Topic | None = None

    def with_topic(self, partitions: int) -> AbstractContextManager[Topic]:
        return nullcontext(self.topic) if self.topic else Topic(self, partitions)


RATE_PER_SECOND = 1000
FILL_SECONDS_MAX = 60


@dataclass(frozen=True)
class Budget:
    """How long, and how much on disk at most; a run ends at whichever comes first."""

    seconds: float
    first_warmup_seconds: float
    warmup_seconds: float
    repetitions: int
    produced_bytes_max: int
    stored_bytes: int  # For consumers to read.
    cold_bytes: int


@dataclass
class Measured:
    """Load on one target, between the word to go and the last report."""

    broker: Broker
    reports: list[Report]
    cpu_seconds: float

    @property
    def wall_seconds(self) -> float:
        return max(report.ended for report in self.reports) - min(report.begun for report in self.reports)

    def numbers(self) -> Numbers:
        wall = self.wall_seconds
        records = sum(report.records for report in self.reports)
        requests = sum(report.requests for report in self.reports)
        found: Numbers = {
            "records_per_s": records / wall,
            "mb_per_s": sum(report.wire_bytes for report in self.reports) / wall / 1e6,
            "wall_s": wall,
            "cpu_s": self.cpu_seconds,
            "cpu_s_per_million": self.cpu_seconds / max(records, 1) * 1e6,
            "broker_cores": self.cpu_seconds / wall,
            "client_cores": sum(report.cpu_seconds for report in self.reports) / wall,
            "rss_mb": self.broker.resident_mb(),
        }
        if requests:
            found["requests_per_s"] = requests / wall
        latencies = [pair for report in self.reports for pair in report.latencies]
        if latencies:
            found |= measure.quantiles(latencies)
        return found


def load(broker: Broker, works: Sequence[Work]) -> Measured:
    """Raises LoadFailed if any answer was an error."""
    reports, cpu = measured(works, broker.cpu_seconds)
    failures = sum(report.failures for report in reports)
    if failures:
        raise LoadFailed(f"{broker.name} did not take {failures} records")
    return Measured(broker, reports, cpu)


class Topic:
    """A topic for one measurement, for `with`; its space is free again afterwards."""

    def __init__(self, target: Target, partitions: int) -> None:
        self._broker = target.broker
        self._partitions = partitions
        self._configs = target.configs
        self.name = new_topic()
        self._records = 0

    def __enter__(self) -> Topic:
        begun = time.monotonic()
        self._broker.create(self.name, self._partitions, self._configs)
        self.create_seconds = time.monotonic() - begun
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.delete(self.name)

    def verify(self, more_records: int) -> None:
        """All that was acknowledged is in the log, and nothing else."""
        self._records += more_records
        if not self._broker.verifies:
            return
        there = sum(self._broker.control.end_offsets(self.name, self._partitions))
        if there != self._records:
            raise LoadFailed(f"{self._broker.name}: {self._records} records acknowledged, {there} in the log")


def produce(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    broker = target.broker
    with target.with_topic(case.partitions) as topic:
        measured = load(broker, _producers(broker, topic.name, case, budget, warmup_seconds))
        topic.verify(sum(report.total_records for report in measured.reports))
        return measured.numbers() | {"create_s": topic.create_seconds}


def _producers(broker: Broker, topic: str, case: Case, budget: Budget, warmup_seconds: float) -> list[Work]:
    """One producer for each client: on a partition of its own, or one on all partitions in turn."""
    data, records = frames.batch(case.value_bytes, case.batch_bytes, case.codec)
    works: list[Work] = []
    for client in range(case.clients):
        mine = range(client, case.partitions, case.clients)
        together = [mine[start : start + case.named] for start in range(0, len(mine), case.named)]
        requests = [frames.produce_to(topic, partitions, case.acks, data) for partitions in together]
        plan = load_produce.Plan(
            port=broker.port,
            topic=topic,
            ring=load_produce.Ring(requests, case.window),
            records_per_request=records * case.named,
            window=case.window,
            warmup_seconds=warmup_seconds,
            seconds=budget.seconds,
            requests_max=max(budget.produced_bytes_max // (len(data) * case.named) // case.clients, 1),
            partitions_named=case.named,
        )
        works.append(plan.work())
    return works


def consume(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    broker = target.broker
    with target.with_topic(case.partitions) as topic:
        stored = budget.cold_bytes if case.is_cold else budget.stored_bytes
        units = _fill(broker, topic, case, stored // case.clients)
        if case.is_cold:
            broker.drop_page_cache(topic.name)
        data, records = frames.batch(case.value_bytes, case.batch_bytes)
        unit = len(data) if broker.verifies else len(frames.produce(topic.name, 0, 1, data))
        works = [
            load_consume.Plan(
                port=broker.port,
                topic=topic.name,
                partition=partition,
                units=units,
                unit_bytes=unit,
                unit_records=records if broker.verifies else unit,
                verifies=broker.verifies,
                warmup_seconds=0 if case.is_cold else warmup_seconds,
                seconds=FILL_SECONDS_MAX if case.is_cold else budget.seconds,
                passes=1 if case.is_cold else 1 << 30,
            ).work()
            for partition in range(case.clients)
        ]
        numbers = load(broker, works).numbers()
        if not broker.verifies:  # It counts bytes, where the others count records.
            numbers |= {
                "records_per_s": numbers["records_per_s"] / unit * records,
                "cpu_s_per_million": numbers["cpu_s_per_million"] * unit / records,
            }
        return numbers


def _fill(broker: Broker, topic: Topic, case: Case, bytes_each: int) -> int:
    """Whole batches in every partition; returns how many."""
    data, records = frames.batch(case.value_bytes, case.batch_bytes)
    units = max(bytes_each // len(data), 1)
    works = [
        load_produce.filling(
            broker.port,
            topic.name,
            frames.produce(topic.name, partition, 1, data),
            records,
            units,
            IN_FLIGHT,
            FILL_SECONDS_MAX,
        )
        for partition in range(case.partitions)
    ]
    done = loaded(works)
    topic.verify(units * records * case.partitions)
    if any(report.requests != units for report in done):
        raise LoadFailed(f"{broker.name}: the topic could not be filled")
    return units


def latency(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    broker = target.broker
    data, _ = frames.batch(case.value_bytes, case.batch_bytes)
    with target.with_topic(1) as topic:
        frame = frames.produce(topic.name, 0, case.acks, data)
        unit = len(data) if broker.verifies else len(frame)
        plan = load_latency.Plan(
            port=broker.port,
            topic=topic.name,
            frame=frame,
            unit_bytes=unit,
            unit_records=1 if broker.verifies else unit,
            rate_per_second=RATE_PER_SECOND,
            warmup_seconds=warmup_seconds,
            seconds=budget.seconds,
        )
        measured = load(broker, plan.works())
        sent, received = measured.reports
        topic.verify(sent.total_records)
        return measured.numbers() | measure.quantiles(load_latency.delays(sent.marks, received.marks))


def librdkafka_produce(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    broker = target.broker
    with target.with_topic(1) as topic:
        plan = _librdkafka(broker, topic.name, case, budget, warmup_seconds=warmup_seconds)
        measured = load(broker, [plan.producer()])
        topic.verify(measured.reports[0].total_records)
        return measured.numbers()


def librdkafka_consume(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    broker = target.broker
    with target.with_topic(1) as topic:
        units = _fill(broker, topic, case, budget.stored_bytes)
        stored = units * frames.batch(case.value_bytes, case.batch_bytes).records
        plan = _librdkafka(broker, topic.name, case, budget, warmup_seconds=warmup_seconds, records=stored)
        return load(broker, [plan.consumer()]).numbers()


def _librdkafka(
    broker: Broker, topic: str, case: Case, budget: Budget, *, warmup_seconds: float, records: int = 0
) -> load_librdkafka.Plan:
    return load_librdkafka.Plan(
        port=broker.port,
        topic=topic,
        value=frames.values(case.value_bytes, 1)[0],
        acks=case.acks,
        codec=case.codec,
        records=records,
        warmup_seconds=warmup_seconds,
        seconds=budget.seconds,
    )
