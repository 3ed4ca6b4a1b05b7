"""odradek load: the Spark loader, whose imports are loaded only here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from odradek.app.cli.cli_options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, CommandConfig, client_texts, pairs
from odradek.app.terminal.command_failed import MISUNDERSTOOD, CommandFailed
from odradek.base.extras import absent, not_installed

Storage = Annotated[
    list[str] | None,
    typer.Option(
        "--storage", metavar="KEY=VALUE", help="How S3 is reached, as AWS_ENDPOINT_URL=...; wins over the environment."
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
            "--lake", "-l", metavar="PLACE", help="The Delta table, a folder or s3://bucket/path; made if not there."
        ),
    ],
    topics: Annotated[
        list[str] | None, typer.Option("--topics", "-t", metavar="TOPIC[,...]", help="What to load; repeat for more.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="REGEX", help="Load every topic whose whole name matches.")
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option("--continuous/--once", metavar="", help="Go on with what comes, or stop at what is there now."),
    ] = False,
    interval_ms: Annotated[
        int, typer.Option("--interval-ms", min=0, metavar="N", help="From one commit to the next, when continuous.")
    ] = 5_000,
    batch_records: Annotated[
        int,
        typer.Option("--batch-records", min=1, metavar="N", help="About how many records one commit holds at most."),
    ] = 1_000_000,
    allow_data_loss: Annotated[
        bool,
        typer.Option(
            "--allow-data-loss", metavar="", help="Go on where retention removed records before they were loaded."
        ),
    ] = False,
    optimize: Annotated[bool, typer.Option("--optimize", metavar="", help="Merge small files when done.")] = False,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Spark master.", show_default="local[*]")
    ] = None,
    kafka: Annotated[
        list[str] | None, typer.Option("--kafka", metavar="KEY=VALUE", help="A Kafka client configuration.")
    ] = None,
    storage: Storage = None,
    spark: Annotated[list[str] | None, typer.Option("--spark", metavar="KEY=VALUE", help="A Spark setting.")] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    r"""Load topics into a Delta table, each record once, whatever is killed meanwhile.

    Run it again and it goes on where the table ends.  Needs the extra spark,
    and says how to install what is missing of it.
    """
    with spark_extra():
        from odradek.spark.load import LoadOptions, run
    names = [name.strip() for text in topics or () for name in text.split(",") if name.strip()]
    if bool(names) == bool(pattern):
        raise CommandFailed("say what to load: either --topics or --pattern", MISUNDERSTOOD)
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
