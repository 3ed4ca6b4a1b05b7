"""Topics and partitions on a command line: `--topic orders` for all, `--topic orders:0,2` for two."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.app.terminal.command_failed import USAGE_ERROR, CommandFailed
from odradek.base.errors import Refused
from odradek.base.units import INT32_MAX, TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import ClientError
from odradek.client.consumer.offset_lookup import LATEST, list_offsets
from odradek.core.kernel.topic_names import checked

PATTERN_CHARACTERS = frozenset("*?+[](){}|^$\\")


def topic_name(text: str) -> TopicName:
    """Return the name of a topic. Raise CommandFailed with the problem, which not every broker explains."""
    try:
        return checked(text)
    except Refused as refused:
        hint = "" if PATTERN_CHARACTERS.isdisjoint(text) else "; use a name, not a pattern"
        raise CommandFailed(f"{refused.detail}{hint}", USAGE_ERROR) from None


def no_such_partition(topic: str, number: int, count: int) -> CommandFailed:
    return CommandFailed(f"partition {number} does not exist: topic {topic} has {count}, numbered from 0")


def parse_topic_option(text: str) -> tuple[TopicName, list[int] | None]:
    """Return the topic and its partitions, or None for all of them."""
    topic, colon, numbers = text.partition(":")
    found = [whole_number(part.strip(), INT32_MAX) for part in numbers.split(",")] if colon else []
    indexes = [number for number in found if number is not None]
    if not topic or len(indexes) < len(found):
        message = f"invalid --topic {text!r}: use --topic orders or --topic orders:0,2"
        raise CommandFailed(message, USAGE_ERROR)
    return topic_name(topic), indexes if colon else None


def whole_number(text: str, highest: int) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        return None
    number = int(text)
    return number if number <= highest else None


def existing_partitions(cluster: Cluster, texts: Iterable[str]) -> list[TopicPartition]:
    """Return the named partitions, ordered by topic and number.

    Raise UnknownTopic for a topic that does not exist, CommandFailed for a partition.
    """
    found: set[TopicPartition] = set()
    for text in texts:
        topic, numbers = parse_topic_option(text)
        all_partitions = cluster.partitions([topic], timeout_ms=0)
        for number in numbers or ():
            if number >= len(all_partitions):
                raise no_such_partition(topic, number, len(all_partitions))
        found |= {each for each in all_partitions if numbers is None or each.partition in numbers}
    return sorted(found)


def named_partitions(cluster: Cluster, texts: Iterable[str]) -> list[TopicPartition]:
    """Return the named partitions, including deleted ones, whose offsets a group may still have."""
    found: set[TopicPartition] = set()
    for text in texts:
        topic, numbers = parse_topic_option(text)
        if numbers is None:
            found |= set(cluster.partitions([topic], timeout_ms=0))
        else:
            found |= {TopicPartition(topic, number) for number in numbers}
    return sorted(found)


def ends_of(
    cluster: Cluster, partitions: Iterable[TopicPartition], failures: dict[TopicPartition, ClientError] | None = None
) -> dict[TopicPartition, int]:
    """Return the end of each partition that has a leader, without waiting for one.

    `failures` receives the partitions whose leader returned an error. Without it, the first error is raised.
    """
    requested = set(partitions)
    if not requested:
        return {}
    cluster.retry(lambda: cluster.refresh(sorted({each.topic for each in requested})))
    led = []
    for each in sorted(requested):
        topic = cluster.metadata.topics.get(each.topic)
        partition = topic.partition(each.partition) if topic is not None else None
        if partition is not None and partition.leader in cluster.metadata.brokers:
            led.append(each)
    return {
        each: listed.offset
        for each, listed in list_offsets(cluster, dict.fromkeys(led, LATEST), failures=failures).items()
    }
