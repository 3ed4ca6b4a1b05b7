"""odradek group reset-offsets: show the new offsets of a group, and commit them with --execute."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from odradek.app.cli import offset_rules as rules
from odradek.app.cli.cli_options import (
    DEFAULT_BOOTSTRAP_SERVER,
    TOPIC_PARTITIONS,
    AsJson,
    BootstrapServer,
    CommandConfig,
    connected,
    not_empty,
)
from odradek.app.cli.offset_rules import Offsets, Rule, Scope
from odradek.app.cli.partition_arguments import existing_partitions
from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed
from odradek.app.terminal.output import plural, print_json, print_table, printable, remark
from odradek.app.terminal.time_arguments import duration_ms, moment_ms
from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.client.admin.group_admin import describe_groups
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import ClientError, ErrorResponse, response_error
from odradek.client.consumer.group_offsets import Committed, commit_offsets, fetch_offsets

COMMITTED_BY_OTHERS = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
)


def reset_offsets(
    *,
    groups: Annotated[list[str], typer.Argument(metavar="GROUP", show_default=False, callback=not_empty)],
    topic: Annotated[list[str] | None, TOPIC_PARTITIONS] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", metavar="", help="All partitions with a committed offset.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", metavar="", help="Reset to the start of the log.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", metavar="", help="Reset to the end of the log.")] = False,
    to_current: Annotated[
        bool,
        typer.Option("--to-current", metavar="", help="Keep the committed offset; reset to the end if there is none."),
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, metavar="N")] = None,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="N", help="Move the committed offset forward by N, or back with -N."),
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            help="Reset to the first record at or after 2026-11-21T14:00 (local; append Z for UTC).",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration",
            metavar="DURATION",
            help="Reset to the first record within the last 90s, 10m, 2h, 1d or P1DT2H.",
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="CSV", help="Reset to the offsets in lines of topic,partition,offset."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", metavar="", help="Set the offsets; without it, only show them.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Only show the new offsets (the default).")
    ] = False,
    export: Annotated[
        bool, typer.Option("--export", metavar="", help="Print CSV for --from-file and for Kafka's own tool.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Reset the committed offsets of groups without members.

    Without --execute, only shows the new offsets.

    Examples:

    odradek group reset-offsets billing --topic orders --to-earliest

    odradek group reset-offsets billing --all-topics --by-duration 2h --execute
    """
    groups = list(dict.fromkeys(groups))
    refuse_contradictions(execute and dry_run, export and as_json, bool(topic), all_topics, from_file)
    given = {
        "--to-earliest": rules.to_earliest if to_earliest else None,
        "--to-latest": rules.to_latest if to_latest else None,
        "--to-current": rules.to_current if to_current else None,
        "--to-offset": None if to_offset is None else rules.to_offset(to_offset),
        "--shift-by": None if shift_by is None else rules.shift_by(shift_by),
        "--to-datetime": None if to_datetime is None else since(to_datetime),
        "--by-duration": None if by_duration is None else ago(by_duration),
        "--from-file": None if from_file is None else rules.to_planned({}),
    }
    rule = only_rule(given)
    plans = None if from_file is None else rules.read_plan(from_file, groups)
    with connected(bootstrap_server, command_config) as cluster:
        refuse_active(cluster, groups)
        scopes = scopes_of(cluster, groups, topic or (), plans)
        new_offsets = {
            scope.group: (rule if plans is None else rules.to_planned(plans[scope.group]))(scope) for scope in scopes
        }
        if execute:
            write_all(cluster, new_offsets)
    report({scope.group: scope.committed for scope in scopes}, new_offsets, as_csv=export, as_json=as_json)
    remark(reset_summary(new_offsets) if execute else "no offsets changed: run again with --execute to set them")


def reset_summary(new_offsets: Mapping[str, Offsets]) -> str:
    groups = (
        f"group {printable(next(iter(new_offsets)))}" if len(new_offsets) == 1 else plural(len(new_offsets), "group")
    )
    count = sum(map(len, new_offsets.values()))
    return f"reset the offset{'' if count == 1 else 's'} of {plural(count, 'partition')} of {groups}"


