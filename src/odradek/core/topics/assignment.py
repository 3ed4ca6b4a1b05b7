"""Choice of the brokers for a new partition, as in AdminUtils of Apache Kafka 3.9.

Leaders are assigned round robin from a random broker.  The followers shift by one more broker with each further round,
so that all others share the load of a lost broker.  If brokers have racks, neighbours in the round are in different
racks, and no rack has a second replica of a partition before each has one (KIP-36).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId

Racks = Mapping[BrokerId, str | None]  # Racks of the live brokers.


def spread(
    racks: Racks, partitions: int, replication_factor: int, *, start: int, shift: int, first: int = 0
) -> list[tuple[BrokerId, ...]]:
    """Return the replicas of `partitions` partitions, numbered from `first`.

    `start` and `shift` are numbers ≥ 0: random, or derived from a topic's first partition.  Raises
    Refused(INVALID_REPLICATION_FACTOR) if there are fewer brokers than replicas, and Refused(UNKNOWN_SERVER_ERROR), as
    in Kafka, if only some have a rack.
    """
    if replication_factor < 1:
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be larger than 0")
    if replication_factor > len(racks):
        text = f"replication factor {replication_factor} is larger than the number of live brokers, {len(racks)}"
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    with_rack = [broker for broker, rack in racks.items() if rack is not None]
    if with_rack and len(with_rack) < len(racks):
        without = sorted(racks.keys() - set(with_rack))
        text = f"cannot assign replicas by rack: brokers {without} have no broker.rack, the others do"
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, text)
    assert start >= 0 and shift >= 0 and first >= 0
    alive = _alternating(racks) if with_rack else sorted(racks)
    indexes = range(first, first + partitions)
    if replication_factor == 1:
        alone = [(broker,) for broker in alive]
        return [alone[(start + index) % len(alive)] for index in indexes]
    rounds_before = max(first - 1, 0) // len(alive)  # Added partitions begin a new round, except at the start of one.
    shifts = ((index, shift + index // len(alive) - rounds_before) for index in indexes)
    if with_rack:
        return [_replicas_over_racks(alive, racks, start + index, each, replication_factor) for index, each in shifts]
    return [_replicas(alive, start + index, each, replication_factor) for index, each in shifts]


def _alternating(racks: Racks) -> list[BrokerId]:
    """Return the brokers in alternating racks, one broker of each rack in turn."""
    of_rack: dict[str | None, list[BrokerId]] = {}
    for broker in sorted(racks):
        of_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(of_rack[rack] for rack in sorted(of_rack, key=str)))
    alternating = [broker for broker in chain.from_iterable(rounds) if broker is not None]
    assert len(alternating) == len(racks), "every broker has one place in the round"
    return alternating


def _follower(alive: Sequence[BrokerId], leader: int, step: int) -> BrokerId:
    assert len(alive) > 1, "a follower needs a second live broker"
    return alive[(leader + 1 + step % (len(alive) - 1)) % len(alive)]


def _replicas(alive: Sequence[BrokerId], leader: int, shift: int, count: int) -> tuple[BrokerId, ...]:
    leader %= len(alive)
    replicas = (alive[leader], *(_follower(alive, leader, shift + n) for n in range(count - 1)))
    assert len(set(replicas)) == count, "replicas are on different brokers"
    return replicas


def _replicas_over_racks(
    alive: Sequence[BrokerId], racks: Racks, leader: int, shift: int, count: int
) -> tuple[BrokerId, ...]:
    assert count <= len(alive), "the search for replicas ends"
    leader %= len(alive)
    racks_count = len(set(racks.values()))
    chosen, used, step = [alive[leader]], {racks[alive[leader]]}, shift * racks_count
    while len(chosen) < count:
        broker = _follower(alive, leader, step)
        step += 1
        if broker not in chosen and (racks[broker] not in used or len(used) == racks_count):
            chosen.append(broker)
            used.add(racks[broker])
    assert len(used) == min(count, racks_count), "no rack has a second replica before each has one"
    return tuple(chosen)


def checked_manual(
    assignments: Sequence[tuple[int, Sequence[int]]], brokers: Iterable[BrokerId]
) -> list[tuple[BrokerId, ...]]:
    """Return a request's manual assignment by partition; raise Refused(INVALID_REPLICA_ASSIGNMENT)."""
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
            raise _invalid(f"partition {index} has duplicate replicas {list(replicas)}")
        if unknown := set(replicas) - set(brokers):
            raise _invalid(f"partition {index} is assigned to unknown brokers {sorted(unknown)}")
    return [by_index[index] for index in range(len(by_index))]


def _invalid(detail: str) -> Refused:
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
