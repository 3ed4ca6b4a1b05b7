"""The controller's access to a tree on disk: invalid nodes, nodes of others, and the number of calls per change."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from odradek.base.units import BrokerId, LeaderEpoch, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import Create, Operation, Unavailable, ensure_paths
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import BecomeLeaderOrFollower, UpdateMetadata
from odradek.core.controller.controller import Controller
from odradek.core.controller.controller_steps import Elect
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint, LeaderAndIsr, TopicAssignment
from odradek.net.controller.controller_changes import BYTES_PER_MULTI, ControllerChanges
from odradek.net.controller.controller_tree import ControllerTree

NOW = TimestampMs(1_700_000_000_000)


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"-")[:16])


class Counted:
    """A tree that counts its calls by name."""

    def __init__(self, tree: SqliteTree) -> None:
        self.tree = tree
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.tree, name)
        if not callable(found):
            return found

        def called(*arguments: object, **named: object) -> object:
            self.calls[name] += 1
            return found(*arguments, **named)

        return called


def raise_failure(failure: Unavailable) -> None:
    raise failure


class Member:
    """One broker's session, and its controller."""

    def __init__(self, path: Path, broker: int, new_topic_id: Callable[[], Uuid] | None = None) -> None:
        self.id = BrokerId(broker)
        self.tree = Counted(SqliteTree(path, durable=False))
        layout.ensure_startup_paths(self.tree)
        info = BrokerInfo(self.id, (Endpoint("PLAINTEXT", "localhost", 9092 + broker),))
        self.tree.create(layout.broker(self.id), layout.encode_broker(info, NOW), ephemeral=True)
        self.controller = Controller(self.id, new_topic_id=new_topic_id)
        self.events: list[events.Event] = []
        self.door = ControllerTree(self.tree, self.id, lambda: NOW, self.may_be_unclean, self.events.append)

    @staticmethod
    def may_be_unclean(config: Mapping[str, str]) -> bool:
        return config.get("unclean.leader.election.enable") == "true"

    def handle(self, event: events.Event) -> None:
        self.tree.calls.clear()
        self.door.run(self.controller.handle(event), raise_failure)

    def close(self) -> None:
        self.tree.tree.close()

    def create(self, name: str, *replicas: tuple[int, ...], has_id: bool = True) -> None:
        topic = TopicName(name)
        partitions = {index: tuple(map(BrokerId, brokers)) for index, brokers in enumerate(replicas)}
        assignment = TopicAssignment(partitions, topic_id(name) if has_id else ZERO_UUID)
        self.tree.multi(
            [
                Create(layout.config(layout.TOPIC_CONFIGS, topic), layout.encode_config({})),
                Create(layout.topic(topic), layout.encode_topic(assignment)),
            ]
        )

    def state(self, name: str, index: int = 0) -> LeaderAndIsr | None:
        return self.controller.context.states.get(TopicPartition(TopicName(name), index))


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Callable[[int], Member]]:
    made: list[Member] = []

    def make(broker: int) -> Member:
        made.append(Member(tmp_path / "tree", broker))
        return made[-1]

    yield make
    for member in made:
        member.close()


@contextmanager
def requests_sent(member: Member) -> Iterator[dict[type, list[Any]]]:
    """Yield the requests that follow, by their type."""
    found: dict[type, list[Any]] = {}
    member.controller.take_requests()
    yield found
    for request in member.controller.take_requests():
        found.setdefault(type(request.request), []).append(request)


def test_only_one_controller_is_elected(members: Callable[[int], Member]) -> None:
    first, second = members(0), members(1)
    first.create("flights", (0, 1), (1,))
    first.handle(events.ControllerChanged())
    second.handle(events.ControllerChanged())
    assert (first.controller.epoch, second.controller.is_active) == (1, False)
    assert first.state("flights") == LeaderAndIsr(BrokerId(0), LeaderEpoch(0), (BrokerId(0), BrokerId(1)), 0, 1, 0)
    data, _ = first.tree.get("/brokers/topics/flights/partitions/1/state")
    assert data == b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1]}'
    first.close()
    second.handle(events.ControllerChanged())
    assert second.controller.epoch == 2
    assert second.tree.get("/controller_epoch")[0] == b"2"
    state = second.state("flights")
    assert state is not None and (state.leader, state.isr, state.partition_epoch) == (1, (1,), 1)


