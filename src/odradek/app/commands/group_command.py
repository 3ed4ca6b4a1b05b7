"""odradek group: list and describe consumer groups, set their offsets, delete them."""

from __future__ import annotations

from typing import Annotated

import typer

from odradek.app.cli.cli_options import (
    DEFAULT_BOOTSTRAP_SERVER,
    TOPIC_PARTITIONS,
    AsJson,
    BootstrapServer,
    CommandConfig,
    choose,
    connected,
    not_empty,
)
from odradek.app.cli.group_view import Shown, description, show
from odradek.app.cli.partition_arguments import ends_of, named_partitions
from odradek.app.commands.group_reset import reset_offsets
from odradek.app.terminal.command_failed import report_failures
from odradek.app.terminal.output import print_json, print_table
from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.client.admin.group_admin import (
    CLASSIC,
    CONSUMER,
    GroupDescription,
    delete_groups,
    describe_groups,
    list_groups,
)
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import ClientError, ErrorResponse
from odradek.client.consumer.group_offsets import delete_offsets, fetch_offsets

app = typer.Typer(help="List, describe and delete consumer groups; reset their offsets.", no_args_is_help=True)
app.command("reset-offsets")(reset_offsets)

Groups = Annotated[list[str], typer.Argument(metavar="GROUP", show_default=False, callback=not_empty)]

# Apache Kafka's names; filters ignore case.
STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling")
TYPES = (CLASSIC, CONSUMER)


@app.command("list")
def list_command(
    *,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", metavar="STATE", help="Only groups in this state, e.g. stable; repeat for more."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            "-t",
            metavar="TYPE",
            help="Only groups of this type: classic or consumer (KIP-848); repeat for more.",
        ),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", metavar="NAME", help="Only groups of this protocol, e.g. connect.")
    ] = None,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """List groups with their type, protocol and state."""
    states = [choose("--state", each, STATES) for each in state or ()]
    types = [choose("--type", each, TYPES) for each in kind or ()]
    failures: dict[int, ClientError] = {}  # Of brokers whose groups are missing.
    with connected(bootstrap_server, command_config) as cluster:
        groups = list_groups(cluster, states=states, types=types, failures=failures)
    groups = [each for each in groups if protocol is None or each.protocol == protocol]
    if as_json:
        print_json(
            [
                {
                    "group": each.group,
                    "type": each.type,
                    "protocol": each.protocol,
                    "state": each.state or None,
                    "coordinator": each.coordinator,
                }
                for each in groups
            ]
        )
    else:
        rows = [(each.group, each.type, each.protocol or None, each.state or None, each.coordinator) for each in groups]
        print_table(["group", "type", "protocol", "state", "coordinator>"], rows)
    return report_failures(failures.values())


@app.command("describe")
def describe(
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP", show_default="all", callback=not_empty)] = None,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """Show the state and members of groups, and their lag for each partition."""
    failures: list[ClientError] = []
    with connected(bootstrap_server, command_config) as cluster:
        requested = list(dict.fromkeys(groups or every_group(cluster, failures)))
        shown = descriptions(cluster, described_groups(cluster, requested, failures, is_all=not groups), failures)
    if failures and not shown:
        raise failures[0]
    if as_json:
        print_json(shown)
    else:
        for one in shown:
            show(one)
    return report_failures(failures)


def every_group(cluster: Cluster, failures: list[ClientError]) -> list[str]:
    listing_failures: dict[int, ClientError] = {}
    names = [each.group for each in list_groups(cluster, failures=listing_failures)]
    failures += listing_failures.values()
    return names


def described_groups(
    cluster: Cluster, names: list[str], failures: list[ClientError], *, is_all: bool
) -> list[GroupDescription]:
    """Return the descriptions of groups in the given order.

    If all groups were requested, omit groups that were deleted or are not consumer groups.
    """
    described = []
    for outcome in describe_groups(cluster, names).values():
        if not isinstance(outcome, ClientError):
            described.append(outcome)
        elif not (is_all and isinstance(outcome, ErrorResponse) and outcome.code == ErrorCode.GROUP_ID_NOT_FOUND):
            failures.append(outcome)
    return described


def descriptions(cluster: Cluster, groups: list[GroupDescription], failures: list[ClientError]) -> list[Shown]:
    """Combine groups with their committed offsets, and with partition ends if leaders return them."""
    offset_failures: dict[str, ClientError] = {}
    committed = fetch_offsets(cluster, {each.group: None for each in groups}, failures=offset_failures)
    assigned = {at for each in groups for member in each.members for at in member.assignment or ()}
    end_failures: dict[TopicPartition, ClientError] = {}
    ends = ends_of(cluster, assigned.union(*committed.values()), end_failures)
    failures += [*offset_failures.values(), *end_failures.values()]
    return [description(each, committed.get(each.group, {}), ends) for each in groups]


@app.command("delete")
def delete(
    groups: Groups,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", metavar="", help="Do nothing if a group does not exist.")
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """Delete groups without members, with their committed offsets."""
    with connected(bootstrap_server, command_config) as cluster:
        outcomes = delete_groups(cluster, groups)
    failures: list[ClientError] = []
    for group, error in outcomes.items():
        if error is None:
            typer.echo(f"deleted {group}")
        elif if_exists and isinstance(error, ErrorResponse) and error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            typer.echo(f"{group} does not exist")
        else:
            failures.append(error)
    return report_failures(failures)


@app.command("delete-offsets")
def delete_offsets_command(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False, callback=not_empty)],
    topic: Annotated[list[str], TOPIC_PARTITIONS],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """Delete a group's committed offsets of topics that no member subscribes to."""
    with connected(bootstrap_server, command_config) as cluster:
        outcomes = delete_offsets(cluster, group, named_partitions(cluster, topic))
    for partition, error in outcomes.items():
        if error is None:
            typer.echo(f"deleted the offset of {partition}")
    failures = [error for error in outcomes.values() if error is not None]
    return report_failures(failures[:1])  # All from one coordinator, so they are much alike.
