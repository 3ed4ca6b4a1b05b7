"""Histories of test_replicated_histories with clusters of an older inter.broker.protocol.version.

Leaders write ISRs to the tree themselves, followers request the point of divergence, and clients without topic ids name
topics. No topic is deleted, since another of its name would be taken for it.
"""

from __future__ import annotations

from random import Random

import pytest

from odradek.base.errors import Refused
from odradek.core.configs.broker_configs import BrokerConfigs
from sim.bugs import Bug, isr_admits_lagging_followers, logs_are_cut_at_the_high_watermark, logs_are_not_compared
from sim.simreplicaclients import SimReplicaClients
from sim.simreplicated import ReplicatedCluster
from sim.test_controller_histories import History, check, check_all
from sim.test_replicated_histories import ACTIONS_OF_REPLICAS, ReplicatedHistory
from support.seeds import seeds

KNOWN = (2806, 5987, 6082)
SEEDS, SOAK_SEEDS = seeds(range(80), KNOWN), range(80, 5_000)
FOUND_WITHIN = 300
PRODUCE, FETCH = 11, 11  # The last by the names of topics, and from before fetches could tell where logs part.
# Of Kafka's first with epochs; with sessions; with fenced fetches; the last without epochs in answers to fetches, the
# first with them; with AlterPartition; with the epochs of brokers in it.
VERSIONS = ("0.11.0", "1.1", "2.3", "2.6", "2.7-IV1", "3.2", "3.5-IV1")
LINGER_SECONDS = 10.0  # core/partition/isr_notifications.py


class OlderHistory(ReplicatedHistory):
    """One cluster, whose version its seed determines."""

    gathering_seconds = LINGER_SECONDS
    actions = tuple(action for action in ACTIONS_OF_REPLICAS if action is not History.delete)

    def make(self, seed: int) -> ReplicatedCluster:
        cluster = super().make(seed)
        version = Random(seed).choice(VERSIONS)
        self.trace = [f"inter.broker.protocol.version {version}"]
        cluster.configs = BrokerConfigs.parse({**cluster.settings, "inter.broker.protocol.version": version})
        return cluster

    def make_clients(self) -> SimReplicaClients:
        clients = super().make_clients()
        clients.produce_version, clients.fetch_version = PRODUCE, FETCH
        return clients


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_an_older_history_breaks_no_promise(seed: int) -> None:
    check(seed, OlderHistory)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug",
    [logs_are_cut_at_the_high_watermark, logs_are_not_compared, isr_admits_lagging_followers],
    ids=lambda bug: bug.__name__,
)
def test_an_injected_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, KeyError, Refused)):
        check_all(range(FOUND_WITHIN), OlderHistory)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_older_histories_break_no_promise() -> None:
    check_all(SOAK_SEEDS, OlderHistory)
