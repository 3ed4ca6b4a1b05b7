"""Groups: how soon their members have their shares, and what it costs others that many of them commit."""

from __future__ import annotations

import frames
import load_commits
import load_groups
import load_paced
import measure
from cases import Case
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
    """Without, with, with, without: what changes meanwhile on the machine changes for both."""
    names = [f"committing-{number:04}" for number in range(GROUPS)]
    target.broker.control.wait_for_groups(names)
    with target.with_topic(1) as topic:
        frame = frames.produce(topic.name, 0, case.acks, frames.batch(case.value_bytes, case.batch_bytes).data)
        seconds = budget.seconds * 2 / 3
        producer = load_paced.Plan(target.broker.port, topic.name, frame, case.rate, warmup_seconds, seconds)
        groups = load_commits.Plan(target.broker.port, topic.name, names, CONNECTIONS, warmup_seconds, seconds)
        alone: list[Measured] = []
        beside: list[Measured] = []
        for has_commits, found in ((False, alone), (True, beside), (True, beside), (False, alone)):
            works = [producer.work(), groups.work()] if has_commits else [producer.work()]
            found.append(load(target.broker, works))
            topic.verify(found[-1].reports[0].total_records)
    return _compared(alone, beside) | {"rss_mb": target.broker.resident_mb()}


def _compared(alone: list[Measured], beside: list[Measured]) -> Numbers:
    committed = [measured.reports[1] for measured in beside]
    count = sum(report.requests for report in committed)
    per_second = count / sum(report.ended - report.begun for report in committed)
    took = measure.quantiles([pair for report in committed for pair in report.latencies])
    produced = measure.quantiles([pair for measured in alone for pair in measured.reports[0].latencies])
    return {
        **measure.quantiles([pair for measured in beside for pair in measured.reports[0].latencies]),
        **{f"alone_{name}": number for name, number in produced.items()},
        **{f"commit_{name}": number for name, number in took.items()},
        "commits_per_s": per_second,
        "cores": _cores(beside),
        "alone_cores": _cores(alone),
    }


def _cores(slices: list[Measured]) -> float:
    return sum(one.cpu_seconds for one in slices) / sum(one.wall_seconds for one in slices)
