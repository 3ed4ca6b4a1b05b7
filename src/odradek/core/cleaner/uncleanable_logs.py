"""Logs that can't be compacted: those that are damaged wait for somebody, those whose disk is full for a minute.

The former are told of in a file of their log directory, for `odradek doctor`.  A start tries all of them again.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import NamedTuple

from odradek.base.units import SECOND_MS, TopicPartition
from odradek.core.partition.partition import Partition
from odradek.log.compaction.cleaner import Uncleanable
from odradek.log.files.disk import Disk, DiskFailed
from odradek.log.files.log_file_names import UNCLEANABLE
from odradek.log.segment.checkpoints import write_uncleanable

RETRY_MS = 60 * SECOND_MS  # After the disk was full, or no descriptor was free.


class SetAsideNote(NamedTuple):
    """A chore: write down what can't be compacted in one log directory, for `odradek doctor`."""

    disk: Disk
    directory: str
    reasons: Mapping[TopicPartition, str]

    def run(self) -> None:
        write_uncleanable(self.disk, f"{self.directory}/{UNCLEANABLE}", self.reasons)


class SetAside:
    """The logs of one broker that can't be compacted, and why."""

    def __init__(self) -> None:
        self.reasons: dict[Partition, str] = {}
        self._retry: dict[Partition, int] = {}  # When they are tried again, on the steady clock.
        self._noted: dict[str, Mapping[TopicPartition, str]] = {}  # What is written down, by directory.
        self._disks: dict[str, Disk] = {}

    def __contains__(self, partition: Partition) -> bool:
        return partition in self.reasons

    def waits(self, partition: Partition, steady: int) -> bool:
        """True if the log is to be left alone for now, since its disk had no room."""
        return self._retry.get(partition, 0) > steady

    def failed(self, partition: Partition, failure: Uncleanable | DiskFailed, steady: int) -> str | None:
        """Takes in that a log could not be compacted; returns what the broker's log should say, None if it did."""
        name = partition.topic_partition
        if isinstance(failure, DiskFailed) and (failure.is_full or failure.errno == errno.ENOENT):
            is_known = partition in self._retry
            self._retry[partition] = steady + RETRY_MS
            return None if is_known else f"{name} could not be compacted, and will be: {failure}"
        self.reasons[partition] = str(failure)
        return f"{name} is not compacted any more, the other logs are: {failure}"

    def try_again(self, partition: Partition) -> None:
        """Has a log tried again that was set aside."""
        self.reasons.pop(partition, None)

    def forget_gone(self, partitions: Mapping[TopicPartition, Partition]) -> None:
        """Forgets logs of partitions that are not here any more."""
        for known in (self.reasons, self._retry):
            for one in [one for one in known if partitions.get(one.topic_partition) is not one]:
                del known[one]

    def notes(self) -> list[SetAsideNote]:
        """Returns what is to be written down of logs that were set aside, or are not any more."""
        noted: dict[str, dict[TopicPartition, str]] = {directory: {} for directory in self._noted}
        for partition, reason in self.reasons.items():
            if partition.is_online:
                directory = partition.log.directory.rpartition("/")[0]
                noted.setdefault(directory, {})[partition.topic_partition] = reason
                self._disks[directory] = partition.log.disk
        changed = [name for name, reasons in noted.items() if reasons != self._noted.get(name)]
        self._noted = dict(noted)
        return [SetAsideNote(self._disks[name], name, noted[name]) for name in changed]