def test_every_change_of_a_deposed_controller_is_refused(members: Callable[[int], Member]) -> None:
    first, second = members(0), members(1)
    first.create("flights", (0, 1))
    first.handle(events.ControllerChanged())
    first.tree.delete(layout.CONTROLLER)  # As an administrator does.
    second.handle(events.ControllerChanged())
    first.create("planes", (0,))
    ensure_paths(
        first.tree, [layout.delete_topic(TopicName("flights")), "/isr_change_notification/isr_change_0000000000"]
    )
    for event in (events.TopicsChanged(), events.DeletionsChanged(), events.IsrsChanged()):
        first.controller.epoch = first.controller.epoch or 1
        before = first.tree.tree.get("/brokers/topics")[1], first.tree.children("/isr_change_notification")
        first.handle(event)
        assert (first.tree.tree.get("/brokers/topics")[1], first.tree.children("/isr_change_notification")) == before
    assert first.tree.exists("/brokers/topics/planes/partitions") is None
    assert not first.controller.is_active


def test_unreadable_controller_epoch_is_reported(
    members: Callable[[int], Member], caplog: pytest.LogCaptureFixture
) -> None:
    member = members(0)
    ensure_paths(member.tree, [layout.CONTROLLER_EPOCH])
    member.tree.set(layout.CONTROLLER_EPOCH, b"seven")
    member.handle(events.ControllerChanged())
    assert not member.controller.is_active and "no broker can become the controller" in caplog.text
    member.tree.set(layout.CONTROLLER_EPOCH, b"7")
    deadline = time.monotonic() + 30
    while not member.events:  # A thread of the tree watches it.
        assert time.monotonic() < deadline
        time.sleep(0.01)
    member.handle(member.events[0])
    assert member.controller.epoch == 8


def test_unreadable_node_affects_only_its_topic(members: Callable[[int], Member]) -> None:
    member = members(0)
    for name in ("good", "bad_topic", "bad_state"):
        member.create(name, (0,), (0,))
    member.tree.set("/brokers/topics/bad_topic", b"{]")
    ensure_paths(member.tree, ["/brokers/topics/bad_state/partitions/0/state"])
    member.tree.set("/brokers/topics/bad_state/partitions/0/state", b"\xff")
    many_digits = f"/brokers/ids/{'9' * 5_000}"
    for path in (
        many_digits,
        "/brokers/ids/seven",
        "/brokers/ids/8",
        "/log_dir_event_notification/x",
        "/admin/delete_topics/never",
    ):
        member.tree.create(path, b"nothing")
    member.handle(events.ControllerChanged())
    assert member.controller.is_active and list(member.controller.context.brokers) == [0]
    assert member.state("good") is not None and member.state("bad_state", 1) is not None
    assert member.state("bad_state", 0) is None and member.state("bad_topic") is None
    assert member.tree.exists("/admin/delete_topics/never") is None
    assert member.tree.get("/brokers/topics/bad_state/partitions/0/state")[0] == b"\xff", "it is for a person to mend"


