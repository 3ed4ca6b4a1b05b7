"""What the controller asks of the metadata tree, as values: who runs it carries each out, and it goes on with `result`.

    def handle(event) -> Steps:
        read = ReadStates(partitions)
        yield read
        for partition, state in read.result.items(): ...

Each change carries the controller's epoch and is refused by the tree once another broker has been elected: then
`Deposed` is raised where the step was yielded, and the controller knows nothing any more.  A tree that can't be reached
is waited for, not told of.
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
    """Another broker is the controller, or none is and this one's session has ended."""


class Step(Generic[T_co]):
    """One step.  `result` is set before the controller goes on."""

    result: T_co


T = TypeVar("T")
Finding = Generator[Step[object], None, T]  # Steps that end with something found.
Steps = Finding[None]


class Elect(Step[int | None]):
    """Becomes the controller, if nobody is; the result is the new epoch, None if another broker is."""


class ReadBrokers(Step[Mapping[BrokerId, LiveBroker]]):
    """Reads all registrations.  Of one that can't be read nobody knows the address: that broker is as if dead."""


class ReadTopics(Step[Mapping[TopicName, TopicAssignment]]):
    """Reads assignments, of all topics if none is named; the result lacks what is not there or can't be read."""

    def __init__(self, names: Sequence[TopicName] | None = None) -> None:
        self.names = names


class ReadTopicNames(Step[Sequence[TopicName]]):
    """Reads which topics there are."""


class GiveTopicIds(Step[Mapping[TopicName, TopicAssignment]]):
    """Writes ids into the assignments of topics that have none yet; the result has them as they are in the tree now.

    It lacks topics that are gone meanwhile, or can't be read.
    """

    def __init__(self, ids: Mapping[TopicName, Uuid]) -> None:
        self.ids = ids


class ReadStates(Step[Mapping[TopicPartition, LeaderAndIsr]]):
    """Reads the states of partitions; the result lacks those that have none yet, or one that can't be read."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self.partitions = partitions


class ReadMayBeUnclean(Step[Mapping[TopicName, bool]]):
    """Reads unclean.leader.election.enable of topics, as it is set on them or on all brokers."""

    def __init__(self, names: Sequence[TopicName]) -> None:
        self.names = names


class Written(NamedTuple):
    """The end of a WriteStates: states as they are in the tree now, and partitions whose znode had another version."""

    states: dict[TopicPartition, LeaderAndIsr]
    stale: list[TopicPartition]


class WriteStates(Step[Written]):
    """Writes states, each if its znode still has the state's partition epoch; with `creates`, new ones.

    What is written has the controller's epoch, and comes back with its new partition epoch.
    """

    def __init__(self, states: Mapping[TopicPartition, LeaderAndIsr], *, creates: bool = False) -> None:
        self.states = states
        self.creates = creates


class ReadDeletions(Step[Sequence[TopicName]]):
    """Reads which topics are marked for deletion."""


class RemoveTopics(Step[None]):
    """Removes all that the tree has of topics, their marks last; what is not there any more is left out."""

    def __init__(self, names: Sequence[TopicName]) -> None:
        self.names = names


class Notices(NamedTuple):
    """Notifications from brokers, which lie in the tree until they are deleted."""

    paths: Sequence[str]
    partitions: Sequence[TopicPartition] = ()
    brokers: Sequence[BrokerId] = ()


class ReadIsrChanges(Step[Notices]):
    """Reads of which partitions leaders have changed the ISR by themselves, as before Kafka 2.7."""


class ReadFailedDirectories(Step[Notices]):
    """Reads which brokers have told of a failed data directory."""


class ReadPreferredElections(Step[Notices]):
    """Reads of which partitions the preferred replica is to lead."""


class DeleteNotices(Step[None]):
    """Deletes notifications that were read; all there are, if none is named."""

    def __init__(self, paths: Sequence[str] | None = None) -> None:
        self.paths = paths
