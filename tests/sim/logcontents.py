"""Contents of a log, compared with its model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from odradek.base.units import ProducerId
from odradek.log.log.log import Log
from odradek.record.end_transaction_marker import end_marker
from odradek.record.record_batch import Batch
from sim.logmodel import Broken, Known, Model, Written
from support.cleaning import Seen, seen_in


def check_batches(model: Model, batches: Sequence[Batch], end: int) -> None:
    """Check that everything in the log was appended, and nothing required is missing."""
    by_base = {one.base: one for one in model.batches}
    there: set[int] = set()
    before = -1
    for batch in batches:
        if batch.base_offset <= before:
            raise Broken(f"{batch} follows offset {before}")
        before = batch.last_offset
        one = by_base.get(batch.base_offset)
        if one is None or (one.last, one.leader_epoch) != (batch.last_offset, batch.leader_epoch):
            raise Broken(f"nobody wrote {batch}")
        _check_header(one, batch)
        there |= _check_records(one, batch)
    for one in model.batches:
        if one.base >= end:
            break
        lost = [kept.seen for kept in one.records if not kept.may_go and kept.seen.offset not in there]
        lost = [seen for seen in lost if seen.offset >= model.start]
        if lost:
            raise Broken(f"{lost[0]} and {len(lost) - 1} more of {one.base}..{one.last} are gone")
        if one.marker is not None and one.base >= model.start and not one.may_go and one.base not in there:
            raise Broken(f"the marker of {one.producer} at {one.base} is gone")


def _check_header(one: Written, batch: Batch) -> None:
    ours = one.producer, one.epoch, one.sequence, one.is_transactional
    theirs = batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional
    if ours != theirs or (one.marker is not None) != batch.is_control:
        raise Broken(f"{batch} is of {theirs}, was of {ours}")


def _check_records(one: Written, batch: Batch) -> set[int]:
    if one.marker is not None:
        if batch.records_count and end_marker(batch) != one.marker:
            raise Broken(f"the marker at {one.base} says {end_marker(batch)}, said {one.marker}")
        return {one.base} if batch.records_count else set()
    by_offset = {kept.seen.offset: kept.seen for kept in one.records}
    found: set[int] = set()
    for seen in seen_in(batch):
        if by_offset.get(seen.offset) != seen:
            raise Broken(f"{seen} was {by_offset.get(seen.offset)}")
        found.add(seen.offset)
    return found


def check_committed(model: Model, seen: Sequence[Seen], upto: int, *, was_cut: bool) -> None:
    """Check that read-committed consumers see only committed records, with the last value of each key below `upto`."""
    expected = {
        kept.seen.offset: kept
        for one in model.batches
        if one.is_visible and one.base < upto
        for kept in one.records
        if kept.seen.offset >= model.start
    }
    offsets = [one.offset for one in seen]
    if offsets != sorted(set(offsets)):
        raise Broken(f"offsets do not rise: {offsets}")
    for one in seen:
        if one.offset not in expected or expected[one.offset].seen != one:
            raise Broken(f"a reader of committed records sees {one}")
    missing = [kept.seen for kept in expected.values() if not kept.may_go and kept.seen.offset not in set(offsets)]
    if missing:
        raise Broken(f"a reader of committed records does not see {missing[0]}")
    if was_cut:  # A newer record may be truncated after the older one was removed.
        return
    found = {one.key: one for one in seen if one.key is not None}
    for key, kept in model.latest(upto).items():
        last = found.get(key)
        if last is not None and last != kept.seen:
            raise Broken(f"the last of {key!r} is {last}, was {kept.seen}")


def check_producers(expected: dict[int, Known], log: Log) -> None:
    for producer, known in expected.items():
        entry = log.producers.get(ProducerId(producer))
        if entry is None:
            raise Broken(f"producer {producer} is forgotten, was {known}")
        last = entry.batches[-1][:2] if entry.batches else None
        found = Known(entry.epoch, last, entry.first_offset)
        if found != known:
            raise Broken(f"producer {producer} is {found}, was {known}")


def check_no_other_producers(expected: dict[int, Known], log: Log) -> None:
    for one in log.producers:
        if one.id not in expected:
            raise Broken(f"producer {one.id} is of another log: {one}")


def check_indexes(log: Log, batches: Sequence[Batch]) -> None:
    """Check that every index entry refers to an existing batch."""
    places: dict[str, dict[int, Batch]] = {}
    at = iter(batches)
    for segment in log.segments:
        position, of_segment = 0, places.setdefault(segment.path, {})
        while position < segment.size:
            batch = next(at)
            of_segment[position] = batch
            position += batch.size
        for number in range(len(segment.offsets)):
            offset, position = segment.offsets.entry(number)
            found = of_segment.get(position)
            if found is None or found.last_offset != offset + segment.base_offset:
                raise Broken(f"an index says that {offset + segment.base_offset} is at {position}: {found}")
        newest = max((batch.max_timestamp for batch in of_segment.values()), default=-1)
        if segment.searched().largest()[0] != newest:
            raise Broken(f"{segment.path} is said to go up to {segment.searched().largest()}, goes up to {newest}")
        times = [segment.times.entry(number) for number in range(len(segment.times))]
        ends = {batch.last_offset for batch in of_segment.values()}
        for timestamp, offset in times:
            so_far = [b.max_timestamp for b in of_segment.values() if b.last_offset <= offset + segment.base_offset]
            if offset + segment.base_offset not in ends or max(so_far) != timestamp:
                raise Broken(f"a time index says {timestamp} of {offset + segment.base_offset}")


def check_epochs(log: Log, batches: Iterable[Batch]) -> None:
    """Check the leader epochs of batches, from the first known epoch on.

    Earlier epochs may be unknown, if a process that has died deleted their records.
    """
    first = log.epochs.entries[0][1] if log.epochs.entries else log.end_offset
    for batch in batches:
        if batch.base_offset >= first:
            epoch = log.epochs.epoch_of(max(batch.base_offset, log.start_offset))
            if epoch != batch.leader_epoch:
                raise Broken(f"epoch {epoch} is noted where {batch} is")


def times(batches: Iterable[Batch], start: int) -> Iterator[tuple[int, int]]:
    for batch in batches:
        yield from ((one.timestamp, one.offset) for one in seen_in(batch) if one.offset >= start)
