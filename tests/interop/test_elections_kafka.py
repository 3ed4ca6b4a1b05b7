"""Leader elections compared with Apache Kafka 3.9.1: the same leader, ISR and epoch in every case."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka_zookeeper import OLD_KAFKA, V3, old_jars

from odradek.base.units import BrokerId, LeaderEpoch
from odradek.core.controller import partition_leader_election as elections
from odradek.core.controller.partition_leader_election import ElectionResult
from odradek.core.kernel.cluster_view import LeaderAndIsr

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("asks a running Apache Kafka the same as this broker")]

PROGRAM = Path(__file__).parent / "java" / "Elections.java"
LEADER, EPOCH = BrokerId(1), LeaderEpoch(7)  # As in the program: the former leader does not matter.
BROKERS = tuple(map(BrokerId, (1, 2, 3)))
REPLICAS = [(1, 2, 3), (3, 1, 2), (2, 1), (3,)]
TARGETS = [(1, 2, 3), (2, 3), (4, 1)]
SECONDS_MAX = 120

Numbers = tuple[BrokerId, ...]


class Case(NamedTuple):
    replicas: Numbers
    targets: Numbers
    isr: Numbers
    alive: Numbers
    stopping: Numbers

    @property
    def line(self) -> str:
        return "|".join(",".join(map(str, numbers)) for numbers in self)

    @property
    def elected(self) -> str:
        state, replicas, stopping = LeaderAndIsr(LEADER, EPOCH, self.isr), self.replicas, frozenset(self.stopping)
        alive = frozenset(self.alive)
        staying = alive - stopping
        found = [
            elections.for_offline(state, replicas, staying, may_be_unclean=False),
            elections.for_offline(state, replicas, staying, may_be_unclean=True),
            elections.for_preferred(state, replicas, staying),
            elections.for_controlled_shutdown(state, replicas, alive, stopping),
            elections.for_reassignment(state, self.targets, staying),
        ]
        return "|".join(map(line_of, found))


def line_of(elected: ElectionResult | None) -> str:
    if elected is None:
        return "-"
    state = elected.state
    return f"{state.leader} {state.leader_epoch} {','.join(map(str, state.isr))}"


def subsets(brokers: Iterable[BrokerId]) -> Iterator[Numbers]:
    numbers = tuple(brokers)
    return chain.from_iterable(combinations(numbers, count) for count in range(len(numbers) + 1))


def cases() -> Iterator[Case]:
    for replicas in (tuple(map(BrokerId, one)) for one in REPLICAS):
        for isr in subsets(replicas):
            for order in {isr, isr[::-1]}:
                for alive in subsets(BROKERS):
                    for stopping in subsets(alive):
                        for targets in TARGETS:
                            yield Case(replicas, tuple(map(BrokerId, targets)), order, alive, stopping)


def test_kafka_elects_the_same_leaders() -> None:
    played = list(cases())
    command = ["java", "-cp", f"{old_jars(V3)}/*", str(PROGRAM)]
    lines = "".join(f"{case.line}\n" for case in played)
    found = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=SECONDS_MAX)
    answers = [line for line in found.stdout.splitlines() if not line.startswith("log4j:")]
    assert len(answers) == len(played) > 1000
    wrong = [
        (case.line, case.elected, answer)
        for case, answer in zip(played, answers, strict=True)
        if case.elected != answer
    ]
    assert not wrong, wrong[:3]
