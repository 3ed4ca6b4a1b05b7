"""All data directories of the broker: find the directory of a log, and choose one for a new log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, LeaderEpoch, Offset, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.configs.topic_configs import TopicConfigs
from odradek.log.directory.checkpointing import Checkpoint
from odradek.log.directory.damage_register import DamageRegisterWrite
from odradek.log.directory.directory import LogDirectory
from odradek.log.files.log_config import LogConfig
from odradek.log.files.probe import Probe
from odradek.log.log.log import Log
from odradek.log.removal.reaper import DueRemovals

_LOG = logging.getLogger(__name__)

STRAYS_NAMED_MAX = 10


def log_config(configs: TopicConfigs) -> LogConfig:
    """Return the part of a topic's configuration that its logs use."""
    return LogConfig(
        segment_bytes=configs.segment_bytes,
        segment_ms=configs.segment_ms,
        segment_jitter_ms=configs.segment_jitter_ms,
        segment_index_bytes=configs.segment_index_bytes,
        index_interval_bytes=configs.index_interval_bytes,
        preallocate=configs.preallocate,
        retention_ms=configs.retention_ms,
        retention_bytes=configs.retention_bytes,
        cleanup_delete=configs.is_valid and "delete" in configs.cleanup_policy,
        cleanup_compact=configs.is_valid and "compact" in configs.cleanup_policy,
        min_compaction_lag_ms=configs.min_compaction_lag_ms,
        max_compaction_lag_ms=configs.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=configs.min_cleanable_dirty_ratio,
        delete_retention_ms=configs.delete_retention_ms,
        file_delete_delay_ms=configs.file_delete_delay_ms,
        max_message_bytes=configs.max_message_bytes,
        max_decompressed_message_bytes=configs.max_decompressed_message_bytes,
        log_append_time=configs.is_log_append_time,
        flush_messages=configs.flush.messages,
        flush_ms=configs.flush.ms,
    )


class NoDirectory(Exception):
    """Failure of all data directories; the text is one sentence for the operator."""


class FoundTopic(NamedTuple):
    """Topic as found in its logs: its id if known, and the latest leader epoch of each partition."""

    id: Uuid | None
    epochs: Mapping[int, LeaderEpoch]  # NO_EPOCH for a log without one, or that could not be opened.


