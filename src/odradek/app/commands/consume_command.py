"""odradek consume: write records of topics to standard output, up to the current end or continuously."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Annotated

import typer

from odradek.app.cli.cli_options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    CommandConfig,
    OnlyPartitions,
    connected,
)
from odradek.app.cli.partition_arguments import no_such_partition, topic_name
from odradek.app.cli.record_text import Formatter, json_lines, key_value_lines, raw_values, value_lines
from odradek.app.cli.start_offsets import offsets_at, start_rule
from odradek.app.commands.produce_command import unescaped
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed, report_failures
from odradek.app.terminal.patient_output import PatientOutput, terminated_in_order
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT64_MAX, MIB, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import READ_COMMITTED, READ_UNCOMMITTED
from odradek.client.connection.client_errors import ClientError
from odradek.client.consumer.fetcher import Fetched, Fetcher
from odradek.client.consumer.group_consumer import GroupConsumer
from odradek.client.consumer.group_member import GroupMember
from odradek.client.consumer.offset_lookup import LATEST
from odradek.record.record_batch import Batch
from odradek.record.records import iter_records

POLL_MS = 1_000
PARTITION_FETCH_BYTES = 4 * MIB  # A few large responses instead of many small ones: the process is not shared.


class Format(StrEnum):
    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"
    RAW = "raw"


def consume(
    *,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", show_default=False)],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            "-o",
            metavar="WHERE",
            help="Start at beginning, end, an offset, a time, or -N (the last N of each partition).",
        ),
    ] = "beginning",
    partition: OnlyPartitions = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=0, metavar="N", help="Stop after this number of records.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", metavar="", help="Keep reading at the end.")] = False,
    layout: Annotated[
        Format, typer.Option("--format", metavar="NAME", help="Print records as value, key-value, json or raw.")
    ] = Format.VALUE,
    key_separator: Annotated[
        str,
        typer.Option(
            "--key-separator", "-k", metavar="TEXT", help="Separator for --format key-value.", show_default="TAB"
        ),
    ] = "\\t",
    committed: Annotated[
        bool,
        typer.Option("--committed", metavar="", help="Omit records of open and aborted transactions."),
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this group, from its committed offsets, and commit.",
        ),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(
            "--group-instance-id", metavar="ID", help="Join as a static member, which may stop for up to 45 s."
        ),
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """Write the records of topics to standard output.

    Reads up to the end of the topics as it was at the start.  Use --follow to
    keep reading.
    Times are ISO 8601: 2026-11-21T14:00 is local, 2026-11-21T14:00Z is UTC.
    Skips partitions without a leader and reports them.  With --follow, waits
    for a leader.
    With --group, --from applies only to partitions without a committed offset.

    Examples:

    odradek consume flights -n 3 --format json

    odradek consume flights --from -10 --follow

    odradek consume flights --from 2026-11-21 --format raw > values.bin

    odradek consume flights --group watchers --follow
    """
    refuse_contradictions(group, instance, partition)
    topics = [topic_name(each) for each in topics]
    begin, lines = start_rule(start), formatter(layout, key_separator)
    settings = {
        "isolation_level": READ_COMMITTED if committed else READ_UNCOMMITTED,
        "max_partition_fetch_bytes": PARTITION_FETCH_BYTES,
    }
    failures: dict[TopicPartition, ClientError] = {}  # Of partitions that are not read.
    with connected(bootstrap_server, command_config, **settings) as cluster:
        requested = partitions_of(cluster, topics, partition)
        if group is None:
            until = None if follow else offsets_at(cluster, requested, LATEST, failures)
            led = [each for each in requested if each not in failures]
            write(Fetcher(cluster, begin(cluster, led), until=until), until, lines, max_messages)
        else:
            member = GroupMember(cluster, group, topics, instance_id=instance)
            consumer = GroupConsumer(cluster, member, start=partial(begin, cluster), follows=follow)
            with terminated_in_order(), consumer:
                write_as_member(consumer, lines, max_messages)
    return report_failures(failures.values())


def refuse_contradictions(group: str | None, instance: str | None, partitions: Sequence[int] | None) -> None:
    if group == "":
        raise CommandFailed("--group must not be empty", USAGE_ERROR)
    if group is None and instance is not None:
        raise CommandFailed("--group-instance-id requires --group", USAGE_ERROR)
    if group is not None and partitions:
        raise CommandFailed("the group assigns the partitions: omit --partition or --group", USAGE_ERROR)


def formatter(layout: Format, key_separator: str) -> Formatter:
    match layout:
        case Format.KEY_VALUE:
            return key_value_lines(unescaped(key_separator))
        case Format.JSON:
            return json_lines
        case Format.RAW:
            return raw_values
        case Format.VALUE:
            return value_lines


def partitions_of(cluster: Cluster, topics: Sequence[str], only: Sequence[int] | None) -> list[TopicPartition]:
    """Return all partitions of the topics, or the chosen ones, without waiting for missing topics."""
    found = cluster.partitions(topics, timeout_ms=0)
    if not only:
        return found
    for topic in topics:
        count = sum(at.topic == topic for at in found)
        missing = [number for number in only if number >= count]
        if missing:
            raise no_such_partition(topic, missing[0], count)
    return [at for at in found if at.partition in only]


def write(fetcher: Fetcher, until: Mapping[TopicPartition, int] | None, lines: Formatter, most: int | None) -> None:
    """Write the records of each response, in order within each partition, up to `until` or forever."""
    out = sys.stdout.buffer
    left = INT64_MAX if most is None else most
    while left and not fetcher.is_done:
        for fetched in fetcher.poll(POLL_MS):
            end = INT64_MAX if until is None else until[fetched.partition]
            for batch in intact_batches(fetched):
                # A batch may begin before the requested offset, and extend beyond the end.
                chosen = lines(fetched.partition, batch, fetched.fetch_offset, end)[:left]
                left -= len(chosen)
                out.write(b"".join(chosen))
        out.flush()


def write_as_member(consumer: GroupConsumer, lines: Formatter, most: int | None) -> None:
    """Write as a member of a group, and commit what was written, so that no member reads it again."""
    out = PatientOutput.standard(consumer.keep_alive)
    left = INT64_MAX if most is None else most
    while left and not consumer.is_done:
        for fetched in consumer.poll(POLL_MS):
            if left and consumer.owns(fetched.partition):
                left -= write_fetched(consumer, out, fetched, lines, left)
            consumer.keep_alive()
        consumer.commit()


def write_fetched(consumer: GroupConsumer, out: PatientOutput, fetched: Fetched, lines: Formatter, most: int) -> int:
    """Write at most `most` records of one partition, report the position, and return the count."""
    end = consumer.until.get(fetched.partition, INT64_MAX)
    left = most
    for batch in intact_batches(fetched):
        chosen = lines(fetched.partition, batch, fetched.fetch_offset, end)
        out.write(b"".join(chosen[:left]))
        if len(chosen) > left:
            consumer.processed(fetched.partition, offset_after(batch, fetched.fetch_offset, left))
            return most
        left -= len(chosen)
    consumer.processed(fetched.partition, min(end, fetched.next_offset))
    return most - left


def offset_after(batch: Batch, start: int, count: int) -> int:
    """Return the offset after `count` records from `start` on; the batch has more, and may have gaps."""
    if not count:
        return max(start, batch.base_offset)
    offsets = (record.offset for record in iter_records(batch) if record.offset >= start)
    return next(islice(offsets, count - 1, None)) + 1


def intact_batches(fetched: Fetched) -> Iterator[Batch]:
    for batch in fetched.batches():
        if not batch.is_intact:
            where = f"{fetched.partition} at offset {batch.base_offset}"
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"invalid checksum of the record batch in {where}")
        yield batch
