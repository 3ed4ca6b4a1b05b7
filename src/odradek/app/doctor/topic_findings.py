"""Check for partitions without a leader, missing replicas, and partitions that cannot accept acks=all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from odradek.app.cli.cluster_status import PartitionState, state_of_led
from odradek.app.doctor.described_cluster import Cluster
from odradek.app.doctor.findings import Finding, listed, note, ok, wrong
from odradek.app.terminal.output import plural
from odradek.base.errors import ErrorCode
from odradek.client.admin.replica_status import min_insync_replicas, topic_overrides
from odradek.client.cluster.topic_metadata import Partition
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import ClientError
from odradek.core.configs.topic_configs import invalid_values

CHECK = "topics"
WITH_PARTITIONS = (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
LAG_COMMAND = "odradek cluster status shows their lag"
NO_BROKER_TO_SPARE = (
    "Recreate these topics with one more replica, or lower min.insync.replicas by one: acks=all is rejected while "
    "one of their brokers is down, even for a restart."
)

STATE_TEXTS = {
    PartitionState.OFFLINE: "without a leader",
    PartitionState.UNDER_MIN_ISR: "under min ISR, which reject acks=all",
    PartitionState.AT_MIN_ISR: "at min ISR, with no in-sync replica to spare for acks=all",
    PartitionState.UNDER_REPLICATED: "with replicas that are not in sync",
}

NamedPartition = tuple[str, Partition]


def min_isrs_of(connection: Connection, cluster: Cluster) -> Mapping[str, int]:
    """Return min.insync.replicas of the topics with several replicas, if the broker returns it."""
    several = [topic.name for topic in cluster.topics if any(len(part.replicas) > 1 for part in topic.partitions)]
    try:
        return min_insync_replicas(connection, several)
    except ClientError:
        return {}


def examine_stored(connection: Connection, cluster: Cluster) -> Iterable[Finding]:
    """Report topics whose stored configuration is invalid."""
    names = [topic.name for topic in cluster.topics]
    try:
        for name, overrides in topic_overrides(connection, names).items():
            problems = invalid_values(overrides)
            if problems:
                advice = f"Repair it with odradek topic config {name} --set, or --delete the key."
                yield wrong(CHECK, f"the stored configuration of {name} is invalid: {'; '.join(problems)}", advice)
    except ClientError:
        return  # Clients that may not describe configurations cannot repair them.


def examine_topics(cluster: Cluster, min_isrs: Mapping[str, int]) -> Iterable[Finding]:
    findings = [*_troubles(cluster, min_isrs)]
    if findings:
        yield from findings
    else:
        count = sum(len(topic.partitions) for topic in cluster.topics)
        summary = "each with a leader and all replicas in sync" if count else "nothing to read yet"
        yield ok(CHECK, f"{plural(len(cluster.topics), 'topic')}, {plural(count, 'partition')}, {summary}")
    tight = [
        topic.name
        for topic in cluster.topics
        if any(1 < len(part.replicas) <= min_isrs.get(topic.name, 1) for part in topic.partitions)
    ]
    if tight:
        message = f"{plural(len(tight), 'topic')} with no more replicas than min.insync.replicas: {listed(tight)}"
        yield note(CHECK, message, NO_BROKER_TO_SPARE)


def _troubles(cluster: Cluster, min_isrs: Mapping[str, int]) -> Iterator[Finding]:
    present = {broker.id for broker in cluster.brokers}
    refused = [f"{topic.name} ({topic.error.name})" for topic in cluster.topics if topic.error not in WITH_PARTITIONS]
    if refused:
        message = f"{plural(len(refused), 'topic')} cannot be described: {listed(refused)}"
        yield note(CHECK, message, "Authorize this client to describe them (ACLs), or check the broker's log.")
    found: dict[PartitionState, list[NamedPartition]] = {state: [] for state in PartitionState}
    for topic in cluster.topics:
        for part in topic.partitions:
            if part.leader not in present:
                found[PartitionState.OFFLINE].append((f"{topic.name}-{part.index}", part))
            elif len(part.isr) < len(part.replicas):
                state = state_of_led(part, min_isrs.get(topic.name))
                found[state].append((f"{topic.name}-{part.index}", part))
    for state, partitions in found.items():
        if partitions:
            message = (
                f"{plural(len(partitions), 'partition')} {STATE_TEXTS[state]}: "
                f"{listed([name for name, _ in partitions])}"
            )
            advice = (
                _election_advice(partitions, present)
                if state is PartitionState.OFFLINE
                else _restart_advice(partitions, present)
            )
            yield wrong(CHECK, message, advice) if state.is_unavailable else note(CHECK, message, advice)


def _election_advice(leaderless: Sequence[NamedPartition], present: set[int]) -> str:
    """Return how to get a leader for these partitions.

    Prefer a last ISR member, because other replicas may lack records.
    """
    last = sorted({broker for _, part in leaderless for broker in part.isr or part.replicas} - present)
    if not last:
        return "Check the broker's log for these partitions: their disk (log.dirs) may be offline."
    start = f"Start {_brokers(last)}: no other broker has all records of these partitions."
    if any(not present.isdisjoint(part.replicas) for _, part in leaderless):
        start += (
            "  If that is impossible, elect another replica with `odradek topic elect-leaders TOPIC --election-type "
            "unclean`: records that it lacks are lost."
        )
    return start


def _restart_advice(partitions: Sequence[NamedPartition], present: set[int]) -> str:
    missing = sorted({broker for _, part in partitions for broker in part.replicas} - present)
    if missing:
        return f"Start {_brokers(missing)}."
    return f"Wait for the replicas to catch up ({LAG_COMMAND}), or check the followers' logs."


def _brokers(ids: Sequence[int]) -> str:
    return f"{'broker' if len(ids) == 1 else 'brokers'} {listed(ids)}"
