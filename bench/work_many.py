"""Very many connections at one broker."""

from __future__ import annotations

import frames
import load_many
from cases import Case
from work import Budget, Numbers, Target, load


def producers(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    broker = target.broker
    data, _ = frames.batch(case.value_bytes, case.batch_bytes)
    with target.with_topic(1) as topic:
        plan = load_many.Producers(
            port=broker.port,
            topic=topic.name,
            frame=frames.produce(topic.name, 0, case.acks, data),
            connections=case.clients,
            warmup_seconds=warmup_seconds,
            seconds=budget.seconds,
        )
        measured = load(broker, [plan.work()])
        topic.verify(measured.reports[0].total_records)
        return measured.numbers()


def waiters(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    broker = target.broker
    data, _ = frames.batch(case.value_bytes, case.batch_bytes)
    with target.with_topic(1) as topic:
        plan = load_many.Waiters(
            port=broker.port,
            topic=topic.name,
            frame=frames.produce(topic.name, 0, case.acks, data),
            unit_bytes=len(data),
            connections=case.clients,
            rate_per_second=case.rate,
            warmup_seconds=warmup_seconds,
            seconds=budget.seconds,
        )
        measured = load(broker, [plan.work()])
        topic.verify(measured.reports[0].total_records)
        return measured.numbers()
