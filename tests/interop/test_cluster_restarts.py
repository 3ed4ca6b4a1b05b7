"""One of three brokers restarted repeatedly under load: killed, stopped as planned, or with its session lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from kafka_zookeeper import OLD_KAFKA
from loaded_cluster import Cluster, Load, cluster

from odradek.coordination import tree_layout as layout
from odradek.coordination.zookeeper import open_zookeeper
from support.waiting import until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("kills brokers on a ZooKeeper of its own")]

KILLS, KILLS_FOR_LONG = 3, 30
SESSIONS, SESSIONS_FOR_LONG = 1, 10


def session(it: Cluster, number: int) -> int:
    """Return the session of a broker's registration, or 0 if it is not registered."""
    tree = open_zookeeper(it.connect)
    try:
        stat = tree.exists(layout.broker(number))
        return 0 if stat is None else stat.ephemeral_owner
    finally:
        tree.close()


def kill_and_start(folder: Path, kills: int) -> None:
    with cluster(folder) as it:
        with Load(it.address) as load:
            load.wait_for_progress()
            for _ in range(kills):
                before = session(it, 1)
                it.brokers[1].kill()
                assert session(it, 1) == before, "its session has not ended"
                it.brokers[1].start()
                load.wait_for_progress()
            it.until_in_sync({1, 2, 3})
        it.check(load)


def test_a_broker_restarted_before_its_session_ends_loses_nothing(tmp_path: Path) -> None:
    kill_and_start(tmp_path, KILLS)


@pytest.mark.soak
def test_a_broker_restarted_before_its_session_ends_for_long(tmp_path: Path) -> None:
    kill_and_start(tmp_path, KILLS_FOR_LONG)


def lose_sessions(folder: Path, sessions: int) -> None:
    with cluster(folder) as it:
        with Load(it.address) as load:
            load.wait_for_progress()
            for _ in range(sessions):
                paused = it.brokers[1].pid
                tree = open_zookeeper(it.connect)
                registration, _ = tree.get(layout.broker(1))
                os.kill(paused, signal.SIGSTOP)
                until(lambda: session(it, 1) == 0)
                # A server of the ensemble that is behind still has the node when the broker has a new session.
                tree.create(layout.broker(1), registration, ephemeral=True)
                before = tree.session_id
                os.kill(paused, signal.SIGCONT)
                load.wait_for_progress()
                assert session(it, 1) == before
                tree.close()
                until(lambda: session(it, 1) not in {0, before})  # noqa: B023  # It is called here alone.
                load.wait_for_progress()
                it.until_in_sync({1, 2, 3})
        it.check(load)


def test_a_stale_registration_is_waited_out(tmp_path: Path) -> None:
    """Its session has ended, but the node is still visible (KAFKA-6584, KAFKA-7165)."""
    lose_sessions(tmp_path, SESSIONS)


@pytest.mark.soak
def test_a_stale_registration_is_waited_out_for_long(tmp_path: Path) -> None:
    lose_sessions(tmp_path, SESSIONS_FOR_LONG)


def test_a_rolling_restart_changes_the_configuration(tmp_path: Path) -> None:
    """Each broker restarts once all replicas are in sync; in between, their configurations differ."""
    altered = {
        "replica.lag.time.max.ms": "4000",
        "num.replica.fetchers": "2",
        "replica.fetch.max.bytes": "20000",
        "unclean.leader.election.enable": "false",
        "log.segment.bytes": "1048576",
        "zookeeper.session.timeout.ms": "4000",
    }
    with cluster(tmp_path) as it:
        with Load(it.address) as load:
            for number in sorted(it.brokers):
                load.wait_for_progress()
                assert it.brokers[number].stop() == 0
                load.wait_for_progress()
                it.brokers[number].start(altered)
                it.until_in_sync({1, 2, 3})
            load.wait_for_progress()
        it.check(load)
