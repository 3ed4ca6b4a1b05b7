"""odradek cluster status: the brokers of a cluster, who is the controller, and what can't be had, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import typer

from odradek.app.options import DEFAULT_BOOTSTRAP_SERVER, AsJson, BootstrapServer, CommandConfig, connected
from odradek.app.output import plural, print_json, print_table, printable
from odradek.client.cluster import Cluster
from odradek.client.describe import ClusterDescription, describe_cluster
from odradek.client.errors import ClientError, ErrorAnswer, Unsupported
from odradek.client.log_dirs import offline_log_dirs
from odradek.client.metadata import Broker, Partition, Topic

app = typer.Typer(help="Show how a cluster is.", no_args_is_help=True)

ANSWER_MS_MAX = 5_000  # A broker that hangs must not keep us from the others.
SHOWN_MAX = 50  # Partitions; a cluster without a broker may lack ten thousand.


@app.callback()
def cluster() -> None:
    """Show how a cluster is."""


# A broker's offline folders, or why it does not answer; None if it may not be asked.
Told: TypeAlias = Sequence[str] | ClientError | None


class BrokerStatus(NamedTuple):
    """One broker that lives, or holds replicas; `offline_log_dirs` is None where it can't be asked.

    `silence` says why one that its cluster takes for alive does not answer.
    """

    id: int
    address: str | None
    rack: str | None
    leads: int
    replicas: int
    offline_log_dirs: Sequence[str] | None
    silence: str | None = None

    @property
    def is_alive(self) -> bool:
        return self.address is not None

    @property
    def state(self) -> str:
        if not self.is_alive:
            return "down"
        if self.silence is not None:
            return self.silence
        if not self.offline_log_dirs:
            return "ok"
        return f"{', '.join(self.offline_log_dirs)} {'are' if len(self.offline_log_dirs) > 1 else 'is'} offline"


class Trouble(NamedTuple):
    """A partition that nobody leads, or of which not all replicas are in sync."""

    topic: str
    partition: Partition
    why: str

    @property
    def is_offline(self) -> bool:
        return self.partition.leader < 0


@app.command("status")
def status(
    *,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Show the brokers, the controller, and what is offline or not in sync, and why.

    A broker that is down is known by the replicas it holds.
    """
    with connected(bootstrap_server, command_config) as there:
        description, topics = describe_cluster(there), there.topics()
        alive = [broker.id for broker in description.brokers]
        told = {broker: _told_by(there, broker) for broker in alive}
    brokers = brokers_of(description, topics, told)
    troubles = list(troubles_of(topics, {broker.id: broker for broker in brokers}))
    if as_json:
        print_json(_as_json(description, brokers, troubles))
    else:
        _show(description, brokers, troubles, topics)


def _told_by(cluster: Cluster, broker: int) -> Told:
    try:
        return offline_log_dirs(cluster, broker, ANSWER_MS_MAX)
    except (ErrorAnswer, Unsupported):  # It may not be asked, or is too old.
        return None
    except ClientError as silent:
        return silent


def brokers_of(
    description: ClusterDescription, topics: Iterable[Topic], told: Mapping[int, Told]
) -> list[BrokerStatus]:
    """Returns all brokers that live or hold a replica; `told` has what those that live told of themselves."""
    partitions = [partition for topic in topics for partition in topic.partitions]
    alive = {broker.id: broker for broker in description.brokers}
    leads, replicas = dict.fromkeys(alive, 0), dict.fromkeys(alive, 0)
    for partition in partitions:
        for broker in partition.replicas:
            replicas[broker] = replicas.get(broker, 0) + 1
        if partition.leader >= 0:
            leads[partition.leader] = leads.get(partition.leader, 0) + 1
    return [
        _status(broker, alive.get(broker), leads.get(broker, 0), replicas.get(broker, 0), told.get(broker))
        for broker in sorted({*replicas, *leads})
    ]


def _status(broker: int, alive: Broker | None, leads: int, replicas: int, told: Told) -> BrokerStatus:
    address, rack = (None, None) if alive is None else (str(alive), alive.rack)
    if isinstance(told, ClientError):
        return BrokerStatus(broker, address, rack, leads, replicas, None, str(told))
    return BrokerStatus(broker, address, rack, leads, replicas, told)


def troubles_of(topics: Iterable[Topic], brokers: Mapping[int, BrokerStatus]) -> Iterator[Trouble]:
    """Yields the partitions that are not as they should be; those that nobody leads come first."""
    found = [
        Trouble(topic.name, partition, _why(partition, brokers))
        for topic in topics
        for partition in topic.partitions
        if partition.leader < 0 or len(partition.isr) < len(partition.replicas)
    ]
    yield from (one for one in found if one.is_offline)
    yield from (one for one in found if not one.is_offline)


def _why(partition: Partition, brokers: Mapping[int, BrokerStatus]) -> str:
    """Says what is known of the replicas that are missing, those of which a leader is elected first."""
    if partition.leader < 0:
        # Of partitions with eligible leader replicas (KIP-966) none may be in sync.
        wanted = partition.isr or partition.eligible_leader_replicas or partition.replicas
    else:
        wanted = tuple(one for one in partition.replicas if one not in partition.isr)
    missing = [_of_broker(broker, partition, brokers) for broker in wanted]
    return "; ".join(dict.fromkeys(missing)) or "its replicas are there: no leader was elected yet"


def _of_broker(broker: int, partition: Partition, brokers: Mapping[int, BrokerStatus]) -> str:
    known = brokers.get(broker)
    if known is None or not known.is_alive:
        return f"broker {broker} is down"
    if broker in partition.offline:
        return f"broker {broker} can't read its log" + (f": {known.state}" if known.offline_log_dirs else "")
    if partition.leader < 0:
        return f"broker {broker} is there and was not elected yet"
    return f"broker {broker} is behind"


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
    offline = sum(one.is_offline for one in troubles)
    count = sum(len(topic.partitions) for topic in topics)
    if not troubles:
        text = f"{plural(count, 'partition')}, each with a leader and with all of its replicas in sync"
        typer.echo(text if count else "no topics")
        return
    typer.echo(f"{offline} of {plural(count, 'partition')} offline, {len(troubles) - offline} under-replicated")
    shown = [
        (
            f"{one.topic}-{one.partition.index}",
            "none" if one.is_offline else one.partition.leader,
            ",".join(map(str, one.partition.replicas)),
            ",".join(map(str, one.partition.isr)),
            one.why,
        )
        for one in troubles[:SHOWN_MAX]
    ]
    print_table(["partition", "leader>", "replicas", "in sync", "why~"], shown)
    if troubles[SHOWN_MAX:]:
        typer.echo(f"... and {len(troubles) - SHOWN_MAX:,} more (--json has all)")


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
                "why": one.why,
            }
            for one in troubles
        ],
    }
