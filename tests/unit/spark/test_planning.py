"""Ranges, rate limits and tasks: every offset belongs to exactly one task, and equal arguments give equal plans."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.units import TopicName, TopicPartition
from odradek.spark.checkpoint_offsets import OffsetRange, total
from odradek.spark.planning import OFFSETS_PER_TASK_MIN, ranges_between, rate_limited, tasks_of
from odradek.spark.source_options import Split

TOPIC = TopicName("t")


def at(partition):
    return TopicPartition(TOPIC, partition)


SIZES = st.lists(st.one_of(st.integers(1, 50), st.integers(1, 3_000_000)), min_size=1, max_size=12)
SPLITS = st.builds(
    Split,
    st.none() | st.integers(1, 16),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(50_000, 1_000_000),
)


def ranges(sizes):
    return [OffsetRange(TOPIC, number, 100, 100 + size) for number, size in enumerate(sizes)]


@given(SIZES, SPLITS, st.integers(1, 8))
def test_each_offset_is_in_exactly_one_task(sizes, split, cores):
    tasks = tasks_of(ranges(sizes), split, cores)
    pieces = sorted(piece for task in tasks for piece in task)
    joined = []
    for piece in pieces:
        if joined and joined[-1].partition == piece.partition and joined[-1].end == piece.start:
            joined[-1] = joined[-1]._replace(end=piece.end)
        else:
            joined.append(piece)
    assert joined == ranges(sizes)
    assert tasks == tasks_of(ranges(sizes), split, cores)
    assert all(task for task in tasks)


@given(SIZES, SPLITS, st.integers(1, 8))
def test_task_limits_are_respected(sizes, split, cores):
    tasks = tasks_of(ranges(sizes), split, cores)
    if split.max_records:
        assert max(map(total, tasks)) <= split.max_records
    if split.min_partitions and sum(sizes) >= 100 * split.min_partitions:
        assert len(tasks) >= split.min_partitions * 3 // 5, "a piece may be 1.25 shares, and pieces are packed"


def test_small_partitions_are_combined_into_few_tasks():
    assert len(tasks_of(ranges([10] * 100), Split(), 2)) == 1
    assert len(tasks_of(ranges([10 * OFFSETS_PER_TASK_MIN] * 100), Split(), 2)) == 2


def test_large_partition_is_split():
    assert [total(task) for task in tasks_of(ranges([1_000_000]), Split(), 4)] == [250_000] * 4
    assert len(tasks_of(ranges([1_000_000]), Split(min_partitions=10), 2)) == 10
    assert len(tasks_of(ranges([1_000_000]), Split(max_records=300_000), 2)) == 4


def test_no_ranges_give_no_task():
    assert tasks_of([], Split(), 4) == []


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=20), st.integers(1, 10**6)
)
def test_rate_limited_batch_advances_every_partition_with_records(spans, limit):
    start = {at(n): first for n, (first, _) in enumerate(spans)}
    latest = {at(n): first + size for n, (first, size) in enumerate(spans)}
    ends = rate_limited(start, latest, limit)
    waiting = [n for n in start if latest[n] > start[n]]
    assert all(start[n] <= ends[n] <= latest[n] for n in start)
    assert all(ends[n] > start[n] for n in waiting)
    taken = sum(ends[n] - start[n] for n in start)
    assert taken <= max(limit, len(waiting)) + len(waiting)
    if sum(latest[n] - start[n] for n in start) <= limit:
        assert ends == latest


def test_rate_limit_is_split_in_proportion():
    start = {at(0): 0, at(1): 0, at(2): 0}
    latest = {at(0): 900, at(1): 100, at(2): 0}
    assert rate_limited(start, latest, 100) == {at(0): 90, at(1): 10, at(2): 0}


def test_new_partition_starts_at_offset_0():
    assert ranges_between({at(0): 5}, {at(0): 5, at(1): 3}) == [OffsetRange(TOPIC, 1, 0, 3)]


def test_truncated_partition_gives_no_range():
    assert ranges_between({at(0): 23}, {at(0): 0}) == []
