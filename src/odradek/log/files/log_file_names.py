"""Kafka's file names in a data directory: formatting and parsing.

00000000000000000042.log is the segment whose first offset is at least 42.  Its other files are .index, .timeindex,
.txnindex, and .snapshot (of the producers as of offset 42).  A file to be deleted has the suffix .deleted.  Compaction
uses .cleaned, then .swap.  Only Odradek uses .log.aside, for data cut off a log; Kafka ignores it because of its
suffix.

A partition is the directory topic-7.  A deleted partition is topic-7.<32 hex digits>-delete until its files are
deleted.  A partition of a topic that the cluster does not know is set aside as topic-7.<32 hex digits>-stray.  During a
move to another data directory the copy there is topic-7.<32 hex digits>-future.
"""

from __future__ import annotations

import re
from hashlib import md5

from odradek.base.units import INT32_MAX, INT64_MAX, Offset, TopicName, TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"
# Apache Kafka fails at startup on a directory in log.dirs whose name it cannot parse, but ignores files with unknown
# suffixes, here and in a partition's directory.
ASIDE = ".aside"  # A second one of the same name is .aside.2.

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
SEGMENTS = "odradek-segments-checkpoint"  # Used only by Odradek, as are the next four.
UNCLEANABLE = "odradek-uncleanable-checkpoint"
DAMAGES = "odradek-damage-checkpoint"
IDENTITY = "odradek-identity"  # Owner of the directory, in addition to meta.properties.
BOOT = "odradek-boot"  # Boot of the machine during the last start.
LOG_DIRS = "odradek-log-dirs"  # Used only by Odradek: all data directories of the broker, one per line.

_OFFSET_DIGITS = 20
_UNIQUE_DIGITS = 32
_NAME_CHARACTERS_MAX = 255
_SEGMENT_FILE = re.compile(
    r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap|\.aside(?:\.[1-9][0-9]*)?)?"
)
_PARTITION = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]{0,9})")
_MARKED = re.compile(r".+\.[0-9a-f]{32}-(delete|future|stray)")
DELETE, FUTURE, STRAY = "delete", "future", "stray"  # Marks of directories.
KRAFT_METADATA_TOPIC = "__cluster_metadata"


def segment_stem(base_offset: Offset) -> str:
    assert base_offset >= 0, "parse_segment_file recognizes no negative offset"
    return f"{base_offset:0{_OFFSET_DIGITS}d}"


def parse_segment_file(name: str) -> tuple[Offset, str, str] | None:
    """Return (offset, suffix, second suffix or "") of a segment's file; None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) > INT64_MAX:
        return None
    return Offset(int(match[1])), match[2], match[3] or ""


def parse_partition(directory_name: str) -> TopicPartition | None:
    """Return the partition of a directory; None for a marked one, KRaft's metadata log, or another name."""
    match = _PARTITION.fullmatch(directory_name)
    if match is None or match[1] == KRAFT_METADATA_TOPIC or int(match[2]) > INT32_MAX:
        return None
    return TopicPartition(TopicName(match[1]), int(match[2]))


def mark(directory_name: str) -> str | None:
    """Return "delete", "future" or "stray" for a directory with that mark, else None."""
    match = _MARKED.fullmatch(directory_name)
    return match[1] if match else None


def partition_marked(directory_name: str, mark: str) -> TopicPartition | None:
    """Return the partition whose directory has this mark; None for any other name."""
    match = _MARKED.fullmatch(directory_name)
    if match is None or match[1] != mark:
        return None
    return parse_partition(directory_name[: -len(f".-{mark}") - _UNIQUE_DIGITS])


def marked_partition(partition: TopicPartition, mark: str, unique: str) -> str:
    """Return the marked name of a partition's directory; a long topic is cut to fit 255 characters.

    `unique` distinguishes two logs of the same name; the 32 digits are derived from it.
    """
    assert mark in (DELETE, FUTURE, STRAY), "a start knows no other mark"
    digits = md5(unique.encode(), usedforsecurity=False).hexdigest()
    suffix = f"-{partition.partition}.{digits}-{mark}"
    return partition.topic[: _NAME_CHARACTERS_MAX - len(suffix)] + suffix


def has_future_name(partition: TopicPartition) -> bool:
    """Return whether the topic's name is short enough for the directory name of a future copy."""
    return len(f"{partition}.{'0' * _UNIQUE_DIGITS}-{FUTURE}") <= _NAME_CHARACTERS_MAX
