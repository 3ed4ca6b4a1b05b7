"""Slow work of one kind does not delay another: each kind has threads of its own."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from odradek.app.serve.broker_startup import RunningBroker
from odradek.net.loop.pools import Pool
from odradek.net.native import syncs
from odradek.testing import Broker
from support.asking import created, fetch_all, produced
from support.blocked_pool import SECONDS_MAX, BlockedPool
from support.raw_client import RawClient


@pytest.mark.parametrize("has_syncer", [True, False])
@pytest.mark.parametrize("pool", [Pool.READS, Pool.CHORES, Pool.LOADS, Pool.PRODUCER_IDS])
def test_acknowledgements_are_not_delayed_by_other_work(
    pool: Pool, has_syncer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary thread syncs the first write to a partition; without a compiler, every write."""
    monkeypatch.setattr(syncs, "HAS_SYNCER", has_syncer and syncs.HAS_SYNCER)
    with Broker(directory=tmp_path) as broker, RawClient(broker.port) as client, BlockedPool(broker, pool) as held:
        created(client, "t")
        assert [produced(client, "t", b"one"), produced(client, "t", b"two")] == [0, 1]
        assert [value for _, value in fetch_all(client, "t")] == [b"one", b"two"]
        assert not held.gate.is_set()


@pytest.mark.parametrize("pool", [Pool.SYNCS, Pool.CHORES, Pool.LOADS])
def test_cold_reads_are_not_delayed_by_other_work(pool: Pool) -> None:
    with Broker() as broker, BlockedPool(broker, pool) as held:
        was_read = threading.Event()

        async def read(running: RunningBroker) -> None:
            def then(done: Future[bytes]) -> None:
                assert done.result() == b"cold"
                was_read.set()

            running.shell.in_thread(lambda: b"cold", then)

        assert broker._host is not None
        broker._host.run_query(read)
        assert was_read.wait(SECONDS_MAX)
        assert not held.gate.is_set()
