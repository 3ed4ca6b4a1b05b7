"""Topics of an Apache Kafka 4 cluster, from the metadata log __cluster_metadata-0 next to its logs.

The newest snapshot (<end offset>-<epoch>.checkpoint) contains the state below its end offset; later records are in the
log's segments. The files are only read, never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from odradek.app.inspect.dump import Damage, batches, records
from odradek.base.errors import Refused
from odradek.base.units import NO_EPOCH, BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import Uuid
from odradek.core.configs.topic_keys import TOPIC_SYNONYMS
from odradek.log.files.log_file_names import KRAFT_METADATA_TOPIC, LOG
from odradek.record.internal.cluster_metadata import (
    BROKER,
    NO_LEADER_CHANGE,
    TOPIC,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata,
)
from odradek.record.record_batch import Batch

_SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint")


class KnownTopic(NamedTuple):
    """Topic in another broker's metadata, with each partition's leader epoch."""

    id: Uuid
    epochs: dict[int, LeaderEpoch]
    configs: dict[str, str]


class UnreadableMetadata(Exception):
    """Error for an unreadable metadata log; the text says where and why."""


def read_topics(directory: Path, broker_id: BrokerId) -> dict[TopicName, KnownTopic] | None:
    """Return the topics of the metadata log in a broker's log directory, or None if there is no such log.

    Raise UnreadableMetadata.
    """
    folder = directory / f"{KRAFT_METADATA_TOPIC}-0"
    if not folder.is_dir():
        return None
    snapshots = sorted(path for path in folder.iterdir() if _SNAPSHOT.fullmatch(path.name))
    start = int(snapshots[-1].name[:20]) if snapshots else 0
    segments = sorted(folder.glob(f"*{LOG}"))
    if not snapshots and (not segments or int(segments[0].stem)):
        raise UnreadableMetadata(f"{folder} does not start at offset 0 and has no snapshot")
    topics = _Topics()
    snapshot = [_records(snapshots[-1], 0)] if snapshots else []
    for record in chain(*snapshot, *(_records(one, start, may_be_torn=one == segments[-1]) for one in segments)):
        topics.apply(record)
    return topics.known(broker_id)


def _records(path: Path, start: int, *, may_be_torn: bool = False) -> Iterator[object]:
    """Yield the topic-related records of a file from an offset on. Raise UnreadableMetadata."""
    for batch in _batches(path, may_be_torn):
        if batch.is_control or batch.last_offset < start:
            continue
        for record in records(batch):
            if isinstance(record, str):
                raise UnreadableMetadata(f"{path} at offset {batch.base_offset}: {record}")
            if record.offset >= start and record.value is not None:
                try:
                    decoded = decode_metadata(record.value)
                except Refused as refused:
                    raise UnreadableMetadata(f"{path} at offset {record.offset}: {refused.detail}") from None
                if decoded is not None:
                    yield decoded


def _batches(path: Path, may_be_torn: bool) -> Iterator[Batch]:
    for found in batches(path):
        if isinstance(found, Damage):
            if may_be_torn:
                return
            raise UnreadableMetadata(f"{path} at {found.position}: {found.why}")
        if found.batch is None or found.fault is not None:
            raise UnreadableMetadata(
                f"{path} at {found.place.position}: {found.fault or 'a message format older than 2'}"
            )
        yield found.batch


class _Topics:
    """State after the records applied so far."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._epochs: dict[bytes, dict[int, LeaderEpoch]] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}

    def apply(self, record: object) -> None:
        match record:
            case TopicRecord():
                self._names[record.topic_id] = record.name
            case PartitionRecord():
                partitions = self._epochs.setdefault(record.topic_id, {})
                partitions[record.partition_id] = LeaderEpoch(record.leader_epoch)
            case PartitionChangeRecord():
                if record.leader != NO_LEADER_CHANGE:
                    partitions = self._epochs.setdefault(record.topic_id, {})
                    epoch = partitions.get(record.partition_id, NO_EPOCH)
                    partitions[record.partition_id] = LeaderEpoch(epoch + 1)
            case ConfigRecord():
                configs = self._configs.setdefault((record.resource_type, record.resource_name), {})
                configs.pop(record.name, None)
                if record.value is not None:
                    configs[record.name] = record.value
            case RemoveTopicRecord():
                name = self._names.pop(record.topic_id, "")
                self._epochs.pop(record.topic_id, None)
                self._configs.pop((TOPIC, name), None)

    def known(self, broker_id: BrokerId) -> dict[TopicName, KnownTopic]:
        defaults = self._defaults(broker_id)
        return {
            TopicName(name): KnownTopic(
                Uuid(topic_id), self._epochs.get(topic_id, {}), defaults | self._configs.get((TOPIC, name), {})
            )
            for topic_id, name in self._names.items()
        }

    def _defaults(self, broker_id: BrokerId) -> dict[str, str]:
        """Return the dynamic defaults that apply to topics, cluster-wide or of this broker.

        No file contains them.
        """
        brokers = self._configs.get((BROKER, ""), {}) | self._configs.get((BROKER, str(broker_id)), {})
        return {
            name: brokers[synonyms[0]]  # Other synonyms, such as hours, are not dynamic.
            for name, synonyms in TOPIC_SYNONYMS.items()
            if synonyms and synonyms[0] in brokers
        }
