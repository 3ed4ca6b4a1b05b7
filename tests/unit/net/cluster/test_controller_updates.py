"""Controller requests, which wait only for an unreachable metadata tree; a failed one stops none after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, LeaderEpoch, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.coordination.tree import TreeFailed
from odradek.core.broker.replicas import Errors
from odradek.core.controller.broker_request_batch import (
    AssignedState,
    BecomeLeaderOrFollower,
    ControlRequest,
    PartitionMetadata,
    UpdateMetadata,
)
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.kernel.moment import Moment
from odradek.net.cluster import controller_updates as from_controller
from odradek.net.cluster.controller_updates import ControllerUpdates
from odradek.net.cluster.tree_metadata import Metadata
from odradek.net.loop.threads import done_here
from support.at_once import AtOnce
from support.in_memory import US, Harness
from support.waiting import SECONDS_MAX

TOPIC = TopicName("t")


class Shell(AtOnce):
    """A shell that executes everything immediately, except what the loop is requested to do."""

    def __init__(self, now: Moment) -> None:
        super().__init__(lambda: now, nullcontext)
        self.loop = asyncio.get_running_loop()

    def in_order(self, work: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        """Return the failure of a thread in its future, as a broker does."""
        self._tell(done_here(work), then)


class Unanswered:
    """A tree that does not respond until its session is renewed."""

    def __init__(self) -> None:
        self.has_session = False

    def check_controller_epoch(self, epoch: int) -> None:
        """Accept every epoch: each one named here had a controller."""

    def overrides(self, name: TopicName) -> Mapping[str, str]:
        if not self.has_session:
            raise TreeFailed(f"/config/topics/{name}", "there is no session")
        return {"retention.ms": "1"}


def update(controller_epoch: int, broker_epoch: int) -> ControlRequest:
    state = LeaderAndIsr(US, LeaderEpoch(0), (US,))
    partitions = {TopicPartition(TOPIC, 0): PartitionMetadata(state, (US,), ())}
    request = UpdateMetadata(partitions, {TOPIC: Uuid(bytes(range(16)))}, (), is_full=False)
    return ControlRequest(US, broker_epoch, US, controller_epoch, request)


def test_waiting_request_is_applied_when_the_session_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(from_controller, "RETRY_SECONDS", 2 * SECONDS_MAX)
    harness = Harness(tmp_path)
    broker, tree = harness.broker, Unanswered()
    before = broker.controlled.broker_epoch
    ends: list[Errors | Refused] = []

    async def play() -> None:
        shell = Shell(harness.now)
        updates = ControllerUpdates(
            shell, broker, cast(Metadata, tree), lambda call, *arguments: call(*arguments), updated=lambda: None
        )
        updates.add(update(5, before), ends.append)
        updates.add(update(6, before + 1), ends.append)
        updates.go_on()
        assert not ends, "the tree does not answer"
        tree.has_session = True
        broker.on_registered(before + 1)
        updates.renewed()
        updates.go_on()
        updates.renewed()  # Nothing waits.

    asyncio.run(play())
    stale, taken = ends
    assert isinstance(stale, Refused) and stale.code == ErrorCode.STALE_BROKER_EPOCH
    assert taken == {}
    assert broker.view.topics[TOPIC].configs == {"retention.ms": "1"}
    assert before != NO_EPOCH


# Failures.


class Tree(Unanswered):
    """A tree that responds; the latest controller epoch is 7."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.has_session = True
        self.failure = failure

    def overrides(self, name: TopicName) -> Mapping[str, str]:
        if self.failure is not None:
            raise self.failure
        return {}

    def check_controller_epoch(self, epoch: int) -> None:
        if epoch > 7:
            raise Refused(ErrorCode.STALE_CONTROLLER_EPOCH, f"{epoch}")


def ends_of(harness: Harness, tree: Tree, *sent: ControlRequest) -> list[Errors | Refused]:
    """Return the results of consecutive requests."""
    ends: list[Errors | Refused] = []

    async def play() -> None:
        shell = Shell(harness.now)
        updates = ControllerUpdates(
            shell, harness.broker, cast(Metadata, tree), lambda call, *rest: call(*rest), updated=lambda: None
        )
        for one in sent:
            updates.add(one, ends.append)
        for _ in sent:
            updates.go_on()
            await asyncio.sleep(0)
            while shell.slices:
                shell.do(shell.slices.popleft())

    asyncio.run(play())
    return ends


def code_of(end: Errors | Refused) -> ErrorCode:
    return end.code if isinstance(end, Refused) else ErrorCode.NONE


UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("failure", [ValueError("odd"), OSError("no such file"), RuntimeError("anything")])
def test_failed_thread_affects_only_its_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    harness = Harness(tmp_path)
    epoch = harness.broker.controlled.broker_epoch
    known = update(5, epoch)
    tree = Tree(failure)
    empty = known._replace(request=cast(UpdateMetadata, known.request)._replace(partitions={}))
    ends = ends_of(harness, tree, known, empty)
    assert [code_of(end) for end in ends] == [UNKNOWN, ErrorCode.NONE]
    (record,) = [one for one in caplog.records if one.exc_info]
    assert str(failure) in str(record.exc_info) and "UpdateMetadata" in record.getMessage()


def test_failed_slice_affects_only_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(tmp_path)
    broker, epoch = harness.broker, harness.broker.controlled.broker_epoch
    put = broker.view.put

    def fails_once(topic: object) -> None:
        monkeypatch.undo()
        raise IndexError(f"while {topic} is taken in")

    monkeypatch.setattr(type(broker.view), "put", lambda _, topic: fails_once(topic))
    ends = ends_of(harness, Tree(), update(5, epoch), update(6, epoch))
    assert put and [code_of(end) for end in ends] == [UNKNOWN, ErrorCode.NONE]
    assert TOPIC in broker.view.topics


def test_invented_controller_epoch_does_not_block_later_requests(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    epoch = harness.broker.controlled.broker_epoch
    ends = ends_of(harness, Tree(), *(update(one, epoch) for one in (6, 8, 2**31 - 1, 7, 6)))
    stale = ErrorCode.STALE_CONTROLLER_EPOCH
    assert [code_of(end) for end in ends] == [ErrorCode.NONE, stale, stale, ErrorCode.NONE, stale]
    assert harness.broker.controlled.controller_epoch == 7


def test_stale_request_creates_no_files(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    before = sorted(tmp_path.iterdir())
    state = AssignedState(LeaderAndIsr(US, LeaderEpoch(0), (US,)), (US,), is_new=True)
    become = BecomeLeaderOrFollower({TopicPartition(TOPIC, 0): state}, {TOPIC: Uuid(bytes(range(16)))}, ())
    stale = ControlRequest(US, 0, US, 5, become)
    ends = ends_of(harness, Tree(), stale)
    assert [code_of(end) for end in ends] == [ErrorCode.STALE_BROKER_EPOCH]
    assert sorted(tmp_path.iterdir()) == before
