"""A shard whose leadership ends in the middle of its own work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.core.coordinators.durable import Written
from odradek.core.coordinators.state_log import StateRecord
from odradek.core.kernel.cluster_view import TRANSACTION_STATE
from odradek.core.kernel.moment import Moment
from support.in_memory import Harness
from support.transactional import Transactional, make_topic


def test_shard_may_end_during_its_own_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write runs the steps that waited for earlier ones.

    One of them may find that the disk has failed, and the next that this broker is not the coordinator anymore.
    """
    harness = Harness(tmp_path, transaction_state_log_num_partitions="1")
    make_topic(harness, "t")
    producer = Transactional(harness)
    producer.begin()
    assert producer.write("t", b"a") == ErrorCode.NONE
    shards = harness.broker.transactions.shards
    log = shards.shard(0).log
    append = log.append

    def append_and_end(records: Sequence[StateRecord], now: Moment) -> Written:
        written = append(records, now)
        harness.broker.partitions[TopicPartition(TRANSACTION_STATE, 0)].take_offline()
        shards.resign(0)
        return written

    monkeypatch.setattr(log, "append", append_and_end)
    began = harness.now.steady
    assert producer.end(commit=True) == ErrorCode.NOT_COORDINATOR
    assert harness.now.steady == began, "the client is answered at once"
