"""Rules for resetting a group's offsets: the eight of Kafka's own tool, as functions of one type.

A rule receives the partitions, the committed offsets and a way to list offsets. It returns an offset for each
partition. An offset outside the log is replaced by the nearest one inside, with a warning.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from odradek.app.cli.partition_arguments import topic_name, whole_number
from odradek.app.cli.start_offsets import offsets_at
from odradek.app.terminal.command_failed import CommandFailed
from odradek.base.units import INT32_MAX, INT64_MAX, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.consumer.offset_lookup import EARLIEST, LATEST

Offsets = dict[TopicPartition, int]
Warn = Callable[[str], None]


class Scope(NamedTuple):
    """Input of a rule: a group's partitions, their committed offsets, and a way to list others."""

    cluster: Cluster
    group: str
    partitions: Sequence[TopicPartition]
    committed: Mapping[TopicPartition, int]
    warn: Warn

    def at(self, when: int) -> Offsets:
        return offsets_at(self.cluster, self.partitions, when)


Rule = Callable[[Scope], Offsets]


def to_earliest(scope: Scope) -> Offsets:
    return scope.at(EARLIEST)


def to_latest(scope: Scope) -> Offsets:
    return scope.at(LATEST)


def to_current(scope: Scope) -> Offsets:
    """Keep committed offsets, and use the end where nothing is committed."""
    ends = scope.at(LATEST) if any(each not in scope.committed for each in scope.partitions) else {}
    return {each: scope.committed[each] if each in scope.committed else ends[each] for each in scope.partitions}


def to_time(when_ms: int) -> Rule:
    """Use the first record at or after the time, or the end if there is none."""

    def rule(scope: Scope) -> Offsets:
        # List the end first: a record appended between the two requests must still be read.
        ends, found = scope.at(LATEST), scope.at(when_ms)
        for each, offset in found.items():
            if offset < 0:
                scope.warn(f"{each} has no record at or after this time: using its end, {ends[each]}")
        return {each: ends[each] if offset < 0 else offset for each, offset in found.items()}

    return rule


def to_offset(offset: int) -> Rule:
    return lambda scope: within_bounds(scope, dict.fromkeys(scope.partitions, offset))


def shift_by(distance: int) -> Rule:
    def rule(scope: Scope) -> Offsets:
        for each in scope.partitions:
            if each not in scope.committed:
                raise CommandFailed(f"cannot shift {each}: group {scope.group} has no committed offset for it")
        return within_bounds(scope, {each: scope.committed[each] + distance for each in scope.partitions})

    return rule


def to_planned(plan: Mapping[TopicPartition, int]) -> Rule:
    return lambda scope: within_bounds(scope, plan)


def within_bounds(scope: Scope, offsets: Mapping[TopicPartition, int]) -> Offsets:
    starts, ends = scope.at(EARLIEST), scope.at(LATEST)
    return {each: clamp(each, offsets[each], starts[each], ends[each], scope.warn) for each in scope.partitions}


def clamp(partition: TopicPartition, offset: int, start: int, end: int, warn: Warn) -> int:
    if offset < start:
        warn(f"new offset {offset} is lower than the earliest offset of {partition}: using {start}")
        return start
    if offset > end:
        warn(f"new offset {offset} is higher than the latest offset of {partition}: using {end}")
        return end
    return offset


# Plans as files: topic,partition,offset, preceded by the group if there are several.


def read_plan(path: Path, groups: Sequence[str]) -> dict[str, Offsets]:
    """Return the offsets of these groups. Raise CommandFailed with the line that is not an offset."""
    plan: dict[str, Offsets] = {group: {} for group in groups}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # Spreadsheets write a byte order mark.
            for number, row in enumerate(csv.reader(file), 1):
                if row:
                    group, partition, offset = plan_line(path, number, row, groups)
                    plan.setdefault(group, {})[partition] = offset
    except (UnicodeDecodeError, csv.Error):
        raise CommandFailed(f"{path} is not valid CSV") from None
    for group in groups:
        if not plan[group]:
            raise CommandFailed(f"{path} has no line for group {group}")
    return {group: plan[group] for group in groups}


def plan_line(path: Path, number: int, row: Sequence[str], groups: Sequence[str]) -> tuple[str, TopicPartition, int]:
    cells = [cell.strip() for cell in row]
    if len(cells) == 3 and len(groups) == 1:
        cells = [groups[0], *cells]
    if len(cells) == 4 and cells[1]:
        partition, offset = whole_number(cells[2], INT32_MAX), whole_number(cells[3], INT64_MAX)
        if partition is not None and offset is not None:
            return cells[0], TopicPartition(topic_name(cells[1]), partition), offset
    shape = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
    raise CommandFailed(f"invalid line {number} of {path}: use {shape}")


def plan_lines(plans: Mapping[str, Mapping[TopicPartition, int]]) -> Iterable[list[object]]:
    """Yield the rows of a file that read_plan() and Kafka's tool can read."""
    for group, plan in plans.items():
        for partition, offset in plan.items():
            row: list[object] = [partition.topic, partition.partition, offset]
            yield row if len(plans) == 1 else [group, *row]
