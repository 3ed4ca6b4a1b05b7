"""odradek topic config: show and change the configuration of a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from odradek.app.cli.cli_options import DEFAULT_BOOTSTRAP_SERVER, AsJson, BootstrapServer, CommandConfig, connected
from odradek.app.cli.partition_arguments import topic_name
from odradek.app.cli.topic_config_arguments import suggest_key
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
from odradek.app.terminal.command_failed import CommandFailed
from odradek.base.errors import ErrorCode
from odradek.client.admin import config_admin as configs
from odradek.client.connection.client_errors import ErrorResponse
from odradek.core.configs.topic_configs import invalid_overrides_message


def config(
    *,
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
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
    """Show a topic's configuration, or change it with immediate effect.

    Example: odradek topic config flights --set retention.ms=86400000 --append cleanup.policy=compact
    """
    topic = configs.topic(topic_name(name))
    edits = edits_of(set_, delete, append, subtract, set_from)
    with connected(bootstrap_server, command_config) as cluster:
        if not edits:
            entries = show(cluster, topic, defaults=show_all, as_json=as_json)
            invalid = invalid_overrides_message(
                name, {one.name: one.value or "" for one in entries if one.is_set_on_topic}
            )
            if invalid is not None:
                typer.echo(f"odradek: {invalid}", err=True)
            return
        try:
            change(cluster, topic, edits, dry_run=dry_run)
        except ErrorResponse as error:
            suggestion = suggest_key(edit.key for edit in edits) if error.code == ErrorCode.INVALID_CONFIG else ""
            if suggestion:
                raise CommandFailed(f"{error}{suggestion}") from None
            raise
