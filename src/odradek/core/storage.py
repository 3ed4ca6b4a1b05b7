"""Every data directory of the broker: which one has a log, which one gets a new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from odradek.base.units import Offset, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.configs.topic import TopicConfigs
from odradek.log.config import LogConfig
from odradek.log.directory import Checkpoint, LogDirectory
from odradek.log.log import Log
from odradek.log.reaper import Reap


def log_config(configs: TopicConfigs) -> LogConfig:
    """What of a topic's configuration its logs go by."""
    return LogConfig(
        segment_bytes=configs.segment_bytes,
        segment_ms=configs.segment_ms,
        segment_jitter_ms=configs.segment_jitter_ms,
        segment_index_bytes=configs.segment_index_bytes,
        index_interval_bytes=configs.index_interval_bytes,
        preallocate=configs.preallocate,
        retention_ms=configs.retention_ms,
        retention_bytes=configs.retention_bytes,
        cleanup_delete="delete" in configs.cleanup_policy,
        cleanup_compact="compact" in configs.cleanup_policy,
        file_delete_delay_ms=configs.file_delete_delay_ms,
        max_message_bytes=configs.max_message_bytes,
        log_append_time=configs.is_log_append_time,
        flush_messages=configs.flush.messages,
        flush_ms=configs.flush.ms,
    )


class Storage:
    """All log.dirs, open and locked.  Methods may raise DiskFailed."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        assert directories
        self._directories = directories

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._directories)

    def open(self, name: TopicPartition, topic_id: Uuid, configs: TopicConfigs, now: TimestampMs) -> Log | None:
        """The log of a partition that this broker holds, made if there is none; None if it can't be opened.

        A log of an earlier topic of the same name is deleted: it was missed when that topic was.
        """
        for directory in self._directories:
            if name in directory.offline:
                return None
            log = directory.logs.get(name)
            if log is None:
                continue
            if log.topic_id is None and topic_id != ZERO_UUID:
                directory.assign_topic_id(name, topic_id)
            if log.topic_id in (None, topic_id):
                return log
            directory.delete(name, now)
        directory = next((one for one in self._directories if one.is_made(name)), None) or self._emptiest()
        return directory.create(name, _known(topic_id), log_config(configs), now)

    def make(self, name: TopicPartition, topic_id: Uuid, configs: TopicConfigs, now: TimestampMs) -> None:
        """The files of a new partition, before open() asks for its log; in any thread."""
        if not any(name in directory.logs or name in directory.offline for directory in self._directories):
            self._emptiest().make(name, _known(topic_id), log_config(configs), now)

    def delete(self, name: TopicPartition, now: TimestampMs) -> None:
        for directory in self._directories:
            if name in directory.logs:
                directory.delete(name, now)
            directory.offline.pop(name, None)

    def topics(self) -> dict[TopicName, tuple[int, Uuid | None]]:
        """What lies in the directories: how many partitions each topic has, and its id."""
        logs = {name: log for directory in self._directories for name, log in directory.logs.items()}
        counts = Counter(name.topic for name in logs)
        ids = {name.topic: log.topic_id for name, log in logs.items() if log.topic_id is not None}
        return {topic: (count, ids.get(topic)) for topic, count in counts.items()}

    def checkpoints(self, high_watermarks: Mapping[TopicPartition, Offset]) -> Iterable[Checkpoint]:
        found = (directory.begin_checkpoint(high_watermarks) for directory in self._directories)
        return [checkpoint for checkpoint in found if checkpoint is not None]

    def reaps(self, now: TimestampMs) -> Iterable[Reap]:
        found = (directory.begin_reap(now) for directory in self._directories)
        return [reap for reap in found if reap is not None]

    def close(self, high_watermarks: Mapping[TopicPartition, Offset], now: TimestampMs) -> list[str]:
        return [text for directory in self._directories for text in directory.close(now, high_watermarks)]

    def _emptiest(self) -> LogDirectory:
        return min(self._directories, key=lambda directory: directory.count)


def _known(topic_id: Uuid) -> Uuid | None:
    return None if topic_id == ZERO_UUID else topic_id
