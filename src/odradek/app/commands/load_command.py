"""odradek load: the Spark loader, whose imports are loaded only here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from odradek.app.cli.cli_options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, client_texts, pairs
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed
from odradek.base.extras import absent, not_installed

Storage = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="KEY=VALUE",
        help="Set an S3 option, such as AWS_ENDPOINT_URL=...; overrides the environment.",
    ),
]


@contextmanager
def spark_extra() -> Iterator[None]:
    """Raise CommandFailed with the missing libraries of the extra, before anything is done."""
    if missing := absent("pyspark", "pyarrow", "pandas", "deltalake"):
        raise CommandFailed(not_installed(missing, "spark"))
    yield


def load(
    *,
    lake: Annotated[
        str,
        typer.Option(
            "--lake", "-l", metavar="PLACE", help="Delta table, a folder or s3://bucket/path; created if missing."
        ),
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option("--topics", "-t", metavar="TOPIC[,...]", help="Load these topics; repeat for more."),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="REGEX", help="Load all topics whose full name matches.")
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option("--continuous/--once", metavar="", help="Keep loading new records, or stop at the current end."),
    ] = False,
    interval_ms: Annotated[
        int, typer.Option("--interval-ms", min=0, metavar="N", help="Time between commits with --continuous.")
    ] = 5_000,
    batch_records: Annotated[
        int,
        typer.Option(
            "--batch-records", min=1, metavar="N", help="Approximate maximum number of records in one commit."
        ),
    ] = 1_000_000,
    allow_data_loss: Annotated[
        bool,
        typer.Option(
            "--allow-data-loss", metavar="", help="Continue if retention removed records before they were loaded."
        ),
    ] = False,
    optimize: Annotated[bool, typer.Option("--optimize", metavar="", help="Merge small files at the end.")] = False,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Spark master.", show_default="local[*]")
    ] = None,
    kafka: Annotated[
        list[str] | None, typer.Option("--kafka", metavar="KEY=VALUE", help="Set a Kafka client configuration.")
    ] = None,
    storage: Storage = None,
    spark: Annotated[
        list[str] | None, typer.Option("--spark", metavar="KEY=VALUE", help="Set a Spark property.")
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    r"""Load topics into a Delta table, each record exactly once.

    Every record arrives exactly once, even if the loader, Spark or the broker is
    killed.  Run the command again to continue at the end of the table.  It needs
    the extra spark; if a package is missing, the error shows how to install it.
    """
    with spark_extra():
        from odradek.spark.load import LoadOptions, run
    names = [name.strip() for text in topics or () for name in text.split(",") if name.strip()]
    if bool(names) == bool(pattern):
        raise CommandFailed("choose either --topics or --pattern", USAGE_ERROR)
    options = LoadOptions(
        bootstrap_servers=bootstrap_server,
        lake=lake,
        topics=tuple(names),
        pattern=pattern,
        continuous=continuous,
        trigger_interval_ms=interval_ms,
        max_records_per_batch=batch_records,
        fail_on_data_loss=not allow_data_loss,
        optimize=optimize,
        master=master,
        kafka=client_texts(command_config) | pairs(kafka or (), "--kafka"),
        spark=pairs(spark or (), "--spark"),
        storage=pairs(storage or (), "--storage"),
    )
    return run(options)
