"""Kafka's guarantees, checked against the history of one world.

Records written with acks=all become visible once they are durable, so consumers always see the same records of a topic
with only such records. Records written with acks=1 are visible immediately, including those before them: after a power
failure they may be missing, with other records at their offsets. An era is the time between two power failures.

The checker of Jepsen's Kafka workload judges the atomicity of transactions and the view of read-committed consumers
(operations.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from odradek.base.units import TopicPartition
from sim.history import NO_ERA, History, Seen, Sent
from sim.operations import anomalies
from sim.simkeys import key_of
from sim.superseding import Superseding


def problems(history: History) -> list[str]:
    """Return one line for each broken guarantee."""
    found = (
        lost,
        doubled,
        out_of_order,
        changed,
        made_up,
        skipped,
        wrong_place,
        not_compact,
        returned_older_offsets,
        not_fenced,
        anomalies,
    )
    return [line for check in found for line in check(history)]


def lost(history: History) -> Iterator[str]:
    """Check that no record acknowledged with acks=all is lost; with acks=1, none since the last power failure."""
    last_failure_us = max(history.power_failures_us, default=-1)
    there = {seen.value for records in history.final.values() for seen in records}
    superseding = Superseding(history)
    for sent in history.sent.values():
        if sent.acknowledged_us is None or sent.value in there or superseding.may_be_removed(sent.value):
            continue
        if sent.is_durable or sent.invoked_us > last_failure_us:
            yield f"{sent.value} was acknowledged at {sent.partition}@{sent.offset} and is lost"


def doubled(history: History) -> Iterator[str]:
    """Check that values sent with sequence numbers, or sent once, are in the log at most once."""
    counts = Counter(seen.value for records in history.final.values() for seen in records)
    for value, count in counts.items():
        if count > 1:
            yield f"{value} is there {count} times"


def out_of_order(history: History) -> Iterator[str]:
    """Check that acknowledged records of idempotent producers are in the order in which they were sent."""
    for partition, records in history.final.items():
        by_producer: dict[str, list[Sent]] = defaultdict(list)
        for seen in records:
            sent = history.sent.get(seen.value)
            if sent is not None and sent.is_idempotent and not sent.is_given_up:
                by_producer[sent.producer].append(sent)
        for of_one in by_producer.values():
            for earlier, later in pairwise(of_one):
                if earlier.number > later.number:
                    yield f"{partition}: {later.value} comes after {earlier.value}"


def loose_partitions(history: History) -> set[TopicPartition]:
    """Return the partitions that are written to with acks=1."""
    return {sent.partition for sent in history.sent.values() if not sent.is_durable}


def changed(history: History) -> Iterator[str]:
    """Check that each offset has the same value forever; in a partition with acks=1, until a power failure."""
    loose, superseding = loose_partitions(history), Superseding(history)
    values: dict[tuple[TopicPartition, int, int], Seen] = {}
    for seen in [*history.seen, *(seen for records in history.final.values() for seen in records)]:
        if seen.partition in loose and seen.era == NO_ERA:
            continue
        key = seen.partition, seen.offset, seen.era if seen.partition in loose else 0
        first = values.setdefault(key, seen)
        if first.value != seen.value:
            yield f"{seen.partition}@{seen.offset} was {first.value} to {first.reader}, {seen.value} to {seen.reader}"
    final = {(seen.partition, seen.offset) for records in history.final.values() for seen in records}
    for (partition, offset, era), seen in values.items():
        is_safe = partition not in loose or era == history.era
        if is_safe and (partition, offset) not in final and not superseding.may_be_removed(seen.value):
            yield f"{partition}@{offset} was {seen.value} to {seen.reader} and is gone"


def made_up(history: History) -> Iterator[str]:
    """Check that all read values were sent to that partition."""
    for seen in [*history.seen, *(seen for records in history.final.values() for seen in records)]:
        sent = history.sent.get(seen.value)
        if sent is None or sent.partition != seen.partition:
            yield f"{seen.partition}@{seen.offset} is {seen.value}, which nobody sent there"


def skipped(history: History) -> Iterator[str]:
    """Check that consumers have read partitions with only acks=all to their end.

    Consumers themselves check for gaps while they read (simfetching).
    """
    loose = loose_partitions(history)
    seen_by: dict[str, dict[TopicPartition, set[int]]] = defaultdict(lambda: defaultdict(set))
    for seen in history.seen:
        seen_by[seen.reader][seen.partition].add(seen.offset)
    for reader, partitions in seen_by.items():
        if not reader.startswith("consumer"):
            continue
        for partition, records in (
            history.committed if reader in history.read_committed_readers else history.final
        ).items():
            missing = sorted({seen.offset for seen in records} - partitions[partition])
            if missing and partition not in loose:
                yield f"{reader} has not read {partition}@{missing[0]} and {len(missing) - 1} more"


def wrong_place(history: History) -> Iterator[str]:
    """Check that acknowledged records are at the offset in the response."""
    places = {seen.value: seen for records in history.final.values() for seen in records}
    for sent in history.sent.values():
        place = places.get(sent.value)
        if place is not None and sent.acknowledged_us is not None and sent.offset not in (None, place.offset):
            yield f"{sent.value} was acknowledged at {sent.offset} and lies at {place.offset}"


def not_compact(history: History) -> Iterator[str]:
    """Check that each key is present once below the end of a requested compaction, and no aborted record is present."""
    for partition, end in history.compacted_to.items():
        there: dict[str, Seen] = {}
        for seen in history.final[partition]:
            if seen.offset < end:
                first = there.setdefault(key_of(seen.value), seen)
                if first is not seen:
                    yield f"{partition} is compacted to {end}, and has {first.value} and {seen.value}"
                sent = history.sent.get(seen.value)
                if sent and sent.transaction and sent.transaction.is_committed is False:
                    yield f"{partition} is compacted to {end}, and has {seen.value}, which was aborted"


def not_fenced(history: History) -> Iterator[str]:
    """Check that earlier producers of a transactional id write nothing once a later one has its identity."""
    there = {seen.value for records in history.final.values() for seen in records}
    for transaction in history.transactions:
        mine = transaction.identity
        fences = [
            other
            for other in history.identities
            if other.transactional_id == mine.transactional_id
            and other.producer > mine.producer
            and other.returned_us < transaction.invoked_us
        ]
        for sent in transaction.sent if fences else ():
            if sent.value in there:
                yield f"{sent.value} was written by {mine.producer} after {fences[0].producer} had begun"


def returned_older_offsets(history: History) -> Iterator[str]:
    """Check that fetched offsets were committed, and are not lower than offsets acknowledged before.

    A commit without a response may still be applied at any later time, but only in the same generation.
    """
    for fetched in history.fetched:
        key = fetched.group, fetched.partition
        commits = [commit for commit in history.commits if (commit.group, commit.partition) == key]
        before = [commit for commit in commits if commit.invoked_us <= fetched.returned_us]
        if fetched.offset >= 0 and fetched.offset not in {commit.offset for commit in before}:
            yield f"{fetched.group} was told {fetched.partition}@{fetched.offset}, which nobody committed"
        if any(commit.offset == fetched.offset and commit.acknowledged_us is None for commit in before):
            continue
        safe = [c.offset for c in before if c.acknowledged_us is not None and c.acknowledged_us < fetched.invoked_us]
        if max(safe, default=-1) > fetched.offset:
            yield f"{fetched.group} had {fetched.partition}@{max(safe)} committed and was told {fetched.offset}"
