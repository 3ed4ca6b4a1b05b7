"""odradek topic elect-leaders: elect preferred replicas, or any live replica if there is no leader."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from odradek.app.cli.cli_options import (
    DEFAULT_BOOTSTRAP_SERVER,
    AsJson,
    BootstrapServer,
    CommandConfig,
    OnlyPartitions,
    connected,
)
from odradek.app.cli.partition_arguments import topic_name
from odradek.app.commands.topic_segments import choose_partitions
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed, report_failures
from odradek.app.terminal.output import print_json, print_table, remark
from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, TopicPartition
from odradek.client.admin.leader_election import Elections, elect_leaders
from odradek.client.cluster.cluster import Cluster


class ElectionType(StrEnum):
    """Election types by their names in kafka-leader-election."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


def elect(
    *,
    names: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", show_default=False)] = None,
    partition: OnlyPartitions = None,
    everything: Annotated[bool, typer.Option("--all", metavar="", help="All partitions of all topics.")] = False,
    election_type: Annotated[
        ElectionType, typer.Option("--election-type", help="Replicas that may be elected.")
    ] = ElectionType.PREFERRED,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """Elect the first replica of each partition as leader, if it is in sync.

    With --election-type unclean, elect any live replica for partitions without a
    leader.  Records that this replica lacks are lost.

    Example: odradek topic elect-leaders flights --partition 0
    """
    if everything == bool(names):
        raise CommandFailed("name at least one topic, or use --all, but not both", USAGE_ERROR)
    named = [topic_name(name) for name in names or ()]
    with connected(bootstrap_server, command_config) as cluster:
        requested = (
            None if everything else [one for name in named for one in choose_partitions(cluster, name, partition or ())]
        )
        outcomes = elect_leaders(cluster, requested, unclean=election_type is ElectionType.UNCLEAN)
        leaders = leaders_of(cluster, outcomes)
    report(outcomes, leaders, as_json=as_json)
    return report_failures(
        outcome
        for outcome in outcomes.values()
        if outcome is not None and outcome.code != ErrorCode.ELECTION_NOT_NEEDED
    )


def leaders_of(cluster: Cluster, outcomes: Elections) -> dict[TopicPartition, int]:
    """Return the current leaders of the partitions, NO_BROKER for none."""
    cluster.retry(lambda: cluster.refresh(sorted({each.topic for each in outcomes})))
    leaders: dict[TopicPartition, int] = {}
    for each in outcomes:
        topic = cluster.metadata.topics.get(each.topic)
        found = topic.partition(each.partition) if topic is not None else None
        leaders[each] = NO_BROKER if found is None else found.leader
    return leaders


def report(outcomes: Elections, leaders: dict[TopicPartition, int], *, as_json: bool) -> None:
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "leader": leaders[each],
            "election": "elected" if outcome is None else ErrorCode(outcome.code).name,
        }
        for each, outcome in sorted(outcomes.items())
    ]
    if as_json:
        print_json(rows)
    elif rows:
        cells = [(row["topic"], row["partition"], shown(row["leader"]), _words(str(row["election"]))) for row in rows]
        print_table(["topic", "partition>", "leader>", "election"], cells)
    else:
        remark("no partition needs an election")


def shown(leader: object) -> object:
    return "none" if leader == NO_BROKER else leader


def _words(election: str) -> str:
    return "not needed" if election == ErrorCode.ELECTION_NOT_NEEDED.name else election.lower().replace("_", " ")
