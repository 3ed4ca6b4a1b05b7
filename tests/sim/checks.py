"""What Kafka promises, held against the history of one world.

Records written with acks=all become visible once they are durable, so what was seen of a topic with such records alone
is so for ever.  Records written with acks=1 are visible at once, and with them what lies before: a power failure may
take from them what was seen, and put something else there.  An era is the time between two power failures.

Whether transactions are whole, and what readers of committed records see, is judged by the checker (operations.py).
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
    """One line for each broken promise."""
    found = (
        lost,
        doubled,
        out_of_order,
        changed,
        made_up,
        skipped,
        wrong_place,
        not_compact,
        went_back,
        not_fenced,
        anomalies,
    )
    return [line for check in found for line in check(history)]


def lost(history: History) -> Iterator[str]:
    """Nothing that was acknowledged with acks=all is lost; with acks=1, nothing since the last power failure."""
    last_failure_us = max(history.power_failures_us, default=-1)
    there = {seen.value for records in history.final.values() for seen in records}
    superseding = Superseding(history)
    for sent in history.sent.values():
        if sent.acknowledged_us is None or sent.value in there or superseding.may_be_gone(sent.value):
            continue
        if sent.is_durable or sent.invoked_us > last_failure_us:
            yield f"{sent.value} was acknowledged at {sent.partition}@{sent.offset} and is lost"


def doubled(history: History) -> Iterator[str]:
    """Who sends with sequence numbers, or once, is in the log at most once."""
    counts = Counter(seen.value for records in history.final.values() for seen in records)
    for value, count in counts.items():
        if count > 1:
            yield f"{value} is there {count} times"


def out_of_order(history: History) -> Iterator[str]:
    """What an idempotent producer had acknowledged lies in the order in which it was sent."""
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
    """Those to which somebody writes with acks=1."""
    return {sent.partition for sent in history.sent.values() if not sent.is_durable}


def changed(history: History) -> Iterator[str]:
    """Each offset has one value for ever; in a partition with acks=1, until a power failure."""
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
        if is_safe and (partition, offset) not in final and not superseding.may_be_gone(seen.value):
            yield f"{partition}@{offset} was {seen.value} to {seen.reader} and is gone"


def made_up(history: History) -> Iterator[str]:
    """Whatever is read was sent, to that partition."""
    for seen in [*history.seen, *(seen for records in history.final.values() for seen in records)]:
        sent = history.sent.get(seen.value)
        if sent is None or sent.partition != seen.partition:
            yield f"{seen.partition}@{seen.offset} is {seen.value}, which nobody sent there"


def skipped(history: History) -> Iterator[str]:
    """Each consumer sees each partition without a gap: that is asserted as it reads (simfetching).

    Here: in a partition with acks=all alone, it has read at the end what there is at the end.
    """
    loose = loose_partitions(history)
    seen_by: dict[str, dict[TopicPartition, set[int]]] = defaultdict(lambda: defaultdict(set))
    for seen in history.seen:
        seen_by[seen.reader][seen.partition].add(seen.offset)
    for reader, partitions in seen_by.items():
        if not reader.startswith("consumer"):
            continue
        for partition, records in (history.committed if reader in history.careful else history.final).items():
            missing = sorted({seen.offset for seen in records} - partitions[partition])
            if missing and partition not in loose:
                yield f"{reader} has not read {partition}@{missing[0]} and {len(missing) - 1} more"


def wrong_place(history: History) -> Iterator[str]:
    """What was acknowledged lies where the answer said."""
    places = {seen.value: seen for records in history.final.values() for seen in records}
    for sent in history.sent.values():
        place = places.get(sent.value)
        if place is not None and sent.acknowledged_us is not None and sent.offset not in (None, place.offset):
            yield f"{sent.value} was acknowledged at {sent.offset} and lies at {place.offset}"


def not_compact(history: History) -> Iterator[str]:
    """Below where a compaction that was asked for has ended, each key is there once, and nothing that was aborted."""
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
    """Once a producer has an identity, nothing is written by an earlier one of the same transactional id."""
    there = {seen.value for records in history.final.values() for seen in records}
    for transaction in history.transactions:
        mine = transaction.identity
        fences = [
            other
            for other in history.identities
            if other.transactional_id == mine.transactional_id
            and other.producer > mine.producer
            and other.told_us < transaction.invoked_us
        ]
        for sent in transaction.sent if fences else ():
            if sent.value in there:
                yield f"{sent.value} was written by {mine.producer} after {fences[0].producer} had begun"


def went_back(history: History) -> Iterator[str]:
    """What a group is told to have committed was committed, and is not before what was acknowledged to it.

    But a commit without an answer may be carried out at any later time, of the same generation at least.
    """
    for fetched in history.fetched:
        key = fetched.group, fetched.partition
        commits = [commit for commit in history.commits if (commit.group, commit.partition) == key]
        before = [commit for commit in commits if commit.invoked_us <= fetched.told_us]
        if fetched.offset >= 0 and fetched.offset not in {commit.offset for commit in before}:
            yield f"{fetched.group} was told {fetched.partition}@{fetched.offset}, which nobody committed"
        if any(commit.offset == fetched.offset and commit.acknowledged_us is None for commit in before):
            continue
        safe = [c.offset for c in before if c.acknowledged_us is not None and c.acknowledged_us < fetched.invoked_us]
        if max(safe, default=-1) > fetched.offset:
            yield f"{fetched.group} had {fetched.partition}@{max(safe)} committed and was told {fetched.offset}"
