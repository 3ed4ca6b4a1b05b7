"""ListOffsets: every query and timestamp in every version."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import offsets, topic
from differential.batches import THEN_MS, batch, compressed
from differential.steps import BORDERLINE, VALID, WRONG, Scenario, Step, request_step
from odradek.base.units import INT32_MAX, INT64_MAX
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

VERSIONS = range(1, 12)
NAME = "timed"  # Timestamps increase up to the largest, then lower ones follow; its second partition is empty.
TIMES = [THEN_MS + 10 * number for number in range(5)] + [THEN_MS + 500, THEN_MS + 60, THEN_MS + 70]
TIMESTAMPS = [0, 1, *(THEN_MS + delta for delta in (-1, 0, 1, 5, 6, 45, 46, 60, 75, 76, 499, 500, 505, 506)), INT64_MAX]
QUESTIONS = [-1, -2, -3, -4, -5, -6, -7, -8, -INT64_MAX - 1]


def scenarios() -> list[Scenario]:
    records = [(NAME, 0, batch(time)) for time in TIMES] + [(NAME, 2, compressed(1))]
    prepared = Scenario("offsets prepared", [], [topic(NAME, 3)], records)
    return [prepared, *(Scenario(f"ListOffsets v{version} times", list(_steps(version))) for version in VERSIONS)]


def _steps(version: int) -> Iterator[Step]:
    for time in TIMESTAMPS:
        yield request_step(f"time {time}", VALID, offsets([(0, time), (1, time), (2, time)], NAME), version)
    for question in QUESTIONS:
        form = VALID if question in (-1, -2) else BORDERLINE
        yield request_step(f"question {question}", form, offsets([(0, question), (1, question)], NAME), version)
        if version >= 2:
            request = offsets([(0, question)], NAME, isolation_level=1)
            yield request_step(f"question {question} of committed", form, request, version)
    if version >= 4:
        for epoch in (-1, 0, 1, -2, INT32_MAX):
            yield request_step(f"leader epoch {epoch}", WRONG, offsets([(0, -1)], NAME, epoch), version)
    for replica in (-2, 0, 1, 2, -3):
        yield request_step(f"as replica {replica}", BORDERLINE, offsets([(0, -1)], NAME, replica_id=replica), version)
    yield request_step("partitions wrong", WRONG, offsets([(-1, -1), (9, -1), (0, -1)], NAME), version)
    yield request_step("partition twice", BORDERLINE, offsets([(0, -1), (0, -2), (1, -1)], NAME), version)
    yield request_step("no partitions", BORDERLINE, offsets([], NAME), version)
    yield request_step("no topics", BORDERLINE, ListOffsetsRequest(replica_id=-1, topics=[]), version)
    for name in ("", "nowhere", "a/b", "x" * 250):
        yield request_step(f"topic {name[:20]!r}", WRONG, offsets([(0, -1)], name), version)
    topics = [
        ListOffsetsTopic(name=NAME, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1)])
        for index in (0, 1, 1)
    ]
    yield request_step("topic in three parts", BORDERLINE, ListOffsetsRequest(replica_id=-1, topics=topics), version)
    if version >= 10:
        for timeout_ms in (0, -1):
            request = offsets([(0, -1)], NAME)
            request.timeout_ms = timeout_ms
            yield request_step(f"timeout {timeout_ms}", BORDERLINE, request, version)
