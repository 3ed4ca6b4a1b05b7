"""FindCoordinator, and the wait for the first coordinators, whose topics are created on the first lookup."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import configs, metadata
from differential.base_groups import find
from differential.steps import BORDERLINE, VALID, WRONG, Scenario, Step, request_step
from differential.waits import Coordinators

VERSIONS = range(7)
KINDS_SINCE, MANY_SINCE = 1, 4
CONFIGS = ["cleanup.policy", "compression.type", "segment.bytes", "unclean.leader.election.enable"]


def first() -> list[Scenario]:
    return [Scenario("coordinators", [Coordinators()])]


def scenarios() -> list[Scenario]:
    return [
        *(Scenario(f"FindCoordinator v{version} keys", list(_keys(version))) for version in VERSIONS),
        Scenario("topics of coordinators", list(_topics())),
    ]


def _keys(version: int) -> Iterator[Step]:
    yield request_step("a group", VALID, find(version, "anyone's"), version)
    yield request_step("no name", BORDERLINE, find(version, ""), version)
    if version >= KINDS_SINCE:
        yield request_step("a transactional id", VALID, find(version, "anyone's", kind=1), version)
        for kind in (-1, 2, 3):
            yield request_step(f"kind {kind}", WRONG, find(version, "anyone's", kind=kind), version)
    if version >= MANY_SINCE:
        yield request_step("many", VALID, find(version, "one", "two", "", "one"), version)
        yield request_step("none", BORDERLINE, find(version), version)
        yield request_step("none of a kind that is none", WRONG, find(version, kind=9), version)
        yield request_step("many of a kind that is none", WRONG, find(version, "one", "two", kind=9), version)


def _topics() -> Iterator[Step]:
    for name in ("__consumer_offsets", "__transaction_state"):
        yield request_step(f"{name}", VALID, metadata(12, name), 12)
        yield request_step(f"configs of {name}", VALID, configs(4, (2, name, CONFIGS)), 4)
