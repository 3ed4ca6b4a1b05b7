"""The offsets that a commit brings, in a transaction or not, as they are to be kept."""

from __future__ import annotations

from typing import Protocol, TypeVar

from odradek.api.known_partitions import HasIndex, Partitions
from odradek.core.groups.offset_commit import Place


class HasOffset(HasIndex, Protocol):
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


P = TypeVar("P", bound=HasOffset)


def places_of(partitions: Partitions[P]) -> list[Place]:
    """Of the partitions that there are."""
    return [
        Place(
            topic,
            wanted.partition_index,
            wanted.committed_offset,
            wanted.committed_leader_epoch,
            wanted.committed_metadata,
        )
        for _, topic, wanted in partitions.known
    ]
