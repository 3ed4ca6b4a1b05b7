"""The offsets that a commit brings, in a transaction or not, as they are to be kept."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Protocol, TypeVar

from odradek.api.known_partitions import HasIndex, Partitions
from odradek.api.outcome import PAUSE, Wait
from odradek.core.effects import Work
from odradek.core.groups.long_commit import LongCommit
from odradek.core.groups.offset_commit import OffsetAndMetadata


class HasOffset(HasIndex, Protocol):
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


P = TypeVar("P", bound=HasOffset)


def offsets_of(partitions: Partitions[P]) -> Iterator[OffsetAndMetadata]:
    """Of the partitions that there are."""
    for _, topic, wanted in partitions.known:
        yield OffsetAndMetadata(
            topic,
            wanted.partition_index,
            wanted.committed_offset,
            wanted.committed_leader_epoch,
            wanted.committed_metadata,
        )


def made_ready(partitions: Partitions[P], commit: LongCommit) -> Generator[Wait, Any, LongCommit]:
    """Adds all that there are to the commit, and has it encoded.  Raises Refused."""
    for place in offsets_of(partitions):
        commit.add(place)
        yield PAUSE
    yield Work(commit.encode)
    return commit
