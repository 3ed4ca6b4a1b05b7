"""Logs that cannot be compacted: damaged logs wait for the operator, logs on a full disk for a minute.

A file in the log directory lists the damaged ones for `odradek doctor`.  A start retries all logs.
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


class UncleanableLogsWrite(NamedTuple):
    """Chore: write the list of uncleanable logs of one log directory, for `odradek doctor`."""

    disk: Disk
    directory: str
    reasons: Mapping[TopicPartition, str]

    def run(self) -> None:
        write_uncleanable(self.disk, f"{self.directory}/{UNCLEANABLE}", self.reasons)


class UncleanableLogs:
    """Logs of one broker that cannot be compacted, with the reasons."""

    def __init__(self) -> None:
        self.reasons: dict[Partition, str] = {}
        self._retry: dict[Partition, int] = {}  # The time of the retry, on the steady clock.
        self._written: dict[str, Mapping[TopicPartition, str]] = {}  # The written lists, by directory.
        self._disks: dict[str, Disk] = {}

    def __contains__(self, partition: Partition) -> bool:
        return partition in self.reasons

    def waits(self, partition: Partition, steady: int) -> bool:
        """Return whether the log must wait, since its disk had no room."""
        return self._retry.get(partition, 0) > steady

    def failed(self, partition: Partition, failure: Uncleanable | DiskFailed, steady: int) -> str | None:
        """Record a failed compaction; return the line to log, None if it was logged before."""
        name = partition.topic_partition
        if isinstance(failure, DiskFailed) and (failure.is_full or failure.errno == errno.ENOENT):
            is_known = partition in self._retry
            self._retry[partition] = steady + RETRY_MS
            return None if is_known else f"failed to compact {name} (will retry): {failure}"
        self.reasons[partition] = str(failure)
        return f"{name} is marked as uncleanable and no longer compacted; other logs are not affected: {failure}"

    def try_again(self, partition: Partition) -> None:
        """Allow another try of a log that was set aside."""
        self.reasons.pop(partition, None)

    def forget_removed(self, partitions: Mapping[TopicPartition, Partition]) -> None:
        """Forget logs of partitions that are not here any more."""
        for known in (self.reasons, self._retry):
            for one in [one for one in known if partitions.get(one.topic_partition) is not one]:
                del known[one]

    def list_writes(self) -> list[UncleanableLogsWrite]:
        """Return the chores that write changed lists of uncleanable logs."""
        lists: dict[str, dict[TopicPartition, str]] = {directory: {} for directory in self._written}
        for partition, reason in self.reasons.items():
            if partition.is_online:
                directory = partition.log.directory.rpartition("/")[0]
                lists.setdefault(directory, {})[partition.topic_partition] = reason
                self._disks[directory] = partition.log.disk
        changed = [name for name, reasons in lists.items() if reasons != self._written.get(name)]
        self._written = dict(lists)
        return [UncleanableLogsWrite(self._disks[name], name, lists[name]) for name in changed]
