"""A consumer that has many partitions, of which few have something for it."""

from __future__ import annotations

import frames
import load_sessions
from cases import Case
from work import Budget, Numbers, Target, load


def deliveries(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    return _measured(target, case, budget, warmup_seconds, frames.batch(case.value_bytes, case.batch_bytes).data)


def nothing_new(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    return _measured(target, case, budget, warmup_seconds, b"")


def _measured(target: Target, case: Case, budget: Budget, warmup_seconds: float, unit: bytes) -> Numbers:
    with target.with_topic(case.partitions) as topic:
        plan = load_sessions.Plan(
            port=target.broker.port,
            topic=topic.name,
            offsets=target.broker.control.end_offsets(topic.name, case.partitions),
            unit=unit,
            warmup_seconds=warmup_seconds,
            seconds=budget.seconds,
        )
        measured = load(target.broker, [plan.work()])
        topic.verify(measured.reports[0].total_records)
        return measured.numbers()
