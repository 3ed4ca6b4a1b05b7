"""Groups: how soon their members have their shares, and what it costs others that many of them commit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import frames
import load_commits
import load_groups
import load_paced
import measure
from brokers import Broker, Odradek
from cases import Case
from load import Work
from work import Budget, Measured, Numbers, Target, load

GROUPS = 1000
CONNECTIONS = 10


def groups(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    broker = target.broker
    broker.control.wait_for_groups(["settling"])
    with target.with_topic(case.partitions) as topic:
        plan = load_groups.Plan(
            port=broker.port,
            members=case.clients,
            is_consumer=case.is_consumer,
            topic=topic.name,
            partitions=case.partitions,
            warmup_seconds=warmup_seconds,
            seconds=budget.seconds,
        )
        measured = load(broker, [plan.work()])
    (report,) = measured.reports
    return report.numbers | {
        "rounds": report.records,
        "cpu_s": measured.cpu_seconds / report.records,
        "client_cpu_s": report.cpu_seconds / report.records,
        "rss_mb": broker.resident_mb(),
    }


def commits(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    """Without them, with them elsewhere, here, and back: what changes meanwhile on the machine changes for all.

    Elsewhere is another Odradek like the target: what the commits and a broker that takes them cost a machine.
    """
    names = [f"committing-{number:04}" for number in range(GROUPS)]
    seconds = budget.seconds * 2 / 3
    with target.with_topic(1) as topic, _another(target.broker) as another:
        frame = frames.produce(topic.name, 0, case.acks, frames.batch(case.value_bytes, case.batch_bytes).data)
        producer = load_paced.Plan(target.broker.port, topic.name, frame, case.rate, warmup_seconds, seconds)
        sides: list[tuple[str, list[Work]]] = [("alone_", [])]
        for prefix, broker in (("elsewhere_", another), ("", target.broker)):
            if broker is not None:
                if broker is another:
                    broker.create(topic.name, 1, {})
                broker.control.wait_for_groups(names)
                plan = load_commits.Plan(broker.port, topic.name, names, CONNECTIONS, warmup_seconds, seconds)
                sides.append((prefix, [plan.work()]))
        found: dict[str, list[Measured]] = {prefix: [] for prefix, _ in sides}
        for prefix, works in [*sides, *reversed(sides)]:
            found[prefix].append(load(target.broker, [producer.work(), *works]))
            topic.verify(found[prefix][-1].reports[0].total_records)
        numbers = {prefix + name: number for prefix, some in found.items() for name, number in _produced(some).items()}
        return numbers | _committed(found[""]) | {"rss_mb": target.broker.resident_mb()}


@contextmanager
def _another(broker: Broker) -> Iterator[Broker | None]:
    """None for a Kafka: it would need a minute until it is warm."""
    if not isinstance(broker, Odradek):
        yield None
        return
    another = type(broker)(broker.folder / "another")
    try:
        another.start()
        yield another
    finally:
        another.stop()
        shutil.rmtree(another.folder, ignore_errors=True)


def _produced(slices: list[Measured]) -> Numbers:
    took = measure.quantiles([pair for measured in slices for pair in measured.reports[0].latencies])
    cores = sum(one.cpu_seconds for one in slices) / sum(one.wall_seconds for one in slices)
    return {**took, "cores": cores}


def _committed(slices: list[Measured]) -> Numbers:
    reports = [measured.reports[1] for measured in slices]
    took = measure.quantiles([pair for report in reports for pair in report.latencies])
    per_second = sum(report.requests for report in reports) / sum(report.ended - report.begun for report in reports)
    return {**{f"commit_{name}": number for name, number in took.items()}, "commits_per_s": per_second}
