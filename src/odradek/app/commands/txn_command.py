"""odradek txn: list and describe transactions, find hanging ones, abort them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from odradek.app.cli.cli_options import (
    DEFAULT_BOOTSTRAP_SERVER,
    AsJson,
    BootstrapServer,
    CommandConfig,
    choose,
    connected,
    duration,
    not_empty,
)
from odradek.app.cli.partition_arguments import existing_partitions, topic_name
from odradek.app.cli.txn_view import producer_view, show_producers, show_transactions, transaction_view
from odradek.app.terminal.command_failed import FAILED, USAGE_ERROR, CommandFailed, report_failures
from odradek.app.terminal.output import print_json, print_table
from odradek.base.units import INT32_MAX, INT64_MAX, TopicName, TopicPartition
from odradek.client.admin.transaction_admin import (
    ActiveProducer,
    TransactionDescription,
    abort_hanging,
    abort_transaction,
    describe_producers,
    describe_transactions,
    find_hanging,
    list_transactions,
)
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import ClientError

app = typer.Typer(help="List, describe and abort transactions.", no_args_is_help=True)

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
Topic = Annotated[str, typer.Option("--topic", metavar="TOPIC")]
Partition = Annotated[int, typer.Option("--partition", "-p", min=0, max=INT32_MAX, metavar="N")]


@app.command("list")
def list_command(
    *,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", "-s", metavar="STATE", help="Only transactions in this state, e.g. ongoing; repeat for more."
        ),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option(
            "--producer-id",
            min=0,
            max=INT64_MAX,
            metavar="ID",
            help="Only transactions of this producer; repeat for more.",
        ),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option("--longer-than", metavar="DURATION", help="Only transactions open for longer: 90s, 10m, 2h."),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="REGEX", help="Only transactional ids that match.")
    ] = None,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """List transactional ids with their producer and state."""
    states = [choose("--state", each, STATES) for each in state or ()]
    longer_than_ms = None if longer_than is None else duration("--longer-than", longer_than)
    failures: dict[int, ClientError] = {}  # Of brokers whose ids are missing.
    with connected(bootstrap_server, command_config) as cluster:
        listed = list_transactions(
            cluster,
            states=states,
            producer_ids=producer_id or (),
            longer_than_ms=longer_than_ms,
            pattern=pattern,
            failures=failures,
        )
    rows = [
        {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "state": each.state,
            "coordinator": each.coordinator,
        }
        for each in listed
    ]
    if as_json:
        print_json(rows)
    else:
        columns = ["transactional id", "producer>", "state", "coordinator>"]
        print_table(columns, [list(row.values()) for row in rows])
    return report_failures(failures.values())


@app.command("describe")
def describe(
    transactional_ids: Annotated[
        list[str], typer.Argument(metavar="TRANSACTIONAL_ID", show_default=False, callback=not_empty)
    ],
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """Show state, producer, age and partitions of transactions."""
    with connected(bootstrap_server, command_config) as cluster:
        outcomes = describe_transactions(cluster, transactional_ids).values()
    shown = [transaction_view(each, now_ms()) for each in outcomes if not isinstance(each, ClientError)]
    failures = [each for each in outcomes if isinstance(each, ClientError)]
    if failures and not shown:
        raise failures[0]
    if as_json:
        print_json(shown)
    else:
        show_transactions(shown)
    return report_failures(failures)


def require_known(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    outcome = describe_transactions(cluster, [transactional_id])[transactional_id]
    if isinstance(outcome, ClientError):
        raise outcome
    return outcome


@app.command("describe-producers")
def describe_producers_command(
    topic: Topic,
    partition: Partition,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Show the active producers of a partition, and where their open transactions start."""
    with connected(bootstrap_server, command_config) as cluster:
        producers = producers_of(cluster, topic, partition)
    shown = [producer_view(each) for each in producers]
    if as_json:
        print_json(shown)
    else:
        show_producers(shown)


def producers_of(cluster: Cluster, topic: str, partition: int) -> list[ActiveProducer]:
    (topic_partition,) = existing_partitions(cluster, [f"{topic}:{partition}"])
    return describe_producers(cluster, [topic_partition])[topic_partition]


@app.command("abort")
def abort(
    *,
    transactional_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[TRANSACTIONAL_ID]",
            show_default=False,
            help="Id to abort; also fences its producer.",
            callback=not_empty,
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Topic of a hanging transaction.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, max=INT32_MAX, metavar="N")] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", min=0, metavar="N", help="Its start offset; see describe-producers.")
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Abort the transaction of a transactional id, or a hanging one of a partition.

    Examples:

    odradek txn abort billing-1

    odradek txn abort --topic invoices --partition 2 --start-offset 117
    """
    if transactional_id is not None:
        if topic is not None or partition is not None or start_offset is not None:
            raise CommandFailed(
                "use a transactional id, or --topic, --partition and --start-offset, but not both", USAGE_ERROR
            )
        with connected(bootstrap_server, command_config) as cluster:
            abort_by_id(cluster, transactional_id)
        return
    if topic is None or partition is None or start_offset is None:
        raise CommandFailed("name a transactional id, or use --topic, --partition and --start-offset", USAGE_ERROR)
    with connected(bootstrap_server, command_config) as cluster:
        abort_by_place(cluster, topic_name(topic), partition, start_offset)


def abort_by_id(cluster: Cluster, transactional_id: str) -> None:
    before = require_known(cluster, transactional_id)  # InitProducerId would create an unknown id.
    if not before.is_in_progress:
        raise CommandFailed(f"transactional id {transactional_id} has no open transaction: its state is {before.state}")
    abort_transaction(cluster, transactional_id)
    typer.echo(f"aborted the transaction of {transactional_id}; its producer is fenced")


def abort_by_place(cluster: Cluster, topic: TopicName, partition: int, start_offset: int) -> None:
    producers = producers_of(cluster, topic, partition)
    found = next((each for each in producers if each.transaction_start == start_offset), None)
    if found is None:
        raise CommandFailed(
            f"could not find an open transaction starting at offset {start_offset} on partition {topic}-{partition}"
        )
    abort_hanging(cluster, TopicPartition(topic, partition), found)
    typer.echo(
        f"aborted the transaction of producer {found.identity.producer_id} at {topic}-{partition} offset {start_offset}"
    )


@app.command("find-hanging")
def find_hanging_command(
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="TOPIC[:N,...]", help="Only these partitions; repeat for more.", show_default="all"
        ),
    ] = None,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            help="Minimum age; not less than the brokers' transaction.max.timeout.ms.",
        ),
    ] = "15m",
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """Find transactions that no coordinator will complete; exits with 1 if there are any."""
    older_than_ms = duration("--older-than", older_than)
    failures: dict[TopicPartition, ClientError] = {}  # Of partitions not checked.
    with connected(bootstrap_server, command_config) as cluster:
        partitions = existing_partitions(cluster, topic) if topic else every_partition(cluster)
        hanging = find_hanging(cluster, partitions, older_than_ms=older_than_ms, failures=failures)
    shown = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "transactional_id": each.transactional_id,
            **producer_view(each.producer),
        }
        for each in hanging
    ]
    if as_json:
        print_json(shown)
    else:
        show_producers(shown, with_place=True)
    return max(report_failures(failures.values()), FAILED if hanging else 0)


def every_partition(cluster: Cluster) -> Sequence[TopicPartition]:
    topics = [topic for topic in cluster.topics() if not topic.is_internal]
    return [TopicPartition(TopicName(topic.name), each.index) for topic in topics for each in topic.partitions]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
