"""Chores: work on files that no request waits for."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from odradek.log.files.disk import DiskFailed


class Chore(Protocol):
    """Work on files without a waiting request: checkpoints, unlinking deleted files."""

    def run(self) -> None:
        """Do the work.  Raises DiskFailed."""


class ChoresRun(NamedTuple):
    """Event: the end of a Chores, with the failures among them."""

    failures: list[OSError]


class Chores(NamedTuple):
    """Effect: chores for a thread; the next round or the next start retries a failed one."""

    chores: tuple[Chore, ...]

    def run(self) -> ChoresRun:
        failures: list[OSError] = []
        for chore in self.chores:
            try:
                chore.run()
            except DiskFailed as failed:
                failures.append(failed)
        return ChoresRun(failures)
