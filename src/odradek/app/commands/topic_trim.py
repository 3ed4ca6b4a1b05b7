"""odradek topic trim: show records to delete from the start of a topic, and do so with --execute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from odradek.app.cli.cli_options import (
    DEFAULT_BOOTSTRAP_SERVER,
    AsJson,
    BootstrapServer,
    CommandConfig,
    OnlyPartitions,
    connected,
)
from odradek.app.cli.partition_arguments import topic_name
from odradek.app.cli.start_offsets import offsets_at
from odradek.app.commands.topic_segments import choose_partitions
from odradek.app.inspect.log_locations import locate_logs, request_retention
from odradek.app.inspect.segment_files import segments_of
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed, report_failures
from odradek.app.terminal.output import plural, print_json, print_table, remark, size_text
from odradek.app.terminal.time_arguments import moment_ms
from odradek.base.units import TopicPartition
from odradek.client.admin.record_deletion import delete_records
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import ClientError, Unsupported
from odradek.client.consumer.offset_lookup import EARLIEST, LATEST

Offsets = dict[TopicPartition, int]


def trim(
    *,
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partition: OnlyPartitions = None,
    before_offset: Annotated[
        int | None, typer.Option("--before-offset", min=0, metavar="N", help="Delete records below this offset.")
    ] = None,
    before_time: Annotated[
        str | None,
        typer.Option(
            "--before-time",
            metavar="TIME",
            help="Delete records before the first at or after 2026-11-21T14:00 (local; append Z for UTC).",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", metavar="", help="Delete all records.")] = False,
    execute: Annotated[
        bool, typer.Option("--execute", metavar="", help="Delete the records; without it, only show the effect.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """Delete records from the start of a topic.

    Without --execute, only shows the effect.  Deleted records cannot be restored.
    The broker's next retention check deletes whole segments; the command shows the
    disk space that this frees if it can read the files.

    Examples:

    odradek topic trim flights --before-time 2026-11-01

    odradek topic trim flights --partition 0 --before-offset 5000 --execute
    """
    if [before_offset is not None, before_time is not None, everything].count(True) != 1:
        raise CommandFailed("choose one of --before-offset, --before-time and --all", USAGE_ERROR)
    when_ms = None if before_time is None else time_of(before_time)
    name = topic_name(name)
    with connected(bootstrap_server, command_config) as cluster:
        refuse_kept(cluster, name)
        failures: dict[TopicPartition, ClientError] = {}
        starts = offsets_at(cluster, choose_partitions(cluster, name, partition or ()), EARLIEST, failures)
        ends = offsets_at(cluster, list(starts), LATEST, failures)
        starts = {each: starts[each] for each in ends}
        new_offsets = new_starts(cluster, starts, ends, before_offset, when_ms)
        freed = bytes_between(cluster, starts, new_offsets)
        if execute:
            moved = {each: offset for each, offset in new_offsets.items() if offset > starts[each]}
            for each, outcome in delete_records(cluster, moved).items():
                if isinstance(outcome, ClientError):
                    new_offsets[each], failures[each] = starts[each], outcome
                else:
                    new_offsets[each] = outcome
    report(starts, ends, new_offsets, freed, as_json=as_json)
    records = sum(new_offsets[each] - start for each, start in starts.items())
    remark(
        f"deleted {plural(records, 'record')}"
        if execute
        else "no records deleted: run again with --execute to delete them"
    )
    return report_failures(failures.values())


def refuse_kept(cluster: Cluster, name: str) -> None:
    """Raise CommandFailed for a topic whose records no broker deletes by offset."""
    if cluster.topic(name, timeout_ms=0).is_internal:
        raise CommandFailed(f"cannot delete records of internal topic {name}")
    retention = request_retention(cluster, name)
    if retention.compacts and not retention.deletes:
        raise CommandFailed(f"cannot delete records of {name}: its cleanup.policy must include delete")


def time_of(text: str) -> int:
    try:
        return moment_ms(text)
    except ValueError:
        message = f"invalid --before-time {text!r}: use a time like 2026-11-21T14:00 or 2026-11-21T14:00Z"
        raise CommandFailed(message, USAGE_ERROR) from None


def new_starts(
    cluster: Cluster, starts: Offsets, ends: Offsets, before_offset: int | None, when_ms: int | None
) -> Offsets:
    """Return the new start offset of each partition, between its current start and its end."""
    if before_offset is not None:
        for each, end in ends.items():
            if before_offset > end:
                remark(f"offset {before_offset} is higher than the latest offset of {each}: using {end}")
        new_offsets = dict.fromkeys(starts, before_offset)
    elif when_ms is not None:
        # Without a record since then, all records up to the listed ends are older.
        found = offsets_at(cluster, list(starts), when_ms)
        new_offsets = {each: ends[each] if offset < 0 else offset for each, offset in found.items()}
    else:
        new_offsets = ends
    return {each: min(max(new_offsets[each], start), ends[each]) for each, start in starts.items()}


def bytes_between(cluster: Cluster, starts: Offsets, new_offsets: Offsets) -> dict[TopicPartition, int]:
    """Return the bytes of segments that end between the old and the new starts, of locally readable logs."""
    try:
        logs = locate_logs(cluster, list(new_offsets))
    except Unsupported:
        return {}
    return {
        log.partition: sum(
            one.size
            for one in segments_of(log.directory)
            if starts[log.partition] < one.end_offset <= new_offsets[log.partition] and not one.is_active
        )
        for log in logs
        if log.directory is not None
    }


def report(
    starts: Offsets, ends: Offsets, new_offsets: Offsets, freed: Mapping[TopicPartition, int], *, as_json: bool
) -> None:
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "start": start,
            "new": new_offsets[each],
            "end": ends[each],
            "records": new_offsets[each] - start,
            "bytes": freed.get(each),
        }
        for each, start in starts.items()
    ]
    if as_json:
        print_json(rows)
        return
    columns = ["topic", "partition>", "start>", "new>", "end>", "records>", "frees>"]
    print_table(columns, [cells(row) for row in rows])


def cells(row: Mapping[str, object]) -> Sequence[object]:
    *others, freed = row.values()
    return [*others, size_text(freed) if isinstance(freed, int) else None]
