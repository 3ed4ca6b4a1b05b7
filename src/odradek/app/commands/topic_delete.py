"""odradek topic delete: delete topics with their data; internal topics need confirmation."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from odradek.app.cli.cli_options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, connected
from odradek.app.cli.partition_arguments import topic_name
from odradek.app.terminal.command_failed import FAILED, USAGE_ERROR, CommandFailed
from odradek.base.errors import ErrorCode
from odradek.client.admin import admin
from odradek.client.admin.metadata_propagation import wait_until_seen
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import ErrorResponse

CONTENTS = {
    "__consumer_offsets": "the committed offsets of all groups",
    "__transaction_state": "the state of all transactions",
}


def delete(
    *,
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", show_default=False)],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", metavar="", help="Do nothing if a topic does not exist.")
    ] = False,
    internal: Annotated[
        bool, typer.Option("--internal", metavar="", help="Allow Kafka's internal topics, after a confirmation.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", metavar="", help="Confirm the deletion of internal topics.")
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Delete topics and everything in them."""
    names = [topic_name(name) for name in names]
    with connected(bootstrap_server, command_config) as cluster:
        confirm(internal_topics(cluster, names), is_allowed=internal, is_confirmed=yes)
        for name in names:
            try:
                admin.delete_topics(cluster, [name])
            except ErrorResponse as error:
                if not (if_exists and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise
                typer.echo(f"{name} does not exist")
            else:
                wait_until_seen(cluster, name, 0)
                typer.echo(f"deleted {name}")


def internal_topics(cluster: Cluster, names: Sequence[str]) -> list[str]:
    return [topic.name for topic in cluster.retry(lambda: cluster.refresh(names)) if topic.is_internal]


def confirm(names: Sequence[str], *, is_allowed: bool, is_confirmed: bool) -> None:
    """Confirm the deletion of internal topics. Raise CommandFailed if refused, before anything is deleted."""
    if not names:
        return
    listed = " and ".join(names)
    loss = " and ".join(CONTENTS.get(name, f"Kafka's data in {name}") for name in names)
    if not is_allowed:
        raise CommandFailed(f"{listed} contains {loss}: pass --internal to delete it", USAGE_ERROR)
    if is_confirmed:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandFailed(f"{listed} contains {loss}: pass --yes to delete it without a terminal", USAGE_ERROR)
    if not typer.confirm(f"Delete {listed}, and with it {loss}?", err=True):
        raise CommandFailed("nothing was deleted", FAILED)
