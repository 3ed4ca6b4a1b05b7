"""DeleteRecords, and responses about a log with a later start; DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import TRIMMED, delete_records, fetch, fetch_part, log_dirs, offsets, topic
from differential.base_groups import commit, fetch_offsets
from differential.batches import THEN_MS, batch
from differential.steps import BORDERLINE, VALID, WRONG, Scenario, Step, request_step
from odradek.base.units import INT64_MAX
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest

COMPACTED, BOTH, KEPT = f"{TRIMMED}compacted", f"{TRIMMED}both", f"{TRIMMED}kept"
EARLIEST, LATEST, GREATEST = -2, -1, -3
BATCHES = 10  # Of two records each.


def scenarios() -> list[Scenario]:
    prepared = [
        topic(COMPACTED, 1, cleanup_policy="compact"),
        topic(BOTH, 1, cleanup_policy="compact,delete"),
        topic(KEPT, 2),
    ]
    records = [(KEPT, 0, batch(THEN_MS + 10 * number)) for number in range(BATCHES)]
    return [
        Scenario("records prepared", [], prepared, records),
        *(Scenario(f"DeleteRecords v{version} asked", list(_offsets(version))) for version in range(3)),
        *(_deleted(version) for version in range(3)),
        *(Scenario(f"DescribeLogDirs v{version} asked", list(_log_dirs(version))) for version in range(1, 6)),
    ]


def _offsets(version: int) -> Iterator[Step]:
    requests = {
        "beyond the high watermark": (KEPT, 0, 2 * BATCHES + 1),
        "far beyond it": (KEPT, 0, INT64_MAX),
        "minus two": (KEPT, 0, -2),
        "a partition that is not there": (KEPT, 7, 0),
        "a partition below zero": (KEPT, -1, 0),
        "a topic that is not there": ("nowhere", 0, 0),
        "a bad name": ("a/b", 0, 0),
        "no name": ("", 0, 0),
        "compacted only": (COMPACTED, 0, 0),
        "compacted only, the end": (COMPACTED, 0, -1),
        "internal": ("__consumer_offsets", 0, 0),
        "internal, not there": ("__consumer_offsets", 99, 0),
    }
    for text, one in requests.items():
        yield request_step(text, WRONG, delete_records(one), version)
    yield request_step("nothing", BORDERLINE, delete_records(), version)
    yield request_step("an empty log, its end", VALID, delete_records((KEPT, 1, -1)), version)
    yield request_step("the start", VALID, delete_records((KEPT, 0, 0), (BOTH, 0, 0)), version)
    several = delete_records(("nowhere", 0, 1), (KEPT, 1, 0), (COMPACTED, 0, 0), (KEPT, 0, 99))
    yield request_step("several", WRONG, several, version)
    for timeout_ms in (0, -1):
        yield request_step(
            f"timeout {timeout_ms}", BORDERLINE, delete_records((KEPT, 0, 0), timeout_ms=timeout_ms), version
        )


def _deleted(version: int) -> Scenario:
    name, group = f"{TRIMMED}{version}", f"trimmed-group-{version}"

    def delete(text: str, *before: int) -> Step:
        return request_step(text, VALID, delete_records(*((name, 0, offset) for offset in before)), version)

    steps = [
        request_step("a group commits", VALID, commit(9, group, (name, 0, 3, "")), 9),
        delete("in the middle of a batch", 5),
        delete("lower", 2),
        request_step("where it begins", VALID, offsets([(0, EARLIEST)], name), 7),
        request_step("where it ends", VALID, offsets([(0, LATEST)], name), 7),
        request_step("a time before it", VALID, offsets([(0, THEN_MS)], name), 7),
        request_step("the greatest time", VALID, offsets([(0, GREATEST)], name), 7),
        request_step("what the group committed", VALID, fetch_offsets(7, (group, [(name, [0])])), 7),
        request_step("a fetch below", WRONG, fetch(12, [fetch_part(0, 4)], name), 12),
        request_step("a fetch at the start", VALID, fetch(12, [fetch_part(0, 5)], name), 12),
        delete("twice, the first too far", 99, 6),
        delete("twice, the last too far", 7, 99),
        delete("all", -1),
        request_step("where it begins then", VALID, offsets([(0, EARLIEST)], name), 7),
        request_step("a time, of none", VALID, offsets([(0, THEN_MS)], name), 7),
        request_step("the greatest time, of none", VALID, offsets([(0, GREATEST)], name), 7),
        request_step("a fetch below the end", WRONG, fetch(12, [fetch_part(0, 19)], name), 12),
        request_step("a fetch at the end", VALID, fetch(12, [fetch_part(0, 20)], name), 12),
    ]
    records = [(name, 0, batch(THEN_MS + 10 * number)) for number in range(BATCHES)]
    return Scenario(f"DeleteRecords v{version} made", steps, [topic(name)], records)


def _log_dirs(version: int) -> Iterator[Step]:
    yield request_step("everything", VALID, DescribeLogDirsRequest(topics=None), version)
    requests: dict[str, tuple[str, list[tuple[str, list[int]]]]] = {
        "nothing": (BORDERLINE, []),
        "a topic": (VALID, [(KEPT, [0, 1])]),
        "a partition": (VALID, [(KEPT, [1])]),
        "no partition of it": (BORDERLINE, [(KEPT, [])]),
        "a partition twice": (BORDERLINE, [(KEPT, [0, 0])]),
        "a topic twice": (BORDERLINE, [(KEPT, [0]), (KEPT, [1])]),
        "what is not there": (WRONG, [("nowhere", [0]), (KEPT, [7, -1]), ("", [0]), ("a/b", [0])]),
    }
    for text, (form, topics) in requests.items():
        yield request_step(text, form, log_dirs(*topics), version)
