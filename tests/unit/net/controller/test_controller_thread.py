"""The controller's thread: a tree that is unreachable for a time amid a step, and sessions that end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, TimestampMs, TopicName
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import Create, SessionExpired, SessionListener, SessionState, Unavailable
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import ControlRequest, UpdateMetadata
from odradek.core.controller.controller import Controller
from odradek.core.controller.controller_steps import Steps
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint, TopicAssignment
from odradek.net.controller import controller_thread
from odradek.net.controller.controller_thread import ControllerThread
from odradek.net.controller.controller_tree import ControllerTree

ME = BrokerId(0)
NOW = TimestampMs(1_700_000_000_000)
SECONDS_MAX = 30


class Network:
    """A tree that may be unreachable, and reports it as a networked one does."""

    def __init__(self, tree: SqliteTree) -> None:
        self.tree = tree
        self.is_down = self.is_over = False
        self.refused = SimpleQueue[str]()  # Requests while it was down.
        self.listeners: list[SessionListener] = []

    def on_session(self, listener: SessionListener) -> None:
        self.listeners.append(listener)

    def report(self, state: SessionState) -> None:
        for listener in self.listeners:
            listener(state)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.tree, name)
        if not callable(found):
            return found

        def called(*arguments: object, **named: object) -> object:
            if self.is_over:
                raise SessionExpired
            if self.is_down:
                self.refused.put(name)
                raise Unavailable(detail="the network is down")
            return found(*arguments, **named)

        return called


class Running:
    """A controller in its thread, and its output."""

    def __init__(self, path: Path, *, rebalance_seconds: int | None = None) -> None:
        self.network = Network(SqliteTree(path, durable=False))
        layout.ensure_startup_paths(self.network)
        info = BrokerInfo(ME, (Endpoint("PLAINTEXT", "localhost", 9092),))
        self.network.create(layout.broker(ME), layout.encode_broker(info, NOW), ephemeral=True)
        self.sent = SimpleQueue[Sequence[ControlRequest]]()
        self.answered = SimpleQueue[events.ControllerQuery[Any]]()
        self.failures = SimpleQueue[Exception]()
        self.controller = Controller(ME)
        self.thread = ControllerThread(
            self.controller,
            self.network,
            ME,
            now=lambda: NOW,
            may_be_unclean=lambda config: False,
            send=self.sent.put,
            answered=self.answered.put,
            failed=self.failures.put,
            rebalance_seconds=rebalance_seconds,
        )

    def create(self, name: str) -> None:
        topic = TopicName(name)
        assignment = TopicAssignment({0: (ME,)}, Uuid(name.encode().ljust(16, b"-")))
        self.network.tree.multi([Create(layout.topic(topic), layout.encode_topic(assignment))])

    def await_all(self, *names: str) -> None:
        """Wait until the brokers get a full update with these topics."""
        found: set[str] | None = None
        while found != set(names):
            for request in self.sent.get(timeout=SECONDS_MAX):
                if isinstance(request.request, UpdateMetadata) and request.request.is_full:
                    found = {partition.topic for partition in request.request.partitions}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path / "tree")
    made.create("first")
    made.thread.start()
    made.await_all("first")
    yield made
    made.network.is_down = False
    made.thread.close()
    made.network.tree.close()
    assert made.failures.empty()


def test_step_continues_when_the_tree_is_reachable_again(running: Running) -> None:
    running.network.is_down = True
    running.network.report(SessionState.SUSPENDED)
    running.create(
        "second"
    )  # By somebody who reaches the tree; the watch for it is told all the same, as this tree has it.
    running.network.refused.get(timeout=SECONDS_MAX)
    assert running.sent.empty()
    running.network.is_down = False
    running.network.report(SessionState.CONNECTED)
    running.await_all("first", "second")
    assert running.controller.epoch == 1


def test_changes_during_a_suspension_are_read_without_a_watch(running: Running) -> None:
    running.network.report(SessionState.SUSPENDED)
    running.network.report(SessionState.CONNECTED)
    running.await_all("first")


def test_expired_session_deposes_the_controller(running: Running) -> None:
    running.network.is_over = True
    running.network.report(SessionState.EXPIRED)
    query = events.ShutDown(ME, -1)
    running.thread.put_event(query)
    assert running.answered.get(timeout=SECONDS_MAX) is query
    assert (query.answer, query.error) == (None, ErrorCode.NOT_CONTROLLER)
    assert not running.controller.is_active


def test_requests_are_answered_in_order(running: Running) -> None:
    queries = [events.ShutDown(ME, epoch) for epoch in (-1, 0, -1)]
    for query in queries:
        running.thread.put_event(query)
    assert [running.answered.get(timeout=SECONDS_MAX) for _ in queries] == queries
    assert [query.error for query in queries] == [ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE]


def test_thread_can_be_closed_while_it_waits(running: Running) -> None:
    running.network.is_down = True
    running.thread.put_event(events.TopicsChanged())
    running.network.refused.get(timeout=SECONDS_MAX)
    running.thread.close()
    assert running.sent.empty()


def test_bug_in_a_step_is_reported(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(tree: object, step: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(ControllerTree, "carry_out", broken)
    running.thread.put_event(events.TopicsChanged())
    assert isinstance(running.failures.get(timeout=SECONDS_MAX), KeyError)


@pytest.mark.slow
@pytest.mark.parametrize("rebalance_seconds", [1, None])
def test_preferred_replicas_are_elected_automatically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rebalance_seconds: int | None
) -> None:
    """Repeatedly, however busy the thread is; not where auto.leader.rebalance.enable is false."""
    monkeypatch.setattr(controller_thread, "FIRST_REBALANCE_SECONDS", 0.01)
    running = Running(tmp_path / "tree", rebalance_seconds=rebalance_seconds)
    due = SimpleQueue[events.Event]()
    handle = running.controller.handle

    def noted(event: events.Event) -> Steps:
        if isinstance(event, events.RebalanceDue):
            due.put(event)
        running.thread.put_event(events.DeletionsChanged())  # There is always work to do.
        return handle(event)

    monkeypatch.setattr(running.controller, "handle", noted)
    running.thread.start()
    running.await_all()
    if rebalance_seconds is not None:
        for _ in range(2):
            assert due.get(timeout=SECONDS_MAX) == events.RebalanceDue()
    running.network.is_over = True
    running.network.report(SessionState.EXPIRED)
    query = events.ShutDown(ME, -1)
    running.thread.put_event(query)
    assert running.answered.get(timeout=SECONDS_MAX) is query
    assert not running.controller.is_active and running.thread._rebalance_at is None
    running.thread.close()
    running.network.tree.close()
    assert running.failures.empty()
    assert rebalance_seconds is not None or due.empty()
