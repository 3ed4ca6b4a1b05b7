"""Simulated replicated clusters, one per seed, with transactions and groups whose coordinators fail and move.

Read-committed consumers see committed transactions only, and completely; a fenced producer has no further effect; a
committed offset never goes back.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.base.errors import Refused
from odradek.base.units import TopicName, TopicPartition
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.kernel.moment import Moment
from odradek.core.partition.partition import Partition
from odradek.core.transactions import transaction_rules as rules
from odradek.core.transactions.transaction_coordinator import TransactionCoordinator
from odradek.core.transactions.transaction_shard import TransactionShard
from odradek.core.transactions.transaction_states import Transaction
from odradek.log.producers.aborted_transactions import AbortedTransactions
from sim.bugs import Bug
from sim.simcoordinated import CoordinatedCluster
from sim.simtransactionclients import TransactionClients
from sim.test_controller_histories import BROKERS, History, check, check_all
from sim.test_replicated_histories import ACTIONS_OF_REPLICAS, ReplicatedHistory
from support.seeds import seeds

KNOWN = (2993, 3321, 3394, 7496)
SEEDS, SOAK_SEEDS = seeds(range(90), KNOWN), range(90, 5_000)
FOUND_WITHIN = 60


class CoordinatedHistory(ReplicatedHistory):
    """One cluster, its clients, and the events in it."""

    cluster: CoordinatedCluster
    clients: TransactionClients

    def make(self, seed: int) -> CoordinatedCluster:
        return CoordinatedCluster(seed, BROKERS)

    def make_clients(self) -> TransactionClients:
        return TransactionClients(self.cluster)

    @property
    def actions(self) -> tuple[Callable[[History], None], ...]:
        return ACTIONS_WITH_COORDINATORS  # type: ignore[return-value]

    def make_topics(self) -> None:
        super().make_topics()
        self.cluster.make_topics()

    @property
    def preferred(self) -> list[TopicPartition]:
        return [TopicPartition(name, index) for name in self.cluster.topics() for index in range(3)]

    def _topic(self) -> TopicName | None:
        """Return a topic; those of transactions and their state are kept."""
        found = [name for name in self._topics() if name.startswith("topic-")]
        return self.random.choice(found) if found else None

    def fence(self) -> None:
        """Start another process with the transactional id of a running one."""
        self.clients.fence()


ACTIONS_WITH_COORDINATORS = (*ACTIONS_OF_REPLICAS, *[CoordinatedHistory.fence] * 3)


class HurriedHistory(CoordinatedHistory):
    """A history with many more broker failures, so that coordinators change in quick succession."""

    actions = (
        *ACTIONS_WITH_COORDINATORS,
        *[History.kill, History.bounce, History.start, ReplicatedHistory.cut, History.expire] * 5,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_coordinated_history_breaks_no_promise(seed: int) -> None:
    check(seed, CoordinatedHistory)


def open_transactions_are_stable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "last_stable_offset", property(lambda self: self.positions.high_watermark))


def fenced_producers_continue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "check_producer", lambda was, producer: None)


def aborted_transactions_are_not_returned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AbortedTransactions, "reaching", lambda self, *_, **__: ())


def a_state_is_safe_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingWrite, "is_settled", True)
    patch.setattr(PendingWrite, "is_safe", True)


def unreplicated_decisions_are_completed(patch: pytest.MonkeyPatch) -> None:
    def resume(self: TransactionCoordinator, shard: TransactionShard, transaction: Transaction, now: Moment) -> None:
        if transaction.is_decided:
            self.completions.resume(shard, transaction, now)

    patch.setattr(TransactionCoordinator, "_resume", resume)


# With the first seed to try: rare histories appear soon after it.
BUGS: dict[Bug, tuple[type[CoordinatedHistory], int]] = {
    open_transactions_are_stable: (CoordinatedHistory, 0),
    fenced_producers_continue: (CoordinatedHistory, 71),
    aborted_transactions_are_not_returned: (CoordinatedHistory, 0),
    a_state_is_safe_at_once: (CoordinatedHistory, 0),
    unreplicated_decisions_are_completed: (HurriedHistory, 100),
}


@pytest.mark.slow
@pytest.mark.share(5)
@pytest.mark.parametrize("bug", BUGS)
def test_an_injected_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    kind, first = BUGS[bug]
    with pytest.raises((AssertionError, KeyError, Refused)):
        check_all(range(first, first + FOUND_WITHIN), kind)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_coordinated_histories_break_no_promise() -> None:
    check_all(SOAK_SEEDS, CoordinatedHistory)
