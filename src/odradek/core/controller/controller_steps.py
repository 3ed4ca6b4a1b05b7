"""The controller's operations on the metadata tree, as values, executed by the caller.

    def handle(event) -> Steps:
        read = ReadStates(partitions)
        yield read
        for partition, state in read.result.items(): ...

The controller continues with `result` after each step. Each change carries the controller's epoch, and the tree
refuses it once another broker has been elected. Then `Deposed` is raised where the step was yielded, and the
controller discards its state. If the tree is unreachable, the step waits and reports nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.controller.controller_context import LiveBroker
from odradek.core.kernel.cluster_view import LeaderAndIsr, TopicAssignment

T_co = TypeVar("T_co", covariant=True)


class Deposed(Exception):
    """The election of another broker as controller, or the end of this controller's session."""


class Step(Generic[T_co]):
    """One step; `result` is set before the controller continues."""

    result: T_co


T = TypeVar("T")
Finding = Generator[Step[object], None, T]  # Steps that return a result.
Steps = Finding[None]


class Elect(Step[int | None]):
    """An attempt to become the controller; the result is the new epoch, or None if there is another."""


class ReadBrokers(Step[Mapping[BrokerId, LiveBroker]]):
    """A read of all registrations; a broker with an unreadable registration is treated as dead."""


class ReadTopics(Step[Mapping[TopicName, TopicAssignment]]):
    """A read of the assignments of some or all topics; the result omits missing and unreadable ones."""

    def __init__(self, names: Sequence[TopicName] | None = None) -> None:
        self.names = names


class ReadTopicNames(Step[Sequence[TopicName]]):
    """A read of the names of all topics."""


class AssignTopicIds(Step[Mapping[TopicName, TopicAssignment]]):
    """A write of ids into assignments without one; the result has the assignments now in the tree.

    It omits topics that have been deleted since, or can't be read.
    """

    def __init__(self, ids: Mapping[TopicName, Uuid]) -> None:
        self.ids = ids


class ReadStates(Step[Mapping[TopicPartition, LeaderAndIsr]]):
    """A read of partition states; the result omits missing and unreadable ones."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self.partitions = partitions


class ReadMayBeUnclean(Step[Mapping[TopicName, bool]]):
    """A read of unclean.leader.election.enable for topics, as set on the topic or on all brokers."""

    def __init__(self, names: Sequence[TopicName]) -> None:
        self.names = names


class WriteStatesResult(NamedTuple):
    """The result of WriteStates: states now in the tree, and partitions with another znode version."""

    states: dict[TopicPartition, LeaderAndIsr]
    stale: list[TopicPartition]


class WriteStates(Step[WriteStatesResult]):
    """A write of states, if their znodes still have the partition epoch; with `creates`, of new ones.

    Written states have the controller's epoch and are returned with their new partition epoch.
    """

    def __init__(self, states: Mapping[TopicPartition, LeaderAndIsr], *, creates: bool = False) -> None:
        self.states = states
        self.creates = creates


class ReadDeletions(Step[Sequence[TopicName]]):
    """A read of the names of topics marked for deletion."""


class RemoveTopics(Step[None]):
    """The removal of all znodes of topics, the marks last; missing ones are skipped."""

    def __init__(self, names: Sequence[TopicName]) -> None:
        self.names = names


class Notices(NamedTuple):
    """Notifications from brokers, which stay in the tree until they are deleted."""

    paths: Sequence[str]
    partitions: Sequence[TopicPartition] = ()
    brokers: Sequence[BrokerId] = ()


class ReadIsrChanges(Step[Notices]):
    """A read of the partitions whose leaders wrote the ISR themselves, as before Kafka 2.7."""


class ReadFailedDirectories(Step[Notices]):
    """A read of the brokers that reported a failed data directory."""


class ReadPreferredElections(Step[Notices]):
    """A read of the partitions with a requested preferred replica election."""


class DeleteNotices(Step[None]):
    """The deletion of notifications that were read, or of all if none is named."""

    def __init__(self, paths: Sequence[str] | None = None) -> None:
        self.paths = paths
