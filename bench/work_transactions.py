"""What it costs that a record is written once (sequence numbers) and together with others (transactions)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import frames
import load_java
import load_librdkafka
import load_produce
import load_transactions
from cases import Case
from load import LoadFailed, Work
from load_transactions import RECORDS
from sequences import Sequenced
from work import Budget, Measured, Numbers, Target, Topic, load

SETTLED_SECONDS_MAX = 5


def transactions(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    broker = target.broker
    group = "transacting" if case.has_offsets else None
    if group:
        broker.control.wait_for_groups([group])
    with target.with_topic(case.partitions) as topic:
        plan = load_transactions.Plan(
            port=broker.port,
            topic=topic.name,
            partitions=case.partitions,
            transactional_id=f"transactions-of-{topic.name}",
            group=group,
            values=frames.values(case.value_bytes, RECORDS),
            warmup_seconds=warmup_seconds,
            seconds=budget.seconds,
        )
        broker.control.new_producer(plan.transactional_id)
        measured = load(broker, [load_java.work(plan) if case.client == "java" else plan.work(case.client)])
        _verify(topic, measured, case.partitions)
        return measured.numbers()


def _verify(topic: Topic, measured: Measured, partitions: int) -> None:
    """All that was committed is there for those who read committed records, and nothing else but a marker for each
    transaction and partition.  Kafka writes the last of these after it has answered."""
    if measured.reports[0].total_records % RECORDS:
        raise LoadFailed("a transaction in part")
    expected = measured.reports[0].total_records + measured.reports[0].total_records // RECORDS * partitions
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    while (found := sum(measured.broker.control.end_offsets(topic.name, partitions, committed=True))) != expected:
        if time.monotonic() > deadline:
            raise LoadFailed(
                f"{measured.broker.name}: {expected} records and markers were committed, {found} are there"
            )
        time.sleep(0.01)


def idempotent(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    batch = frames.batch(case.value_bytes, case.batch_bytes)

    def producer(topic: str, *, is_idempotent: bool, seconds: float) -> Work:
        identity = target.broker.control.new_producer() if is_idempotent else None
        return load_produce.Plan(
            port=target.broker.port,
            topic=topic,
            ring=Sequenced(topic, case.acks, batch, identity, case.window),
            records_per_request=batch.records,
            window=case.window,
            warmup_seconds=warmup_seconds,
            seconds=seconds,
            requests_max=max(budget.produced_bytes_max // len(batch.data) // 4, 1),
        ).work()

    return _beside_plain(target, budget, producer)


def librdkafka_idempotent(target: Target, case: Case, budget: Budget, warmup_seconds: float) -> Numbers:
    plan = load_librdkafka.Plan(
        port=target.broker.port,
        topic="",
        value=frames.values(case.value_bytes, 1)[0],
        acks=case.acks,
        codec=case.codec,
        records=0,
        warmup_seconds=warmup_seconds,
        seconds=0,
    )

    def producer(topic: str, *, is_idempotent: bool, seconds: float) -> Work:
        return replace(plan, topic=topic, seconds=seconds, is_idempotent=is_idempotent).producer()

    return _beside_plain(target, budget, producer)


def _beside_plain(target: Target, budget: Budget, producer: Callable[..., Work]) -> Numbers:
    """Without, with, with, without: what changes meanwhile on the machine changes for both."""
    plain: list[Numbers] = []
    idempotent: list[Numbers] = []
    for is_idempotent, found in ((False, plain), (True, idempotent), (True, idempotent), (False, plain)):
        with target.with_topic(1) as topic:
            work = producer(topic.name, is_idempotent=is_idempotent, seconds=budget.seconds * 2 / 3)
            measured = load(target.broker, [work])
            topic.verify(measured.reports[0].total_records)
            found.append(measured.numbers())
    numbers, before = _means(idempotent), _means(plain)
    return numbers | {f"plain_{name}": before[name] for name in ("records_per_s", "cpu_s_per_million")}


def _means(slices: list[Numbers]) -> Numbers:
    return {name: sum(one[name] for one in slices) / len(slices) for name in slices[0]}
