"""odradek broker: show and change the dynamic configuration of one or all brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from odradek.app.cli.cli_options import DEFAULT_BOOTSTRAP_SERVER, AsJson, BootstrapServer, CommandConfig, connected
from odradek.app.commands.config_command import (
    All,
    Append,
    Delete,
    DryRun,
    FromFile,
    Set,
    Subtract,
    change,
    edits_of,
    show,
)
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed
from odradek.base.units import INT32_MAX
from odradek.client.admin import config_admin as configs
from odradek.client.cluster.cluster import Cluster

app = typer.Typer(help="Show and change the configuration of brokers.", no_args_is_help=True)


@app.callback()
def brokers() -> None:
    """Show and change the configuration of brokers."""


@app.command("config")
def config(
    *,
    broker_id: Annotated[
        int | None, typer.Argument(metavar="ID", min=0, max=INT32_MAX, show_default="the only one")
    ] = None,
    default: Annotated[
        bool, typer.Option("--default", metavar="", help="Show or change the cluster-wide defaults.")
    ] = False,
    set_: Set = None,
    delete: Delete = None,
    append: Append = None,
    subtract: Subtract = None,
    set_from: FromFile = None,
    dry_run: DryRun = False,
    show_all: All = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Show a broker's configuration, or change it with immediate effect.

    Example: odradek broker config --default --set log.retention.ms=86400000
    """
    if default and broker_id is not None:
        raise CommandFailed("--default applies to all brokers: omit the broker id or --default", USAGE_ERROR)
    edits = edits_of(set_, delete, append, subtract, set_from)
    with connected(bootstrap_server, command_config) as cluster:
        resource = configs.broker(None if default else choose_broker(cluster, broker_id))
        if edits:
            change(cluster, resource, edits, dry_run=dry_run)
        else:
            show(cluster, resource, defaults=show_all, as_json=as_json)


def choose_broker(cluster: Cluster, broker_id: int | None) -> int:
    """Return the given broker's id, or that of the only broker. Raise CommandFailed."""
    cluster.refresh([])
    known = sorted(cluster.metadata.brokers)
    if broker_id is None and len(known) == 1:
        return known[0]
    choices = ", ".join(map(str, known))
    if broker_id is None:
        raise CommandFailed(f"no broker given: name one of {choices}, or use --default for all brokers", USAGE_ERROR)
    if broker_id not in known:
        raise CommandFailed(f"broker {broker_id} is not in the cluster: choose one of {choices}")
    return broker_id
