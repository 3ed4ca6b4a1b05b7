"""odradek lake: maintenance of tables filled by odradek load."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from odradek.app.cli.cli_options import AsJson, pairs
from odradek.app.commands.load_command import Storage, spark_extra
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed
from odradek.app.terminal.output import plural, print_json

OLDER_THAN_HOURS = 168  # Delta's delta.deletedFileRetentionDuration.

app = typer.Typer(help="Maintain a lake.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """Make `vacuum` a verb below `lake`, although it is the only one."""


@app.command()
def vacuum(
    *,
    lake: Annotated[str, typer.Argument(metavar="PLACE", help="The Delta table.", show_default=False)],
    older_than_hours: Annotated[
        int,
        typer.Option(
            "--older-than-hours",
            min=1,
            metavar="N",
            help="Minimum age of removed files; longer than any batch or reader takes.",
        ),
    ] = OLDER_THAN_HOURS,
    execute: Annotated[
        bool, typer.Option("--execute", metavar="", help="Remove the files; without it, only list them.")
    ] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Remove files that the table no longer needs.

    A killed loader leaves files that no table version references; merging small
    files leaves the merged ones.  Older table versions that lose files can no
    longer be read.

    Example: odradek lake vacuum lake/flights --execute
    """
    with spark_extra():
        from odradek.spark.lake_location import BadPlace, Place
        from odradek.spark.lake_reasons import BadLake
        from odradek.spark.lake_table import vacuum as vacuumed
    try:
        names = vacuumed(Place.of(lake, pairs(storage or (), "--storage")), older_than_hours, execute=execute)
    except BadPlace as error:
        raise CommandFailed(uncapped(error), USAGE_ERROR) from None
    except BadLake as error:
        raise CommandFailed(uncapped(error)) from None
    if as_json:
        print_json({"removed": execute, "files": names})
        return
    sys.stdout.write("".join(f"{name}\n" for name in names))
    done = "removed." if execute else "can be removed. Run again with --execute."
    sys.stderr.write(f"{plural(len(names), 'file')} {done}\n" if names else "No unused files found.\n")


def uncapped(error: Exception) -> str:
    text = str(error).rstrip(".")
    return text[:1].lower() + text[1:]
