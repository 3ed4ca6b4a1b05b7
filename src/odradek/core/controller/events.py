"""What the controller is told: changes of the tree, answers of brokers, and what brokers ask of it.

A change of the tree says where to look and not what is there: it is read when the event is handled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, NO_EPOCH, BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.core.controller.broker_request_batch import ToBroker
from odradek.core.controller.partition_leader_election import ElectionType
from odradek.core.kernel.cluster_view import LeaderAndIsr

T = TypeVar("T")
BrokerEpochs = Mapping[BrokerId, int]


@dataclass(frozen=True)  # Tuples without fields would all be equal.
class ControllerChanged:
    """There may be no controller, or another one; also said at the start of a broker."""


@dataclass(frozen=True)
class Reconnected:
    """The tree could not be reached for a while, and its watches are gone: anything may have changed."""


@dataclass(frozen=True)
class SessionEnded:
    """This broker's session is over, and whoever was elected through it is deposed."""


@dataclass(frozen=True)
class BrokersChanged:
    """Brokers came or went, or one registered anew."""


@dataclass(frozen=True)
class TopicsChanged:
    """Topics came or went."""


@dataclass(frozen=True)
class TopicChanged:
    """A topic may have more partitions."""

    name: TopicName


@dataclass(frozen=True)
class DeletionsChanged:
    """Topics are marked for deletion."""


@dataclass(frozen=True)
class IsrsChanged:
    """Leaders changed ISRs by themselves, as before Kafka 2.7."""


@dataclass(frozen=True)
class DirectoriesFailed:
    """Brokers lost data directories."""


@dataclass(frozen=True)
class PreferredElectionsAsked:
    """Partitions are to be led by the first of their replicas."""


@dataclass(frozen=True)
class RebalanceDue:
    """It is time to see whether preferred replicas should lead again (auto.leader.rebalance.enable)."""


@dataclass(frozen=True)
class UncleanElectionEnabled:
    """unclean.leader.election.enable is true now for a topic, or by default for all if none is named."""

    name: TopicName | None = None


@dataclass(frozen=True)
class Answered:
    """A broker has answered a request; `errors` has the partitions that it could not do it for."""

    request: ToBroker
    errors: Mapping[TopicPartition, ErrorCode]


class Ask(Generic[T]):
    """What somebody asks of the controller.  Either `answer` is set at the end, or `error`."""

    def __init__(self) -> None:
        self.answer: T | None = None
        self.error = ErrorCode.NONE


class BrokerAsk(Ask[T]):
    """A broker's request."""

    def __init__(self, broker: BrokerId, broker_epoch: int) -> None:
        super().__init__()
        self.broker = broker
        self.broker_epoch = broker_epoch  # -1 from brokers before Kafka 2.2.


class ElectionEnd(NamedTuple):
    """What became of one partition's election: who leads from which epoch on, or why nobody was elected."""

    error: ErrorCode
    text: str | None = None
    leader: BrokerId = NO_BROKER
    leader_epoch: LeaderEpoch = NO_EPOCH


class ElectLeaders(Ask[Mapping[TopicPartition, ElectionEnd]]):
    """ElectLeaders: a client has these partitions led by their preferred replicas, or by any replica at all."""

    def __init__(self, election_type: ElectionType, partitions: Sequence[TopicPartition]) -> None:
        super().__init__()
        self.election_type = election_type
        self.partitions = partitions


class ShutDown(BrokerAsk[Sequence[TopicPartition]]):
    """ControlledShutdown: takes all leaderships from a broker; the answer is what it still leads, for want of others.

    Partitions without another replica don't count, nor those whose others stop, too: they are offline with it.
    """


class AlteredPartition(NamedTuple):
    """The answer about one partition: its state now, or why that was not changed."""

    error: ErrorCode
    state: LeaderAndIsr | None = None


class AlterPartitions(BrokerAsk[Mapping[TopicPartition, AlteredPartition]]):
    """AlterPartition (KIP-497): a leader has a new ISR; the state's epochs are those that the leader knows.

    `isr_epochs` are the broker epochs that the leader knows of an ISR's members (KIP-903), -1 or none if unknown.
    """

    def __init__(
        self,
        broker: BrokerId,
        broker_epoch: int,
        wanted: Mapping[TopicPartition, LeaderAndIsr],
        isr_epochs: Mapping[TopicPartition, BrokerEpochs] = MappingProxyType({}),
    ) -> None:
        super().__init__(broker, broker_epoch)
        self.wanted = wanted
        self.isr_epochs = isr_epochs


Event = (
    ControllerChanged
    | Reconnected
    | SessionEnded
    | BrokersChanged
    | TopicsChanged
    | TopicChanged
    | DeletionsChanged
    | IsrsChanged
    | DirectoriesFailed
    | PreferredElectionsAsked
    | RebalanceDue
    | UncleanElectionEnabled
    | Answered
    | ElectLeaders
    | ShutDown
    | AlterPartitions
)
