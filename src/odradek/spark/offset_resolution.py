"""Resolution of the user's topics and bounds to partitions and offsets, using the brokers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek.base.units import TopicPartition
from odradek.base.uuids import Uuid
from odradek.spark.checkpoint_offsets import EARLIEST, LATEST
from odradek.spark.cluster_interface import Metadata, NoSuchTopic
from odradek.spark.source_options import (
    Assign,
    AtOffsets,
    AtTime,
    AtTimes,
    BadOption,
    Bound,
    Everywhere,
    Selection,
    Subscribe,
    SubscribePattern,
)


@dataclass(frozen=True, slots=True)
class MatchedPartitions:
    """Partitions that currently match a selection, and the current ids of their topics."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, Uuid]


def find_partitions(metadata: Metadata, selection: Selection, *, missing_ok: bool = False) -> MatchedPartitions:
    """Find the partitions. Raise NoSuchTopic for a named topic or partition that does not exist."""
    names = _names(metadata, selection)
    topics = metadata.topics(names) if names else {}
    missing = [name for name in names if name not in topics]
    if missing and not missing_ok and not isinstance(selection, SubscribePattern):
        raise NoSuchTopic(f"Topic {', '.join(map(repr, missing))} does not exist on these brokers.")
    existing = {TopicPartition(topic.name, number) for topic in topics.values() for number in topic.partitions}
    partitions = existing
    if isinstance(selection, Assign):
        partitions = existing & set(selection.partitions)
        if (missing_partitions := sorted(set(selection.partitions) - existing)) and not missing_ok:
            raise NoSuchTopic(f"Partition {', '.join(map(str, missing_partitions))} does not exist on these brokers.")
    return MatchedPartitions(tuple(sorted(partitions)), {name: topic.id for name, topic in topics.items()})


def missing_topics(selection: Selection, found: MatchedPartitions) -> list[str]:
    """Return the named topics that do not exist; a pattern names none."""
    names = selection.topics if isinstance(selection, Subscribe) else ()
    return [name for name in names if name not in found.topic_ids]


def _names(metadata: Metadata, selection: Selection) -> list[str]:
    match selection:
        case Assign(partitions):
            return sorted({at.topic for at in partitions})
        case Subscribe(topics):
            return list(topics)
        case SubscribePattern(pattern):
            # Java's Pattern.matches in Spark's own source also matches the whole name.
            return sorted(name for name in metadata.topic_names() if re.fullmatch(pattern, name))


def is_selected(at: TopicPartition, selection: Selection) -> bool:
    match selection:
        case Assign(partitions):
            return at in partitions
        case Subscribe(topics):
            return at.topic in topics
        case SubscribePattern(pattern):
            return re.fullmatch(pattern, at.topic) is not None


def offsets_at(
    metadata: Metadata, partitions: Iterable[TopicPartition], bound: Bound, option: str, missing_is_latest: bool
) -> dict[TopicPartition, int]:
    """Return one offset for each partition. Raise BadOption.

    `option` is "starting" or "ending", for errors.
    """
    requested = _requested_offsets(tuple(partitions), bound, option)
    lookups = {at: value for at, value in requested.items() if _needs_lookup(value, bound)}
    found = metadata.offsets(lookups) if lookups else {}
    offsets = {at: found.get(at, value) for at, value in requested.items()}
    if isinstance(bound, AtTime | AtTimes):
        return _after_the_last(metadata, requested, offsets, option, missing_is_latest)
    return offsets


def _needs_lookup(value: int, bound: Bound) -> bool:
    return isinstance(bound, AtTime | AtTimes) or value in (EARLIEST, LATEST)


def _requested_offsets(partitions: tuple[TopicPartition, ...], bound: Bound, option: str) -> dict[TopicPartition, int]:
    match bound:
        case Everywhere(offset):
            return dict.fromkeys(partitions, offset)
        case AtTime(timestamp):
            return dict.fromkeys(partitions, timestamp)
        case AtOffsets(offsets):
            return _for_each(partitions, offsets, f"{option}Offsets")
        case AtTimes(timestamps):
            return _for_each(partitions, timestamps, f"{option}OffsetsByTimestamp")


def _for_each(
    partitions: tuple[TopicPartition, ...], values: Mapping[TopicPartition, int], option: str
) -> dict[TopicPartition, int]:
    if missing := sorted(set(partitions) - set(values)):
        raise BadOption(
            f"Option {option} must contain every partition that is read; {_format_partitions(missing)} is missing."
        )
    if unknown := sorted(set(values) - set(partitions)):
        raise BadOption(f"Option {option} contains {_format_partitions(unknown)}, which is not read.")
    return {at: values[at] for at in partitions}


def _format_partitions(partitions: list[TopicPartition]) -> str:
    return ", ".join(map(str, partitions[:5])) + (" and others" if len(partitions) > 5 else "")


def _after_the_last(
    metadata: Metadata,
    requested: Mapping[TopicPartition, int],
    offsets: dict[TopicPartition, int],
    option: str,
    missing_is_latest: bool,
) -> dict[TopicPartition, int]:
    """Replace by the end offset where no record is as late as the requested time."""
    beyond = {at: LATEST for at, offset in offsets.items() if offset == LATEST}
    if not beyond:
        return offsets
    if option == "starting" and not missing_is_latest:
        at = min(beyond)
        raise BadOption(
            f"Partition {at} has no record at or after time {requested[at]}; set startingOffsetsByTimestampStrategy to"
            f" latest to start at its end."
        )
    return offsets | metadata.offsets(beyond)
