"""odradek cluster status: the brokers, the controller, unavailable partitions and the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import typer

from odradek.app.cli.cli_options import DEFAULT_BOOTSTRAP_SERVER, AsJson, BootstrapServer, CommandConfig, connected
from odradek.app.cli.cluster_status import (
    BrokerStatus,
    LogDirReport,
    LogEnds,
    PartitionState,
    Trouble,
    brokers_of,
    partitions_by_broker,
    partitions_with_problems,
    troubles_of,
)
from odradek.app.terminal.output import plural, print_json, print_table, printable
from odradek.client.admin.log_dir_description import offline_log_dirs
from odradek.client.admin.replica_status import log_ends, min_insync_replicas
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.describe import ClusterDescription, describe_cluster
from odradek.client.cluster.topic_metadata import Topic
from odradek.client.connection.client_errors import ClientError, ErrorResponse, Unsupported

app = typer.Typer(help="Show the health of a cluster.", no_args_is_help=True)

# Exit status: some replicas are not in sync; some partitions reject reads, or writes with acks=all.
DEGRADED, UNAVAILABLE = 3, 4
ANSWER_MS_MAX = 5_000  # A broker that hangs must not delay the others.
SHOWN_MAX = 50  # Partitions; a cluster without brokers may lack ten thousand.


@app.callback()
def cluster() -> None:
    """Show the health of a cluster."""


@app.command("status")
def status(
    *,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """Show brokers, the controller, and offline or out-of-sync partitions with the reason.

    The command learns of a broker that is down from the replicas assigned to it.
    The exit status is 0 if the cluster is healthy, 3 if replicas or brokers are
    missing, 4 if partitions have no leader, or too few in-sync replicas for
    acks=all.
    """
    with connected(bootstrap_server, command_config) as client:
        description, topics = describe_cluster(client), client.topics()
        alive = [broker.id for broker in description.brokers]
        reports = {broker: _log_dir_report(client, broker) for broker in alive}
        brokers = {broker.id: broker for broker in brokers_of(description, topics, reports)}
        troubles = troubles_of(topics, brokers, _min_isrs(client, topics), _ends(client, topics, brokers))
    if as_json:
        print_json(_as_json(description, list(brokers.values()), troubles))
    else:
        _show(description, list(brokers.values()), troubles, topics)
    return exit_status(brokers.values(), troubles)


def exit_status(brokers: Iterable[BrokerStatus], troubles: Iterable[Trouble]) -> int:
    states = {one.state for one in troubles}
    if any(state.is_unavailable for state in states):
        return UNAVAILABLE
    return DEGRADED if states or not all(broker.is_healthy for broker in brokers) else 0


def _log_dir_report(cluster: Cluster, broker: int) -> LogDirReport:
    try:
        return offline_log_dirs(cluster, broker, ANSWER_MS_MAX)
    except (ErrorResponse, Unsupported):  # Unauthorized, or too old.
        return None
    except ClientError as error:
        return error


def _min_isrs(cluster: Cluster, topics: Iterable[Topic]) -> dict[str, int]:
    """Return min.insync.replicas of the topics that lack replicas, if the brokers return it."""
    names = list(dict.fromkeys(name.topic for name, _ in partitions_with_problems(topics)))
    try:
        return cluster.call_any(lambda connection: min_insync_replicas(connection, names))
    except ClientError:
        return {}


def _ends(cluster: Cluster, topics: Iterable[Topic], brokers: Mapping[int, BrokerStatus]) -> LogEnds:
    """Return the log end offsets of the brokers that answer."""
    ends = {}
    for broker, partitions in partitions_by_broker(topics).items():
        known = brokers.get(broker)
        if known is not None and known.is_alive and known.silence is None:
            try:
                ends[broker] = log_ends(cluster.connection(broker), partitions, timeout_ms=ANSWER_MS_MAX)
            except ClientError:
                continue
    return ends


def _show(
    description: ClusterDescription,
    brokers: Sequence[BrokerStatus],
    troubles: Sequence[Trouble],
    topics: Sequence[Topic],
) -> None:
    controller = "no controller" if description.controller < 0 else f"controller {description.controller}"
    alive = sum(broker.is_alive for broker in brokers)
    typer.echo(f"cluster {printable(description.cluster_id or '-')}  {plural(alive, 'broker')}, {controller}")
    rows = [(one.id, one.address, one.rack, one.leads, one.replicas, one.state) for one in brokers]
    print_table(["broker>", "address", "rack", "leads>", "replicas>", "state~"], rows)
    typer.echo()
    count = sum(len(topic.partitions) for topic in topics)
    if not troubles:
        text = f"{plural(count, 'partition')}, each with a leader and all replicas in sync"
        typer.echo(text if count else "no topics")
        return
    typer.echo(summary(troubles, count))
    shown = [
        (
            f"{one.topic}-{one.partition.index}",
            "none" if one.partition.leader < 0 else one.partition.leader,
            ",".join(map(str, one.partition.replicas)),
            ",".join(map(str, one.partition.isr)),
            one.state,
            one.why,
        )
        for one in troubles[:SHOWN_MAX]
    ]
    print_table(["partition", "leader>", "replicas", "in sync", "state", "why~"], shown)
    if troubles[SHOWN_MAX:]:
        typer.echo(f"... and {len(troubles) - SHOWN_MAX:,} more (use --json to list all)")


def summary(troubles: Sequence[Trouble], partitions: int) -> str:
    """Summarize the partitions by state; those under or at min ISR are also under-replicated."""
    offline, under, at, _ = (sum(one.state is state for one in troubles) for state in PartitionState)
    text = f"{offline} of {plural(partitions, 'partition')} offline, {len(troubles) - offline} under-replicated"
    of_these = [f"{count} {state}" for count, state in ((under, "under min ISR"), (at, "at min ISR")) if count]
    return f"{text}, {' and '.join(of_these)}" if of_these else text


def _as_json(
    description: ClusterDescription, brokers: Sequence[BrokerStatus], troubles: Sequence[Trouble]
) -> dict[str, object]:
    return {
        "cluster_id": description.cluster_id,
        "controller": description.controller,
        "brokers": [
            {
                "broker": one.id,
                "alive": one.is_alive,
                "address": one.address,
                "rack": one.rack,
                "leads": one.leads,
                "replicas": one.replicas,
                "silence": one.silence,
                "offline_log_dirs": None if one.offline_log_dirs is None else list(one.offline_log_dirs),
            }
            for one in brokers
        ],
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition.index,
                "leader": one.partition.leader,
                "replicas": list(one.partition.replicas),
                "isr": list(one.partition.isr),
                "offline_replicas": list(one.partition.offline),
                "min_insync_replicas": one.min_isr,
                "state": one.state.value,
                "lags": {str(broker): lag for broker, lag in one.lags.items()},
                "why": one.why,
            }
            for one in troubles
        ],
    }
