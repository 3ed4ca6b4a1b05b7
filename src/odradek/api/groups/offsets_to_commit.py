"""Offsets of a commit, transactional or not, in the form in which the group stores them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Protocol, TypeVar

from odradek.api.request.known_partitions import HasIndex, Partitions
from odradek.api.request.outcome import PAUSE, Wait
from odradek.core.groups.group_offset_commit import OffsetAndMetadata
from odradek.core.groups.long_commit import LongCommit
from odradek.core.kernel.work import Work


class HasOffset(HasIndex, Protocol):
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


P = TypeVar("P", bound=HasOffset)


def offsets_of(partitions: Partitions[P]) -> Iterator[OffsetAndMetadata]:
    """Yield the offsets of the partitions that exist."""
    for _, topic, partition in partitions.known:
        yield OffsetAndMetadata(
            topic,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata,
        )


def prepare_commit(partitions: Partitions[P], commit: LongCommit) -> Generator[Wait, Any, LongCommit]:
    """Add the offsets of existing partitions to the commit, encode it in a thread. Raise Refused."""
    for offset in offsets_of(partitions):
        commit.add(offset)
        yield PAUSE
    yield Work(commit.encode)
    return commit