class Storage:
    """All log.dirs, open and locked, except the failed ones.  Methods may raise DiskFailed."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        assert directories
        self._directories = directories
        self._adopted: set[TopicName] = set()
        self.missed: list[TopicPartition] = []  # Logs missing at the start, while not all directories are open.

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._directories)

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.failure is None]

    @property
    def is_whole(self) -> bool:
        """Return whether no directory is offline."""
        return len(self.online) == len(self._directories)

    def check_any_online(self) -> None:
        """Raise NoDirectory if all directories are offline: no read or write works before the next start."""
        if not self.online:
            reasons = "; ".join(f"{one.path}: {one.failure}" for one in self._directories)
            raise NoDirectory(f"All log directories (log.dirs) are offline: {reasons}.")

    def open(
        self, name: TopicPartition, topic_id: Uuid, configs: TopicConfigs, now: TimestampMs, *, is_new: bool = True
    ) -> Log | None:
        """Return the log of a partition of this broker, created if missing; None if it cannot be opened.

        A log of another topic of the same name is set aside: the broker missed the deletion of that topic.  A missing
        log that is not new may be in a failed directory, so it is not created elsewhere.  Raises
        Refused(KAFKA_STORAGE_ERROR) if no directory is left; DiskFailed, with a full disk to be tried again.
        """
        if self._is_offline(name):
            for directory in self.online:
                directory.retry_open(name, log_config(configs), now)
            if self._is_offline(name):
                return None
        holder = self._holder(name, topic_id, now)
        if holder is not None:
            log = holder.logs[name]
            if log.topic_id is None and topic_id != ZERO_UUID:
                holder.assign_topic_id(name, topic_id)
            return log
        if not is_new and not self.is_whole:
            self.missed.append(name)
            return None
        directory = next((one for one in self.online if one.is_made(name)), None) or self._emptiest()
        return directory.create(name, _known(topic_id), log_config(configs), now)

    def high_watermark(self, name: TopicPartition, log: Log) -> Offset:
        """Return the high watermark of the last checkpoint, within the bounds of the log."""
        for directory in self._directories:
            if directory.logs.get(name) is log:
                known = directory.checkpoints.high_watermarks.get(name, log.start_offset)
                return min(max(known, log.start_offset), log.end_offset)
        return log.start_offset

    def _holder(self, name: TopicPartition, topic_id: Uuid, now: TimestampMs) -> LogDirectory | None:
        """Return the directory of the partition's log, and set aside logs of that name in other directories.

        A stop during a move can leave a log in two directories (core/disks/log_dir_moves.py): the longer one contains
        the other.
        """
        found = [directory for directory in self._directories if name in directory.logs]
        holders = self._directories_with_log(name, topic_id)
        holder = max(holders, key=lambda directory: directory.logs[name].end_offset, default=None)
        for directory in found:
            if directory is not holder:
                what = (
                    "another log of this partition"
                    if directory in holders
                    else "the log of another topic with the same name"
                )
                aside = directory.set_aside(name, now)
                _LOG.warning("%s had %s, moved it aside as %s", name, what, aside)
        assert self.directory_of(name) is holder, "a partition has its log in one directory"
        return holder

    def _directories_with_log(self, name: TopicPartition, topic_id: Uuid) -> list[LogDirectory]:
        """Return the directories with a log of exactly this topic."""
        return [
            directory
            for directory in self._directories
            if name in directory.logs and self._is_of(topic_id, name, directory.logs[name], directory)
        ]

    def _is_of(self, topic_id: Uuid, name: TopicPartition, log: Log, directory: LogDirectory) -> bool:
        """Return whether this is the topic's log, as far as known.

        A log without an id dates from before Kafka 2.8, and Kafka assigns it the topic's.  A log created by this broker
        has its id on disk since its first flush.  So after a power failure, a log that has records, no id and no flush
        may belong to an earlier topic whose deletion was lost, too.  Such a log contains no record that was promised to
        be durable.
        """
        if log.topic_id is not None:
            return topic_id in (log.topic_id, ZERO_UUID)
        was_synced = directory.clean_shutdown or log.recovery_point > 0
        return was_synced or log.end_offset == log.start_offset or name.topic in self._adopted

    def adopted(self, topics: Iterable[TopicName]) -> None:
        """Register topics that joined the cluster because their logs are here: these logs belong to them."""
        self._adopted.update(topics)

    def set_strays_aside(self, is_ours: Callable[[TopicPartition], bool], now: TimestampMs) -> None:
        """Set aside logs of partitions that this broker does not hold.

        Such logs are never served, and never deleted without a request.
        """
        for directory in self._directories:
            strays = [name for name in directory.logs if not is_ours(name)]
            for name in strays:
                directory.set_aside(name, now)
            if strays:
                names = ", ".join(map(str, strays[:STRAYS_NAMED_MAX])) + ("..." if strays[STRAYS_NAMED_MAX:] else "")
                text = "%s: renamed %d stray logs, of partitions not assigned to this broker, to *-stray: %s"
                _LOG.warning(text, directory.path, len(strays), names)

    def missing_replicas(self, replicas: Mapping[TopicPartition, Uuid]) -> list[TopicPartition]:
        """Return those of this broker's replicas, given with topic ids, whose log is missing.

        Returns none while a directory is offline: the logs may be in it, and are not created again (`open`).
        """
        if not self.is_whole:
            return []
        items = replicas.items()
        return [
            name
            for name, topic_id in items
            if not (self._directories_with_log(name, topic_id) or self._is_offline(name))
        ]

    def _is_offline(self, name: TopicPartition) -> bool:
        """Return whether the log exists and could not be opened."""
        return any(name in directory.offline for directory in self._directories)

    def directory_of(self, name: TopicPartition) -> LogDirectory | None:
        """Return the directory of the partition's log, or None."""
        return next((directory for directory in self._directories if name in directory.logs), None)

    def make(self, name: TopicPartition, topic_id: Uuid, configs: TopicConfigs, now: TimestampMs) -> None:
        """Create the files of a new partition before open() needs its log.  May run in any thread."""
        exists = any(name in directory.logs or name in directory.offline for directory in self._directories)
        if not exists and self.online:
            self._emptiest().make(name, _known(topic_id), log_config(configs), now)

    def identify(self, name: TopicPartition, topic_id: Uuid) -> None:
        """Assign a topic id to the partition's log, which is online and has none."""
        holder = self.directory_of(name)
        assert holder is not None, "the log of an online partition is in a log directory"
        holder.assign_topic_id(name, topic_id)

    def delete(self, name: TopicPartition, now: TimestampMs) -> None:
        """Delete a partition's log; a later round retries deletions that fail now."""
        for directory in self._directories:
            if directory.has(name):
                directory.delete(name, now)
        assert self.directory_of(name) is None, "a deleted log is in no directory"

    def topics(self) -> dict[TopicName, FoundTopic]:
        """Return the topics in the directories, including logs that could not be opened."""
        logs: dict[TopicName, dict[int, Log | None]] = {}
        for directory in self._directories:
            for name in directory.offline:
                logs.setdefault(name.topic, {})[name.partition] = None
            for name, log in directory.logs.items():
                logs.setdefault(name.topic, {})[name.partition] = log
        return {topic: _found(partitions) for topic, partitions in logs.items()}

    def checkpoints(self, high_watermarks: Mapping[TopicPartition, Offset]) -> Iterator[Checkpoint | None]:
        """Begin one directory's checkpoint at each step; yield None for a directory without changes.

        The numbers of one directory are taken at one moment: they would be wrong for a log that was truncated or
        recreated since.  Directories are independent of each other.
        """
        for directory in self._directories:
            yield directory.begin_checkpoint(high_watermarks)

    def reaps(self, now: TimestampMs) -> Iterable[DueRemovals]:
        found = (directory.begin_reap(now) for directory in self._directories)
        return [reap for reap in found if reap is not None]

    def damages(self, now: TimestampMs) -> Iterable[DamageRegisterWrite]:
        found = (directory.begin_damages(now) for directory in self._directories)
        return [write for write in found if write is not None]

    def damaged(self) -> list[tuple[TopicPartition, LogDirectory]]:
        """Return the logs in which damage was found, each with its directory."""
        return [(name, one) for one in self.online for name in one.damages.damaged if name in one.logs]

    def probes(self) -> Iterable[Probe]:
        begins = ((one.begin_probe(), one.begin_room_probe()) for one in self._directories)
        return [probe for probes in begins for probe in probes if probe is not None]

    def close(self, high_watermarks: Mapping[TopicPartition, Offset], now: TimestampMs) -> list[str]:
        return [text for directory in self._directories for text in directory.close(now, high_watermarks)]

    def _emptiest(self) -> LogDirectory:
        online = self.online
        if not online:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
        return min(online, key=lambda directory: directory.count)


def _found(logs: Mapping[int, Log | None]) -> FoundTopic:
    topic_id = next((log.topic_id for log in logs.values() if log is not None and log.topic_id is not None), None)
    return FoundTopic(topic_id, {index: NO_EPOCH if log is None else log.epochs.latest for index, log in logs.items()})


def _known(topic_id: Uuid) -> Uuid | None:
    return None if topic_id == ZERO_UUID else topic_id
