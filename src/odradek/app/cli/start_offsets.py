"""Start positions of reading: the value of `--from`, as a rule that returns an offset per partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed
from odradek.app.terminal.time_arguments import moment_ms
from odradek.base.units import TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import ClientError
from odradek.client.consumer.offset_lookup import EARLIEST, LATEST, list_offsets

Positions = dict[TopicPartition, int]
Start = Callable[[Cluster, Sequence[TopicPartition]], Positions]


def start_rule(text: str) -> Start:
    """Return the rule for beginning, end, an offset, -N, or a time. Raise CommandFailed for other values."""
    word = text.strip().lower()
    if word in ("beginning", "earliest"):
        return lambda cluster, partitions: offsets_at(cluster, partitions, EARLIEST)
    if word in ("end", "latest"):
        return lambda cluster, partitions: offsets_at(cluster, partitions, LATEST)
    try:
        offset = int(word)
    except ValueError:
        return from_time(milliseconds(text))
    return from_the_end(-offset) if offset < 0 else from_offset(offset)


def offsets_at(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    when: int,
    failures: dict[TopicPartition, ClientError] | None = None,
) -> Positions:
    """Return one offset of each partition; `failures` is as in list_offsets."""
    listed = list_offsets(cluster, dict.fromkeys(partitions, when), failures=failures)
    return {at: found.offset for at, found in listed.items()}


def from_time(when_ms: int) -> Start:
    def positions(cluster: Cluster, partitions: Sequence[TopicPartition]) -> Positions:
        # A time after the last record has no offset: later records will be appended at the end.
        ends = offsets_at(cluster, partitions, LATEST)
        found = offsets_at(cluster, partitions, when_ms)
        return {at: ends[at] if found[at] < 0 else found[at] for at in partitions}

    return positions


def from_the_end(count: int) -> Start:
    def positions(cluster: Cluster, partitions: Sequence[TopicPartition]) -> Positions:
        ends, starts = offsets_at(cluster, partitions, LATEST), offsets_at(cluster, partitions, EARLIEST)
        return {at: max(starts[at], ends[at] - count) for at in partitions}

    return positions


def from_offset(offset: int) -> Start:
    def positions(cluster: Cluster, partitions: Sequence[TopicPartition]) -> Positions:
        ends, starts = offsets_at(cluster, partitions, LATEST), offsets_at(cluster, partitions, EARLIEST)
        for at in partitions:
            if not starts[at] <= offset <= ends[at]:
                raise CommandFailed(
                    f"offset {offset} is out of range for {at}, which starts at {starts[at]} and ends at {ends[at]}"
                )
        return dict.fromkeys(partitions, offset)

    return positions


def milliseconds(text: str) -> int:
    try:
        return moment_ms(text)
    except ValueError:
        message = f"invalid --from {text!r}: use beginning, end, an offset, -N, or a time like 2026-11-21T14:00"
        raise CommandFailed(message, USAGE_ERROR) from None
