"""Examines which partitions nobody leads, and which replicas are missing."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.app.doctor.cluster import Cluster
from odradek.app.doctor.findings import Finding, listed, note, ok, wrong
from odradek.app.output import plural
from odradek.base.errors import ErrorCode
from odradek.client.metadata import Partition

WITH_PARTITIONS = (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)

Named = tuple[str, Partition]


def examine_topics(cluster: Cluster) -> Iterable[Finding]:
    present = {broker.id for broker in cluster.brokers}
    refused = [f"{topic.name} ({topic.error.name})" for topic in cluster.topics if topic.error not in WITH_PARTITIONS]
    if refused:
        says = f"{plural(len(refused), 'topic')} cannot be described: {listed(refused)}"
        yield note("topics", says, "Let this client see them (ACLs), or look into the broker's log.")
    named = [(f"{topic.name}-{part.index}", part) for topic in cluster.topics for part in topic.partitions]
    leaderless = [(name, part) for name, part in named if part.leader not in present]
    if leaderless:
        says = f"{plural(len(leaderless), 'partition')} without a leader: {listed([name for name, _ in leaderless])}"
        yield wrong("topics", says, leaderless_advice(leaderless, present))
    lagging = [name for name, part in named if part.leader in present and len(part.isr) < len(part.replicas)]
    if lagging:
        says = f"{plural(len(lagging), 'partition')} with replicas that are not in sync: {listed(lagging)}"
        yield note("topics", says, missing_advice(named, present))
    if not leaderless and not lagging and not refused:
        yield ok(
            "topics",
            f"{plural(len(cluster.topics), 'topic')}, {plural(len(named), 'partition')}, "
            + ("each with a leader and all its replicas" if named else "so nothing to read yet"),
        )


def leaderless_advice(leaderless: Iterable[Named], present: set[int]) -> str:
    missing = missing_brokers(leaderless, present)
    if missing:
        return f"Start {plural(len(missing), 'broker')} {listed(missing)}: nobody else has what is in these partitions."
    return "Look into the broker's log for these partitions: their disk (log.dirs) may be offline."


def missing_advice(named: Iterable[Named], present: set[int]) -> str:
    missing = missing_brokers(named, present)
    if missing:
        return f"Start {plural(len(missing), 'broker')} {listed(missing)}."
    return "Wait for the replicas to catch up, or look into the followers' logs."


def missing_brokers(named: Iterable[Named], present: set[int]) -> list[int]:
    return sorted({replica for _, part in named for replica in part.replicas} - present)
