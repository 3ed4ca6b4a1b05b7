"""OffsetForLeaderEpoch: every epoch in every version that Apache Kafka supports, without leader changes."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import ends_of_epochs, topic
from differential.batches import batch
from differential.steps import BORDERLINE, VALID, WRONG, Scenario, Step, request_step
from odradek.base.units import INT32_MAX

VERSIONS = range(2, 5)
NAME = "epochs"  # Its second partition is empty.


def scenarios() -> list[Scenario]:
    prepared = Scenario("epochs prepared", [], [topic(NAME, 2)], [(NAME, 0, batch())] * 3)
    return [
        prepared,
        *(Scenario(f"OffsetForLeaderEpoch v{version} epochs", list(_steps(version))) for version in VERSIONS),
    ]


def _steps(version: int) -> Iterator[Step]:
    for epoch in (-INT32_MAX - 1, -2, -1, 0, 1, INT32_MAX):
        form = VALID if epoch in (0, 1) else BORDERLINE
        yield request_step(f"epoch {epoch}", form, ends_of_epochs([(0, epoch), (1, epoch)], NAME), version)
    for epoch in (-1, 0, 1, -2, INT32_MAX):
        yield request_step(f"leader epoch {epoch}", WRONG, ends_of_epochs([(0, 0), (9, 0)], NAME, epoch=epoch), version)
    if version >= 3:
        for replica in (-3, -1, 0, 1, 2):
            yield request_step(
                f"as replica {replica}", BORDERLINE, ends_of_epochs([(0, 0)], NAME, replica_id=replica), version
            )
    yield request_step("partitions wrong", WRONG, ends_of_epochs([(-1, 0), (9, 0), (0, 0)], NAME), version)
    yield request_step("partition twice", BORDERLINE, ends_of_epochs([(0, 0), (0, 1), (1, 0), (0, 0)], NAME), version)
    yield request_step("no partitions", BORDERLINE, ends_of_epochs([], NAME), version)
    yield request_step("no topics", BORDERLINE, ends_of_epochs([]), version)
    for name in ("", "nowhere", "a/b", "x" * 250):
        yield request_step(f"topic {name[:20]!r}", WRONG, ends_of_epochs([(0, 0)], name), version)
    yield request_step(
        "topic in three parts", BORDERLINE, ends_of_epochs([(0, 0)], NAME, "nowhere", NAME, NAME), version
    )
