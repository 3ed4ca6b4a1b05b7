"""odradek lake: maintenance of tables filled by odradek load."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from odradek.app.cli.cli_options import AsJson, pairs
from odradek.app.commands.load_command import Storage, spark_extra
from odradek.app.terminal.command_failed import MISUNDERSTOOD, CommandFailed
from odradek.app.terminal.output import plural, print_json

OLDER_THAN_HOURS = 168  # Delta's delta.deletedFileRetentionDuration.

app = typer.Typer(help="Keep a lake tidy.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """Make `vacuum` a verb below `lake`, although it is the only one."""


@app.command()
def vacuum(
    *,
    lake: Annotated[str, typer.Argument(metavar="PLACE", help="The Delta table.", show_default=False)],
    older_than_hours: Annotated[
        int,
        typer.Option("--older-than-hours", min=1, metavar="N", help="Longer than any batch and any reader may take."),
    ] = OLDER_THAN_HOURS,
    execute: Annotated[bool, typer.Option("--execute", metavar="", help="Remove them; else they are listed.")] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Remove files that the table does not need any more.

    A loader that was killed leaves files that no version of the table names;
    merging small files leaves those that were merged.  Versions of the table
    that are older than that, and lose files by it, cannot be read any more.

    Example: odradek lake vacuum lake/flights --execute
    """
    with spark_extra():
        from odradek.spark.lake_making import vacuum as vacuumed
        from odradek.spark.lake_place import BadPlace, Place
        from odradek.spark.lake_reasons import BadLake
    try:
        names = vacuumed(Place.of(lake, pairs(storage or (), "--storage")), older_than_hours, execute=execute)
    except BadPlace as error:
        raise CommandFailed(uncapped(error), MISUNDERSTOOD) from None
    except BadLake as error:
        raise CommandFailed(uncapped(error)) from None
    if as_json:
        print_json({"removed": execute, "files": names})
        return
    sys.stdout.write("".join(f"{name}\n" for name in names))
    done = "removed" if execute else "can be removed, by --execute"
    sys.stderr.write(f"{plural(len(names), 'file')} {done}.\n")


def uncapped(error: Exception) -> str:
    text = str(error).rstrip(".")
    return text[:1].lower() + text[1:]