@pytest.mark.parametrize(
    "bad",
    [
        {"isr": [5]},
        {"isr": []},
        {"isr": [0, 0]},
        {"isr": [0, -4]},
        {"leader": -7},
        {"leader_epoch": -9},
        {"controller_epoch": -1},
        {"leader_recovery_state": 2},
    ],
    ids=str,
)
def test_state_that_no_controller_writes_is_not_sent(members: Callable[[int], Member], bad: dict[str, object]) -> None:
    """The broker beside the controller would lead without being in its own ISR."""
    member = members(0)
    member.create("flights", (0,), (0,))
    path = "/brokers/topics/flights/partitions/0/state"
    ensure_paths(member.tree, [path])
    state = {"version": 1, "leader": 0, "leader_epoch": 3, "controller_epoch": 1, "isr": [0], **bad}
    member.tree.set(path, json.dumps(state).encode())
    with requests_sent(member) as requests:
        member.handle(events.ControllerChanged())
    assert member.state("flights", 0) is None and member.state("flights", 1) is not None
    (become,) = requests[BecomeLeaderOrFollower]
    assert [partition.partition for partition in become.request.partitions] == [1]
    assert json.loads(member.tree.get(path)[0]) == state, "it is for a person to mend"


def test_assignment_that_repeats_a_broker_is_unreadable(members: Callable[[int], Member]) -> None:
    member = members(0)
    member.create("flights", (0,))
    member.create("planes", (0, 0))
    member.handle(events.ControllerChanged())
    assert [*member.controller.context.topics] == ["flights"]


def test_topic_is_removed_with_all_its_child_nodes(members: Callable[[int], Member]) -> None:
    member = members(0)
    member.create("flights", (0,))
    member.handle(events.ControllerChanged())
    member.tree.create("/brokers/topics/flights/partitions/strange", b"")
    ensure_paths(member.tree, [layout.delete_topic(TopicName("flights"))])
    with requests_sent(member) as requests:
        member.handle(events.DeletionsChanged())
    (stop,) = requests.popitem()[1]
    member.handle(events.Answered(stop, {}))
    assert not member.tree.children("/brokers/topics")
    assert not member.tree.children("/admin/delete_topics") and not member.tree.children("/config/topics")