def refuse_contradictions(
    is_both: bool, is_two_formats: bool, has_topics: bool, all_topics: bool, from_file: Path | None
) -> None:
    if is_both:
        raise CommandFailed("--execute and --dry-run exclude each other: omit one of them", USAGE_ERROR)
    if is_two_formats:
        raise CommandFailed("--export prints CSV and --json prints JSON: omit one of them", USAGE_ERROR)
    if from_file is not None and (has_topics or all_topics):
        raise CommandFailed("--from-file names the partitions: omit --topic and --all-topics", USAGE_ERROR)
    if from_file is None and has_topics == all_topics:
        raise CommandFailed("choose either --topic TOPIC[:N,...] or --all-topics", USAGE_ERROR)


def only_rule(given: Mapping[str, Rule | None]) -> Rule:
    named = [rule for rule in given.values() if rule is not None]
    if len(named) == 1:
        return named[0]
    raise CommandFailed(f"choose one of {', '.join(given)}", USAGE_ERROR)


def since(text: str) -> Rule:
    try:
        return rules.to_time(moment_ms(text))
    except ValueError:
        message = f"invalid --to-datetime {text!r}: use a time like 2026-11-21T14:00 or 2026-11-21T14:00Z"
        raise CommandFailed(message, USAGE_ERROR) from None


def ago(text: str) -> Rule:
    try:
        return rules.to_time(max(0, time.time_ns() // 1_000_000 - duration_ms(text)))
    except ValueError:
        message = f"invalid --by-duration {text!r}: use 90s, 10m, 2h, 1d, or P1DT2H30M"
        raise CommandFailed(message, USAGE_ERROR) from None


def refuse_active(cluster: Cluster, groups: Sequence[str]) -> None:
    """Raise CommandFailed if a group has members; a missing group may get offsets, as in Kafka's tool."""
    for group, outcome in describe_groups(cluster, groups).items():
        if isinstance(outcome, ClientError):
            if not (isinstance(outcome, ErrorResponse) and outcome.code == ErrorCode.GROUP_ID_NOT_FOUND):
                raise outcome
        elif outcome.is_active:
            has = f"{plural(len(outcome.members), 'member')} (state {outcome.state})"
            raise CommandFailed(f"group {group} must be inactive, but has {has}: stop its consumers first")


def scopes_of(
    cluster: Cluster, groups: Sequence[str], topics: Sequence[str], plans: Mapping[str, Offsets] | None
) -> list[Scope]:
    named = existing_partitions(cluster, topics)
    partitions_by_group: dict[str, list[TopicPartition] | None] = {
        group: (named or None) if plans is None else sorted(plans[group]) for group in groups
    }
    for partitions in partitions_by_group.values() if plans is not None else ():
        refuse_missing(cluster, partitions or ())
    committed = fetch_offsets(cluster, partitions_by_group)
    scopes = []
    for group in groups:
        known = {each: at.offset for each, at in committed[group].items()}
        partitions = partitions_by_group[group] or sorted(known)
        if not partitions:
            raise CommandFailed(f"group {group} has no committed offsets: name topics with --topic")
        scopes.append(Scope(cluster, group, partitions, known, remark))
    return scopes


def refuse_missing(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    existing = set(cluster.partitions(sorted({each.topic for each in partitions}), timeout_ms=0))
    for each in partitions:
        if each not in existing:
            raise response_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(each))


def write_all(cluster: Cluster, new_offsets: Mapping[str, Offsets]) -> None:
    """Commit group by group; after an error, print the groups already done."""
    done: list[str] = []
    for group, offsets in new_offsets.items():
        try:
            write(cluster, group, offsets)
        except (ClientError, CommandFailed):
            if done:
                remark(f"completed before the failure: {', '.join(done)}")
            raise
        done.append(group)


def write(cluster: Cluster, group: str, offsets: Offsets) -> None:
    try:
        commit_offsets(cluster, group, {each: Committed(offset) for each, offset in offsets.items()})
    except ErrorResponse as error:
        if error.code in COMMITTED_BY_OTHERS:
            raise CommandFailed(f"members have joined group {group}: stop its consumers first") from None
        raise


def report(
    before: Mapping[str, Mapping[TopicPartition, int]],
    new_offsets: Mapping[str, Offsets],
    *,
    as_csv: bool,
    as_json: bool,
) -> None:
    if as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows(rules.plan_lines(new_offsets))
        return
    rows = [
        {
            "group": group,
            "topic": each.topic,
            "partition": each.partition,
            "committed": before[group].get(each),
            "new": offset,
        }
        for group, offsets in new_offsets.items()
        for each, offset in offsets.items()
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(["group", "topic", "partition>", "committed>", "new>"], [tuple(row.values()) for row in rows])
