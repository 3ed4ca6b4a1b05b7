"""What the controller says waits while the metadata tree does not answer, and no longer than that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, LeaderEpoch, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.coordination.tree import TreeFailed
from odradek.core.cluster import LeaderAndIsr
from odradek.core.controller.requests import PartitionMetadata, ToBroker, UpdateMetadata
from odradek.core.moment import Moment
from odradek.core.replicas import Errors
from odradek.net import from_controller
from odradek.net.from_controller import FromController
from odradek.net.metadata import Metadata
from support.at_once import AtOnce
from support.in_memory import US, Harness
from support.waiting import SECONDS_MAX

TOPIC = TopicName("t")


class Shell(AtOnce):
    """Does all at once, but for what the loop is asked for."""

    def __init__(self, now: Moment) -> None:
        super().__init__(lambda: now, nullcontext)
        self.loop = asyncio.get_running_loop()


class Unanswered:
    """A tree that does not answer until its session has been begun anew."""

    def __init__(self) -> None:
        self.has_session = False

    def overrides(self, name: TopicName) -> Mapping[str, str]:
        if not self.has_session:
            raise TreeFailed(f"/config/topics/{name}", "there is no session")
        return {"retention.ms": "1"}


def update(controller_epoch: int, broker_epoch: int) -> ToBroker:
    state = LeaderAndIsr(US, LeaderEpoch(0), (US,))
    told = {TopicPartition(TOPIC, 0): PartitionMetadata(state, (US,), ())}
    request = UpdateMetadata(told, {TOPIC: Uuid(bytes(range(16)))}, (), is_full=False)
    return ToBroker(US, broker_epoch, US, controller_epoch, request)


def test_it_is_taken_in_at_once_when_there_is_a_session_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_controller, "RETRY_SECONDS", 2 * SECONDS_MAX)
    harness = Harness(tmp_path)
    broker, tree = harness.broker, Unanswered()
    before = broker.controlled.broker_epoch
    ends: list[Errors | Refused] = []

    async def play() -> None:
        shell = Shell(harness.now)
        told = FromController(
            shell, broker, cast(Metadata, tree), lambda call, *arguments: call(*arguments), updated=lambda: None
        )
        told.add(update(5, before), ends.append)
        told.add(update(6, before + 1), ends.append)
        told.go_on()
        assert not ends, "the tree does not answer"
        tree.has_session = True
        broker.registered(before + 1)
        told.renewed()
        told.go_on()
        told.renewed()  # Nothing waits.

    asyncio.run(play())
    stale, taken = ends
    assert isinstance(stale, Refused) and stale.code == ErrorCode.STALE_BROKER_EPOCH
    assert taken == {}
    assert broker.view.topics[TOPIC].configs == {"retention.ms": "1"}
    assert before != NO_EPOCH
