"""Histories of test_controller_histories, with brokers that open logs, lead, and accept records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.core.broker.controlled import ControlRequestHandler
from odradek.core.kernel.cluster_view import ClusterView
from odradek.core.partition.storage import Storage
from sim.simcontrolled import ControlledCluster, SimControlled
from sim.test_controller_histories import ACTIONS_OF_HISTORY, BROKERS, History, check, check_all
from support.seeds import seeds

SEEDS, SOAK_SEEDS = seeds(range(100)), range(100, 10_000)
FOUND_WITHIN = 300


class ControlledHistory(History):
    """A history whose partitions have one replica each, as brokers cannot follow in it."""

    cluster: ControlledCluster

    def make(self, seed: int) -> ControlledCluster:
        return ControlledCluster(seed, BROKERS)

    @property
    def actions(self) -> tuple[Callable[[History], None], ...]:
        return (*ACTIONS_OF_HISTORY, *[ControlledHistory.write] * 10)  # type: ignore[list-item]

    def _replicas(self) -> list[int]:
        return [self.random.randrange(BROKERS)]

    def write(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            member = self._member()
            if isinstance(member, SimControlled) and not member.node.is_paused:
                self.cluster.write(member)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_controlled_history_breaks_no_promise(seed: int) -> None:
    check(seed, ControlledHistory)


def controllers_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ControlRequestHandler, "check", lambda self, sent: None)


def logs_are_not_deleted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Storage, "delete", lambda self, name, now: None)


def deleted_topics_stay_in_metadata(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClusterView, "remove", lambda self, name: None)


@pytest.mark.parametrize(
    "bug",
    [
        controllers_are_not_fenced,
        logs_are_not_deleted,
        deleted_topics_stay_in_metadata,
    ],
)
def test_an_injected_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        check_all(range(FOUND_WITHIN), ControlledHistory)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_controlled_histories_break_no_promise() -> None:
    check_all(SOAK_SEEDS, ControlledHistory)
