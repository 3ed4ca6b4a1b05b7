"""Offsets in the format of Spark's checkpoints: {"topic":{"0":23}}, with 23 the next offset to read.

Spark compares the offsets of a Python source as JSON text: if only the order of the keys differs, it starts a new
batch, again and again. This module therefore always sorts topics by name and partitions by number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.base.units import INT32_MAX, INT64_MAX, TopicName, TopicPartition

EARLIEST = -2
LATEST = -1

Offsets = Mapping[TopicPartition, int]
OffsetJson = dict[str, dict[str, int]]


class OffsetRange(NamedTuple):
    """Range of one partition for one task: start <= offset < end."""

    topic: TopicName
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class BadOffsets(ValueError):
    """Error for text that is not offset JSON; the message is one sentence for its author."""


def to_json(offsets: Offsets) -> OffsetJson:
    """Return the canonical form; its key order is the order of the dicts, which json.dumps keeps."""
    result: OffsetJson = {}
    for topic, partition in sorted(offsets):
        result.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return result


def to_text(offsets: Offsets) -> str:
    return json.dumps(to_json(offsets), separators=(",", ":"))


def from_json(tree: object, lowest: int = 0) -> dict[TopicPartition, int]:
    """Parse offsets (or times) by partition. Raise BadOffsets.

    `lowest` is EARLIEST where -1 and -2 have a meaning.
    """
    return {
        _partition(topic, partition): _number(topic, partition, value, lowest)
        for topic, partitions in _object(tree, "the value").items()
        for partition, value in _object(partitions, f"topic {topic!r}").items()
    }


def from_text(text: str, lowest: int = 0) -> dict[TopicPartition, int]:
    return from_json(_parse(text), lowest)


def assignment_from_text(text: str) -> list[TopicPartition]:
    """Parse the option assign: {"topicA":[0,1],"topicB":[2,4]}. Raise BadOffsets."""
    found: list[TopicPartition] = []
    for topic, partitions in _object(_parse(text), "the value").items():
        if not isinstance(partitions, list):
            raise BadOffsets(
                f"topic {topic!r} requires a list of partition numbers, for example {{{json.dumps(topic)}:[0,1]}}"
            )
        found += [_partition(topic, str(partition)) for partition in partitions]
    if not found:
        raise BadOffsets('it contains no partition; use the form {"topic":[0,1]}')
    return sorted(set(found))


def total(ranges: Iterable[OffsetRange]) -> int:
    return sum(span.size for span in ranges)


def _parse(text: str) -> object:
    try:
        parsed: object = json.loads(text)
    except ValueError as error:
        raise BadOffsets(f"{text!r} is not JSON ({error})") from None
    return parsed


def _object(tree: object, where: str) -> dict[str, object]:
    if not isinstance(tree, dict):
        raise BadOffsets(f'{where} must be an object such as {{"topic":{{"0":23}}}}, not {json.dumps(tree)}')
    return tree


def _partition(topic: str, partition: str) -> TopicPartition:
    if not partition.isdecimal() or int(partition) > INT32_MAX:
        raise BadOffsets(f"invalid partition number {partition!r} of topic {topic!r}")
    return TopicPartition(TopicName(topic), int(partition))


def _number(topic: str, partition: str, value: object, lowest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= INT64_MAX:
        raise BadOffsets(f"invalid offset or timestamp {json.dumps(value)} of partition {partition} of topic {topic!r}")
    return value
