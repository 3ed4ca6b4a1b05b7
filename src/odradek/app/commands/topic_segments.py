"""odradek topic segments: size and age of each segment, and the reason and time of its retention."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from odradek.app.cli.cli_options import (
    DEFAULT_BOOTSTRAP_SERVER,
    AsJson,
    BootstrapServer,
    CommandConfig,
    OnlyPartitions,
    connected,
    pairs,
)
from odradek.app.cli.partition_arguments import no_such_partition, topic_name
from odradek.app.inspect.log_locations import (
    TopicLog,
    locate_logs,
    logs_in_directory,
    request_retention,
    retention_from_overrides,
)
from odradek.app.inspect.segment_fate import Fate, Retention, age_text, fates
from odradek.app.inspect.segment_files import SegmentFacts, offset_of_newest, segments_of
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed
from odradek.app.terminal.output import plural, print_json, print_table, remark, size_text, time_text
from odradek.base.units import TopicPartition
from odradek.client.cluster.cluster import Cluster


def segments(
    *,
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partition: OnlyPartitions = None,
    log_dir: Annotated[
        Path | None,
        typer.Option("--log-dir", metavar="DIR", help="Read this data directory without contacting a broker."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", "-c", metavar="KEY=VALUE", help="With --log-dir: a configuration of the topic; repeat for more."
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> int:
    """Show the segments of a topic, why each still exists, and until when.

    Reads the files in the data directory, so run it on the broker's machine.
    Changes nothing.  Retention deletes the oldest segment first: a record with a
    timestamp in the future delays all segments after it, and the reason says so.

    Examples:

    odradek topic segments flights --partition 0

    odradek topic segments flights --log-dir odradek-data -c retention.ms=3600000
    """
    name = topic_name(name)
    if log_dir is None:
        if config:
            raise CommandFailed(
                "--config requires --log-dir: otherwise the broker returns the configuration", USAGE_ERROR
            )
        with connected(bootstrap_server, command_config) as cluster:
            retention = request_retention(cluster, name)
            logs = locate_logs(cluster, choose_partitions(cluster, name, partition or ()))
    else:
        retention = retention_from_overrides(pairs(config or (), "--config"))
        logs = logs_in_directory(log_dir, name, partition or ())
    return show(logs, retention, as_json=as_json)


def choose_partitions(cluster: Cluster, name: str, numbers: Sequence[int]) -> list[TopicPartition]:
    all_partitions = cluster.partitions([name], timeout_ms=0)
    for number in numbers:
        if number >= len(all_partitions):
            raise no_such_partition(name, number, len(all_partitions))
    return [each for each in all_partitions if not numbers or each.partition in numbers]


def show(logs: Sequence[TopicLog], retention: Retention, *, as_json: bool) -> int:
    now_ms = time.time_ns() // 1_000_000
    rows: list[dict[str, object]] = []
    for log in logs:
        if log.directory is not None:
            found = [with_newest_offset(one, now_ms) for one in segments_of(log.directory)]
            segment_fates = fates(found, retention, log.bounds, now_ms)
            rows += [row(log.partition, one, fate, now_ms) for one, fate in zip(found, segment_fates, strict=True)]
    if as_json:
        print_json(rows)
    elif rows:
        table(rows)
    unread = [log for log in logs if log.directory is None]
    for log in unread:
        remark(log.why_not)
    return 1 if unread else 0


def with_newest_offset(one: SegmentFacts, now_ms: int) -> SegmentFacts:
    """Look up the record with a timestamp in the future, which may retain the segment.

    Segments without such a record are not worth the read.
    """
    return one._replace(newest_offset=offset_of_newest(one)) if one.newest > now_ms else one


def row(partition: TopicPartition, one: SegmentFacts, fate: Fate, now_ms: int) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "base_offset": one.base_offset,
        "end_offset": one.end_offset,
        "size": one.size,
        "first_timestamp": one.first,
        "newest_timestamp": one.newest,
        "age_ms": now_ms - one.newest,
        "is_active": one.is_active,
        "until": fate.until,
        "why": fate.why,
    }


def table(rows: Sequence[dict[str, object]]) -> None:
    columns = ["partition>", "segment>", "offsets>", "size>", "first", "newest", "age>", "why it is there~"]
    print_table(columns, [cells(each) for each in rows])
    size = sum(int(str(each["size"])) for each in rows)
    typer.echo(f"{plural(len(rows), 'segment')}, {size_text(size)}")


def cells(each: dict[str, object]) -> tuple[object, ...]:
    base, end, size = int(str(each["base_offset"])), int(str(each["end_offset"])), int(str(each["size"]))
    first, newest, age_ms = (int(str(each[key])) for key in ("first_timestamp", "newest_timestamp", "age_ms"))
    age = age_text(age_ms) if age_ms >= 0 else None
    return each["partition"], base, end - base, size_text(size), time_text(first), time_text(newest), age, each["why"]
