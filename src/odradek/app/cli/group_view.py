"""Group as shown by `odradek group describe`: one structure for JSON, also used for the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import typer

from odradek.app.terminal.output import plural, print_table, printable, time_text
from odradek.base.units import TopicPartition
from odradek.client.admin.group_admin import GroupDescription, MemberDescription
from odradek.client.consumer.group_offsets import Committed, by_topic

Shown = dict[str, Any]


def description(
    group: GroupDescription, committed: Mapping[TopicPartition, Committed], ends: Mapping[TopicPartition, int]
) -> Shown:
    owners = {partition: member for member in group.members for partition in member.assignment or ()}
    partitions = sorted(committed.keys() | owners.keys())
    return {
        "group": group.group,
        "type": group.type,
        "protocol": group.protocol,
        "state": group.state,
        "assignor": group.assignor or None,
        "coordinator": {"id": group.coordinator.id, "address": str(group.coordinator)},
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "rebalances": [
            {"time": time_text(each.at_ms), "generation": each.generation, "reason": each.reason}
            for each in group.rebalances
        ],
        "members": [member_view(member) for member in group.members],
        "offsets": [offset_view(each, committed.get(each), ends.get(each), owners.get(each)) for each in partitions],
    }


def member_view(member: MemberDescription) -> Shown:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "epoch": member.epoch,
        "topics": None if member.topics is None else list(member.topics),
        "pattern": member.pattern,
        "assignment": numbers(member.assignment),
        "target": numbers(member.target),
    }


def numbers(partitions: Iterable[TopicPartition] | None) -> dict[str, list[int]] | None:
    if partitions is None:
        return None
    return {topic: [each.partition for each in those] for topic, those in by_topic(partitions).items()}


def offset_view(
    partition: TopicPartition, committed: Committed | None, end: int | None, owner: MemberDescription | None
) -> Shown:
    offset = None if committed is None else committed.offset
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": offset,
        "end": end,
        "lag": None if offset is None or end is None else end - offset,  # Negative if the topic was recreated.
        "metadata": None if committed is None else committed.metadata or None,
        "member": owner and owner.member_id,
        "host": owner and owner.host,
        "client": owner and owner.client_id,
    }


def show(group: Shown) -> None:
    typer.echo(headline(group))
    for last in group["rebalances"][-1:]:
        typer.echo(
            f"  last rebalance {last['time']}, after generation {last['generation']}: {printable(last['reason'])}"
        )
    offsets, members = group["offsets"], group["members"]
    if offsets:
        columns = ["topic", "partition", "committed", "end", "lag", "member", "host", "client"]
        rows = [[cell(each[column]) for column in columns] for each in offsets]
        print_table([f"{name}>" if name in NUMBERS else name for name in columns], rows)
    if members:
        typer.echo()
        shown = [name for name in MEMBER_COLUMNS if name in ALWAYS or any(each[name] is not None for each in members)]
        rows = [[cell(each[name]) for name in shown] for each in members]
        print_table([f"{name}>" if name in NUMBERS else name for name in shown], rows)
    typer.echo()


NUMBERS = frozenset({"partition", "committed", "end", "lag", "epoch"})
MEMBER_COLUMNS = ("member", "instance", "client", "host", "epoch", "assignment", "target", "pattern")
ALWAYS = frozenset({"member", "client", "host", "assignment"})


def cell(value: object) -> object:
    """Format an assignment as `orders:0,1 payments:2`, and foreign names on one line."""
    if not isinstance(value, dict):
        return printable(value) if isinstance(value, str) else value
    return " ".join(f"{topic}:{','.join(map(str, those))}" for topic, those in value.items()) or None


def headline(group: Shown) -> str:
    """Format `g1  Stable  classic, range  2 members  coordinator 127.0.0.1:9092 (1)`."""
    kind = ", ".join(filter(None, [group["type"], group["protocol"] if is_uncommon(group) else "", group["assignor"]]))
    coordinator = group["coordinator"]
    parts = [
        printable(group["group"]),
        group["state"],
        kind,
        plural(len(group["members"]), "member"),
        epochs(group),
        f"coordinator {coordinator['address']} ({coordinator['id']})",
    ]
    return "  ".join(filter(None, parts))


def is_uncommon(group: Shown) -> bool:
    return group["protocol"] not in ("", "consumer")


def epochs(group: Shown) -> str:
    if group["epoch"] is None:
        return ""
    is_assigned = group["epoch"] == group["assignment_epoch"]
    return f"epoch {group['epoch']}" + ("" if is_assigned else f" (assigned: {group['assignment_epoch']})")
