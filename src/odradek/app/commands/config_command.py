"""Shared code of `odradek topic config` and `odradek broker config`: show and change a configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from odradek.app.cli.cli_options import pairs
from odradek.app.config.properties import read_properties
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed
from odradek.app.terminal.output import print_json, print_table, printable
from odradek.client.admin.config_admin import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Edit,
    Resource,
    alter_configs,
    describe_configs,
)
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.describe import DEFAULT_CONFIG, ConfigEntry
from odradek.core.configs.broker_keys import broker_key
from odradek.core.configs.definition import ConfigError

Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a key; repeat for more.")]
Delete = Annotated[
    list[str] | None, typer.Option("--delete", metavar="KEY", help="Reset a key to its default; repeat for more.")
]
Append = Annotated[
    list[str] | None, typer.Option("--append", metavar="KEY=VALUE[,...]", help="Add values to a list; repeat for more.")
]
Subtract = Annotated[
    list[str] | None,
    typer.Option("--subtract", metavar="KEY=VALUE[,...]", help="Remove values from a list; repeat for more."),
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--set-from", metavar="FILE", help="Set all keys of a file with key=value lines; use it for passwords."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", metavar="", help="Validate the change without applying it.")]
All = Annotated[bool, typer.Option("--all", metavar="", help="Also show keys at their default.")]

SOURCES = {1: "topic", 2: "broker", 3: "all brokers", 4: "server.properties", DEFAULT_CONFIG: "default"}
SIGNS = {SET: "=", APPEND: " + ", SUBTRACT: " - "}


def edits_of(
    sets: Sequence[str] | None,
    deletes: Sequence[str] | None,
    appends: Sequence[str] | None,
    subtracts: Sequence[str] | None,
    from_file: Path | None,
) -> list[Edit]:
    """Return the requested edits. Raise CommandFailed, also for a key named by two options."""
    edits = [Edit(key, SET, value) for key, value in (*_pairs(sets, "--set"), *_pairs_of_file(from_file))]
    edits += [Edit(key.strip(), DELETE) for key in deletes or ()]
    edits += [Edit(key, APPEND, value) for key, value in _pairs(appends, "--append")]
    edits += [Edit(key, SUBTRACT, value) for key, value in _pairs(subtracts, "--subtract")]
    duplicates = [key for key, count in Counter(edit.key for edit in edits).items() if count > 1]
    if duplicates:
        raise CommandFailed(f"duplicate key '{printable(duplicates[0])}': change each key only once", USAGE_ERROR)
    return edits


def change(cluster: Cluster, resource: Resource, edits: Sequence[Edit], *, dry_run: bool) -> None:
    """Change all of the keys, or none."""
    alter_configs(cluster, resource, edits, validate_only=dry_run)
    typer.echo(f"{resource}: {', '.join(map(_describe, edits))}{' (not applied: --dry-run)' if dry_run else ''}")


def show(cluster: Cluster, resource: Resource, *, defaults: bool, as_json: bool) -> list[ConfigEntry]:
    """Show a configuration and return all of its entries."""
    every = sorted(describe_configs(cluster, resource), key=lambda entry: entry.name)
    entries = [entry for entry in every if defaults or entry.source != DEFAULT_CONFIG]
    if as_json:
        print_json([_row(entry) for entry in entries])
    else:
        rows = [(entry.name, _value(entry), SOURCES.get(entry.source, entry.source)) for entry in entries]
        print_table(["key", "value", "set for"], rows)
    return every


def _row(entry: ConfigEntry) -> dict[str, object]:
    return {
        "key": entry.name,
        "value": entry.value,
        "set_for": SOURCES.get(entry.source),
        "read_only": entry.is_read_only,
        "secret": entry.is_sensitive,
    }


def _value(entry: ConfigEntry) -> str | None:
    return "(hidden)" if entry.is_sensitive else entry.value


def _describe(edit: Edit) -> str:
    if edit.operation == DELETE:
        return f"{printable(edit.key)} deleted"
    key = broker_key(edit.key)
    value = "(hidden)" if key is not None and key.sensitive else edit.value or ""
    return printable(f"{edit.key}{SIGNS[edit.operation]}{value}")


def _pairs(texts: Sequence[str] | None, option: str) -> list[tuple[str, str]]:
    # One at a time, so that a repeated key is detected.
    return [pair for text in texts or () for pair in pairs([text], option).items()]


def _pairs_of_file(path: Path | None) -> list[tuple[str, str]]:
    try:
        return [] if path is None else list(read_properties(path).items())
    except ConfigError as error:
        raise CommandFailed(str(error).rstrip("."), USAGE_ERROR) from None
