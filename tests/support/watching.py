"""A fetch that waits for a partition, and whose check of it finds that the disk has failed."""

from __future__ import annotations

import pytest

from odradek.core.fetch.fetch_sessions import CachedPartition, FetchKey, FetchSession
from odradek.core.kernel.purgatory import Purgatory
from odradek.core.partition.partition import Partition


def fail_disk_when_notified(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the partition offline as soon as it notifies the fetches that wait for it."""
    purgatory = Purgatory()
    session, cached = FetchSession(purgatory, 0, uses_ids=False), CachedPartition(FetchKey("t", 0), 0, 1)
    session.partitions[cached.key] = cached
    cached.session = session
    cached.watch(partition.watchers)
    monkeypatch.setattr(purgatory, "happened", lambda key, news=None: partition.take_offline())
