"""Data directories of this broker for DescribeLogDirs: their volumes, and the size of each log."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from odradek.base.units import TopicPartition
from odradek.core.kernel.work import Work
from odradek.core.partition.storage import Storage
from odradek.log.directory.directory import LogDirectory
from odradek.log.files.volume import Volume, volume_of
from odradek.log.log.log import Log

__all__ = ["LogDir", "LogSize", "Volume", "log_dirs"]


class LogSize(NamedTuple):
    """Size of a log: its .log files, without their indexes."""

    size: int
    segments: int


class LogDir:
    """One data directory."""

    def __init__(self, directory: LogDirectory) -> None:
        self.directory = directory

    @property
    def path(self) -> str:
        return str(Path(self.directory.path).absolute())

    @property
    def is_online(self) -> bool:
        return self.directory.failure is None

    def read_volume(self) -> Work:
        """Return the work that determines the Volume: the file system may be slow."""
        return Work(partial(volume_of, self.directory.path))

    def names(self) -> list[TopicPartition]:
        return list(self.directory.logs)

    def size_of(self, name: TopicPartition) -> LogSize | None:
        """Return the size of one log; None if it is not here any more."""
        log = self.directory.logs.get(name)
        return None if log is None else LogSize(log.size, len(log.segments))

    def futures(self) -> list[TopicPartition]:
        """Return the logs that are being moved here from another directory."""
        return list(self.directory.futures)

    def future_of(self, name: TopicPartition) -> Log | None:
        """Return a log that is being moved here; None if it is not any more."""
        return self.directory.futures.get(name)


def log_dirs(storage: Storage) -> list[LogDir]:
    return [LogDir(directory) for directory in storage]
