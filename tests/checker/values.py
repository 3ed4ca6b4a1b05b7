"""Anomalies of single values: lost, twice, elsewhere, never meant to be seen, seen too early."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from checker.anomaly import Anomaly, Found
from checker.history import Key, Offset, Value
from checker.observed import Observed, Read, Write


def unread(observed: Observed) -> Iterator[Found]:
    """Lost writes, and what is unseen: above all that was read, of a key that nobody read to its end."""
    for value, write in observed.writes.items():
        if value in observed.reads or not observed.is_committed(value) or observed.may_be_removed(value):
            continue
        key, offset = write.send.key, write.send.offset
        highest = observed.highest_read.get(key)
        if key in observed.read_to_the_end:
            yield Found(Anomaly.LOST_WRITE, f"{write}; nobody read it, to the end of {key}", (write.operation,))
        elif offset is not None and highest is not None and highest.offset > offset:
            text = f"{write}; nobody read it, though {highest}"
            yield Found(Anomaly.LOST_WRITE, text, (write.operation, highest.operation))
        else:
            yield Found(Anomaly.UNSEEN, f"{write}; nobody read it, nor anything above", (write.operation,))


def duplicates(observed: Observed) -> Iterator[Found]:
    places: dict[Value, set[tuple[Key, Offset]]] = defaultdict(set)
    for key, offsets in observed.places.items():
        for offset, values in offsets.items():
            for value in values:
                places[value].add((key, offset))
    for value, found in places.items():
        if len(found) > 1:
            where = ", ".join(f"{key}@{offset}" for key, offset in sorted(found))
            yield _of_values(observed, Anomaly.DUPLICATE, f"{value} is at {where}", [value])


def inconsistent_offsets(observed: Observed) -> Iterator[Found]:
    for key, offsets in observed.places.items():
        for offset, values in offsets.items():
            if len(values) > 1:
                text = f"{key}@{offset} holds {', '.join(map(str, sorted(values)))}"
                yield _of_values(observed, Anomaly.INCONSISTENT_OFFSETS, text, sorted(values))


def unsent_reads(observed: Observed) -> Iterator[Found]:
    for value, reads in observed.reads.items():
        if value not in observed.writes:
            yield Found(Anomaly.UNSENT_READ, f"{reads[0]}, which nobody sent", (reads[0].operation,))


def aborted_reads(observed: Observed) -> Iterator[Found]:
    for value, reads in observed.reads.items():
        write = observed.writes.get(value)
        if write is not None and write.never_happened:
            text = f"{write}, which never happened; {reads[0]}"
            yield Found(Anomaly.ABORTED_READ, text, (write.operation, reads[0].operation))


def precommitted_reads(observed: Observed) -> Iterator[Found]:
    """Also of a transaction that reads what it wrote itself, and of a plain send that was read before it was made."""
    for value, reads in observed.reads.items():
        write = observed.writes.get(value)
        if write is None or write.never_happened:
            continue
        operation = write.operation
        begun_ns = operation.invoked_ns if operation.commit_ns is None else operation.commit_ns
        first = min(reads, key=lambda read: read.time_ns)
        if first.time_ns < begun_ns:
            early_ms = (begun_ns - first.time_ns) / 1e6
            text = f"{write}; {first}, {early_ms:.3f} ms before its commit was asked for"
            yield Found(Anomaly.PRECOMMITTED_READ, text, (operation, first.operation))


def _of_values(observed: Observed, anomaly: Anomaly, text: str, values: list[Value]) -> Found:
    """The text, with who sent each of the values and who read it first."""
    involved: list[Write | Read] = []
    for value in values:
        if value in observed.writes:
            involved.append(observed.writes[value])
        reads = reversed(observed.reads.get(value, []))
        involved += {(read.key, read.offset): read for read in reads}.values()
    return Found(anomaly, "; ".join([text, *map(str, involved)]), tuple(one.operation for one in involved))
