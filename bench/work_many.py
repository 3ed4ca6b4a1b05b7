"""Very many connections at one broker."""

from __future__ import annotations

from collections.abc import Callable

import frames
import load_many
from cases import Case
from load import Work
from work import Budget, Numbers, Target, load


def producers(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    def work(topic: str, data: bytes) -> Work:
        return load_many.Producers(
            port=target.broker.port,
            topic=topic,
            frame=frames.produce(topic, 0, case.acks, data),
            connections=case.clients,
            warmup_seconds=warmup_seconds,
            seconds=budget.seconds,
        ).work()

    return _measured(target, case, work)


def waiters(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    def work(topic: str, data: bytes) -> Work:
        return load_many.Waiters(
            port=target.broker.port,
            topic=topic,
            frame=frames.produce(topic, 0, case.acks, data),
            unit_bytes=len(data),
            connections=case.clients,
            rate_per_second=case.rate,
            warmup_seconds=warmup_seconds,
            seconds=budget.seconds,
        ).work()

    return _measured(target, case, work)


def _measured(target: Target, case: Case, work: Callable[[str, bytes], Work]) -> Numbers:
    """`work` is given the topic, and the batch that is produced to it."""
    with target.with_topic(1) as topic:
        batch = frames.batch(case.value_bytes, case.batch_bytes)
        measured = load(target.broker, [work(topic.name, batch.data)])
        topic.verify(measured.reports[0].total_records)
        return measured.numbers()
