"""odradek topic compact: compact a topic now, wait for the end, and report the space saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from odradek.app.cli.cli_options import (
    DEFAULT_BOOTSTRAP_SERVER,
    AsJson,
    BootstrapServer,
    CommandConfig,
    OnlyPartitions,
    connected,
    duration,
)
from odradek.app.cli.partition_arguments import topic_name
from odradek.app.commands.topic_segments import choose_partitions
from odradek.app.terminal.command_failed import report_failures
from odradek.app.terminal.output import plural, print_json, print_table, remark, size_text
from odradek.base.units import SECOND_MS, TopicPartition
from odradek.client.admin.log_compaction import Compacted, compact_partitions
from odradek.client.connection.client_errors import ClientError


def compact(
    *,
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partition: OnlyPartitions = None,
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout", metavar="TIME", help="Maximum wait (90s, 10m, 2h, 1d); the compaction continues afterwards."
        ),
    ] = "1d",
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """Compact a topic now and report the space saved.

    The command does not wait until enough of the log is dirty.  Records that
    min.compaction.lag.ms or an open transaction protects remain, and a message
    says so.  Ctrl-C ends the wait, not the compaction.

    Example: odradek topic compact customers --partition 0
    """
    name, timeout_ms = topic_name(name), duration("--timeout", timeout)
    with connected(bootstrap_server, command_config) as cluster:
        partitions = choose_partitions(cluster, name, partition or ())
        outcomes = compact_partitions(cluster, partitions, timeout_ms)
    compacted = {each: outcome for each in partitions if isinstance(outcome := outcomes[each], Compacted)}
    report(compacted, as_json=as_json)
    return report_failures(outcome for each in partitions if isinstance(outcome := outcomes[each], ClientError))


def report(compacted: Mapping[TopicPartition, Compacted], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [{"topic": each.topic, "partition": each.partition, **one._asdict()} for each, one in compacted.items()]
        )
    elif compacted:
        columns = ["topic", "partition>", "before>", "after>", "records removed>", "seconds>"]
        print_table(columns, [cells(each, one) for each, one in compacted.items()])
        before, after = (sum(sizes) for sizes in zip(*(one[:2] for one in compacted.values()), strict=True))
        removed = plural(sum(one.removed_records for one in compacted.values()), "record")
        typer.echo(
            f"{plural(len(compacted), 'partition')}, {size_text(before)} compacted to {size_text(after)}, "
            f"{removed} removed"
        )
    for each, one in compacted.items():
        if one.held_back_by is not None:
            remark(f"{each} is compacted up to offset {one.compacted_to}: {one.held_back_by} protects the rest")


def cells(each: TopicPartition, one: Compacted) -> tuple[object, ...]:
    seconds = f"{one.duration_ms / SECOND_MS:.1f}"
    sizes = size_text(one.bytes_before), size_text(one.bytes_after)
    return (each.topic, each.partition, *sizes, f"{one.removed_records:,}", seconds)
