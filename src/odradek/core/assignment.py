"""Chooses the brokers that hold a new partition.

Kafka's own spread without racks: leaders go round the brokers from a random one, and the followers of each further
round are shifted by one more, so that a lost broker's load is shared by all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId


def spread(
    brokers: Sequence[BrokerId], partitions: int, replication_factor: int, *, start: int, shift: int, first: int = 0
) -> list[tuple[BrokerId, ...]]:
    """Returns the replicas of `partitions` partitions, numbered from `first`.

    `start` and `shift` are random numbers ≥ 0.  Raises Refused(INVALID_REPLICATION_FACTOR) where there are fewer
    brokers than replicas.
    """
    alive = sorted(brokers)
    if replication_factor < 1:
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be larger than 0")
    if replication_factor > len(alive):
        text = f"replication factor {replication_factor} is larger than the number of live brokers, {len(alive)}"
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if replication_factor == 1:
        alone = [(broker,) for broker in alive]
        return [alone[(start + index) % len(alive)] for index in range(first, first + partitions)]
    return [
        _replicas(alive, index, replication_factor, start, shift + index // len(alive))
        for index in range(first, first + partitions)
    ]


def _replicas(
    alive: Sequence[BrokerId], index: int, replication_factor: int, start: int, shift: int
) -> tuple[BrokerId, ...]:
    count = len(alive)
    leader = (start + index) % count
    # With one broker there is nobody to shift over.
    followers = ((leader + 1 + (shift + n) % (count - 1)) % count for n in range(replication_factor - 1))
    return (alive[leader], *(alive[place] for place in followers))


def checked_manual(
    assignments: Sequence[tuple[int, Sequence[int]]], brokers: Sequence[BrokerId]
) -> list[tuple[BrokerId, ...]]:
    """Returns replicas that a request spells out, by partition index.  Raises Refused(INVALID_REPLICA_ASSIGNMENT)."""
    by_index = {index: tuple(map(BrokerId, replicas)) for index, replicas in assignments}
    if len(by_index) != len(assignments):
        raise _invalid("a partition is assigned twice")
    if sorted(by_index) != list(range(len(by_index))):
        raise _invalid("partitions must be numbered from 0 without gaps")
    sizes = {len(replicas) for replicas in by_index.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise _invalid("every partition must have the same number of replicas, at least one")
    for index, replicas in by_index.items():
        if len(set(replicas)) != len(replicas):
            raise _invalid(f"partition {index} names a broker twice")
        if unknown := set(replicas) - set(brokers):
            raise _invalid(f"partition {index} names brokers that are not there: {sorted(unknown)}")
    return [by_index[index] for index in range(len(by_index))]


def _invalid(detail: str) -> Refused:
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