def test_topic_with_new_child_nodes_keeps_its_deletion_mark(
    members: Callable[[int], Member], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = members(0)
    member.create("flights", (0,))
    member.handle(events.ControllerChanged())
    ensure_paths(member.tree, [layout.delete_topic(TopicName("flights"))])
    with requests_sent(member) as requests:
        member.handle(events.DeletionsChanged())
    (stop,) = requests.popitem()[1]
    monkeypatch.setattr(ControllerChanges, "_below", lambda self, path: [])  # They were created after the read.
    member.handle(events.Answered(stop, {}))
    assert "another client creates znodes below it" in caplog.text
    assert member.tree.children("/admin/delete_topics") == ["flights"]


def numbered_ids() -> Callable[[], Uuid]:
    numbers = count(1)
    return lambda: Uuid(next(numbers).to_bytes(16, "big"))


def stored_assignment(member: Member, name: str) -> tuple[TopicAssignment, int]:
    """Return the assignment in the tree, and its version."""
    data, stat = member.tree.get(layout.topic(TopicName(name)))
    return layout.decode_topic(data), stat.version


def test_new_controller_assigns_missing_topic_ids(tmp_path: Path) -> None:
    before = Member(tmp_path / "tree", 0)  # These brokers know no topic ids.
    before.create("flights", (0,), (0,), has_id=False)
    before.create("planes", (0,))
    before.handle(events.ControllerChanged())
    assert stored_assignment(before, "flights")[0].topic_id == ZERO_UUID
    before.tree.set("/brokers/topics/planes", before.tree.get("/brokers/topics/planes")[0])
    member = Member(tmp_path / "tree", 1, numbered_ids())
    member.create("unreadable", (1,), has_id=False)
    member.tree.set("/brokers/topics/unreadable", b"nothing")
    before.close()
    with requests_sent(member) as requests:
        member.handle(events.ControllerChanged())
    flights, version = stored_assignment(member, "flights")
    assert (flights.topic_id, flights.partitions, version) == (Uuid(bytes(15) + b"\1"), {0: (0,), 1: (0,)}, 1)
    assert stored_assignment(member, "planes") == (TopicAssignment({0: (BrokerId(0),)}, topic_id("planes")), 1), (
        "left alone"
    )
    assert requests[UpdateMetadata][0].request.topic_ids["flights"] == flights.topic_id
    member.create("later", (1,), has_id=False)
    with requests_sent(member) as requests:
        member.handle(events.TopicsChanged())
    assert stored_assignment(member, "later")[0].topic_id == Uuid(bytes(15) + b"\2")
    assert requests[BecomeLeaderOrFollower][0].request.topic_ids == {"later": Uuid(bytes(15) + b"\2")}
    member.close()


@pytest.mark.slow
def test_topic_ids_are_assigned_in_few_bounded_transactions(tmp_path: Path) -> None:
    member = Member(tmp_path / "tree", 0, numbered_ids())
    for number in range(BYTES_PER_MULTI // 10_000):
        member.create(f"topic-{number}", *[(0,)] * 1_000, has_id=False)  # About 13 KB each.
    member.handle(events.ControllerChanged())
    ids = {topic.topic_id for topic in member.controller.context.topics.values()}
    assert len(ids) == BYTES_PER_MULTI // 10_000 and ZERO_UUID not in ids
    member.tree.calls.clear()
    given = member.door._changes.assign_topic_ids(
        dict.fromkeys(map(TopicName, member.tree.children(layout.TOPICS)), ZERO_UUID)
    )
    assert {one.topic_id for one in given.values()} == ids, "who has one keeps it"
    assert not member.tree.calls["multi"]
    member.close()


def test_topic_that_grows_during_id_assignment_keeps_both_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, other = Member(tmp_path / "tree", 0, numbered_ids()), Member(tmp_path / "tree", 1)
    member.create("flights", (0,), has_id=False)
    member.create("planes", (0,), has_id=False)
    do_each = ControllerChanges._apply_each

    def change_concurrently(self: ControllerChanges, operations: Sequence[Operation]) -> None:
        monkeypatch.undo()
        grown = TopicAssignment({0: (BrokerId(0),), 1: (BrokerId(1),)})
        other.tree.set("/brokers/topics/flights", layout.encode_topic(grown))
        other.tree.delete("/brokers/topics/planes")
        do_each(self, operations)

    monkeypatch.setattr(ControllerChanges, "_apply_each", change_concurrently)
    given = member.door._changes
    member.door.execute(elect := Elect())
    assert elect.result == 1
    ids = {TopicName("flights"): topic_id("flights"), TopicName("planes"): topic_id("planes")}
    found = given.assign_topic_ids(ids)
    assert found == {"flights": TopicAssignment({0: (0,), 1: (1,)}, topic_id("flights"))}
    assert stored_assignment(member, "flights")[0] == found[TopicName("flights")]
    member.close()
    other.close()


def test_cost_of_a_change_is_independent_of_the_topic_count(members: Callable[[int], Member]) -> None:
    """However many topics there are."""
    member, other = members(0), members(1)
    for number in range(300):
        member.create(f"topic-{number}", *[(number % 2,)] * 4)
    member.handle(events.ControllerChanged())
    assert sum(member.tree.calls.values()) < 3 * 300 + 50, "a question for a topic, and some for all"
    member.create("one-more", (0,), (1,))
    with requests_sent(member) as requests:
        member.handle(events.TopicsChanged())
    assert sum(member.tree.calls.values()) < 15, member.tree.calls
    assert [len(one.request.partitions) for one in requests[BecomeLeaderOrFollower]] == [1, 1]
    assert [len(one.request.partitions) for one in requests[UpdateMetadata]] == [2, 2]
    other.close()
    with requests_sent(member) as requests:
        member.handle(events.BrokersChanged())
    assert sum(member.tree.calls.values()) < 15 + 300, member.tree.calls
    assert member.tree.calls["multi"] < 10
    assert [len(one.request.partitions) for one in requests[UpdateMetadata]] == [0, 150 * 4 + 1], "first who lives"
