"""Anomalies of groups.  Where the transactions that consume commit the offsets, each value is for one of them.

Such a group begins at the beginning, and no transaction of it polls before it is begun.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from checker.anomaly import Anomaly, Found
from checker.history import Committed, Key, Kind, Offset, Operation, Outcome
from checker.observed import Observed, Read

Place = tuple[str, Key]  # A group's, of a partition.


def consumed_twice(observed: Observed) -> Iterator[Found]:
    for value, reads in observed.reads.items():
        consumers: dict[str, dict[int, Read]] = defaultdict(dict)
        for read in reads:
            if read.operation.group is not None and read.operation.outcome is Outcome.OK:
                consumers[read.operation.group][read.operation.number] = read
        for group, found in consumers.items():
            if len(found) > 1:
                text = f"{value} for group {group}: {'; '.join(map(str, found.values()))}"
                yield Found(Anomaly.CONSUMED_TWICE, text, tuple(read.operation for read in found.values()))


def never_consumed(observed: Observed) -> Iterator[Found]:
    """By none that was committed, and by none of which nobody knows whether it was."""
    committed = dict(observed.committed_places())
    for (group, key), reads in _consumed(observed).items():
        certain = [read for read in reads.values() if read.operation.outcome is Outcome.OK]
        if not certain:
            continue
        highest = max(certain, key=lambda read: read.offset)
        for offset, value in committed.get(key, ()):
            is_seen = offset in reads or observed.may_be_removed(value, highest.time_ns)
            if offset < highest.offset and not is_seen:
                write = observed.writes[value]
                text = f"group {group}: {write}; none of it consumed that, though {highest}"
                yield Found(Anomaly.NEVER_CONSUMED, text, (write.operation, highest.operation))


def _consumed(observed: Observed) -> dict[tuple[str, Key], dict[Offset, Read]]:
    """By group and key, and by offset."""
    found: dict[tuple[str, Key], dict[Offset, Read]] = defaultdict(dict)
    for reads in observed.reads.values():
        for read in reads:
            group, outcome = read.operation.group, read.operation.outcome
            if group is not None and outcome is not Outcome.FAIL:
                last = found[group, read.key].get(read.offset)
                if last is None or outcome is Outcome.OK:
                    found[group, read.key][read.offset] = read
    return found


def committed_back(observed: Observed) -> Iterator[Found]:
    """Find groups whose reported offset is below one that was committed or reported before."""
    before: dict[Place, tuple[Offset, Operation]] = {}
    reported: dict[Place, tuple[Offset, Operation]] = {}  # First report; less only if a later transaction committed it.
    by_transactions = _committed_by_transactions(observed)

    def is_committed_after(operation: Operation, place: Place, offset: Offset) -> bool:
        return any(one.completed_ns > operation.completed_ns for one in by_transactions.get((place, offset), ()))

    for is_end, operation in _moments(observed.operations):
        is_reported = operation.kind is Kind.COMMITTED
        for place, offset in _positions(operation).items():
            highest, known = before.get(place, (0, operation))
            last, first = reported.get(place, (0, operation))
            if is_end:
                if offset > highest:
                    before[place] = offset, operation
                if is_reported and (offset > last or (offset < last and is_committed_after(first, place, offset))):
                    reported[place] = offset, operation
            elif is_reported and offset < highest:
                anomaly = Anomaly.COMMITTED_BACK
                if is_committed_after(known, place, offset):
                    anomaly = Anomaly.COMMITTED_AGAIN
                elif known.kind is Kind.TXN and offset >= last:
                    anomaly = Anomaly.COMMITTED_LATE
                group, key = place
                text = f"group {group}: {operation} was told {key}@{offset}, and @{highest} was known by {known}"
                yield Found(anomaly, text, (known, operation))


def _committed_by_transactions(observed: Observed) -> dict[tuple[Place, Offset], list[Operation]]:
    """Returns the transactions that have, or may have, committed an offset of a group."""
    found: dict[tuple[Place, Offset], list[Operation]] = defaultdict(list)
    for one in observed.operations:
        if one.kind is Kind.TXN and one.group is not None and one.outcome is not Outcome.FAIL:
            for position in _positions(one).items():
                found[position].append(one)
    return found


def _moments(operations: list[Operation]) -> Iterator[tuple[bool, Operation]]:
    """The beginnings of operations that went well, and their ends (True), as they followed each other."""
    certain = [one for one in operations if one.group is not None and one.outcome is Outcome.OK]
    ends = [(one.completed_ns, True, one.number, one) for one in certain]
    begins = [(one.invoked_ns, False, one.number, one) for one in certain]
    for _, is_end, _, operation in sorted([*begins, *ends], key=lambda moment: moment[:3]):
        yield is_end, operation


def _positions(operation: Operation) -> dict[Place, Offset]:
    """What the group of an operation has committed by then, as far as it tells."""
    assert operation.group is not None
    found: dict[Place, Offset] = {}
    for poll in operation.polls:
        found |= {(operation.group, key): offset + 1 for key, offset, _ in poll.records}
    for step in operation.steps:
        if isinstance(step, Committed):
            found |= {(operation.group, key): offset for key, offset in step.positions.items()}
    return found
