"""Events of the controller: changes of the tree, answers and requests of brokers.

A change of the tree names the place but not the content, which is read when the event is handled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, NO_EPOCH, BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.core.controller.broker_request_batch import ControlRequest
from odradek.core.controller.partition_leader_election import ElectionType
from odradek.core.kernel.cluster_view import LeaderAndIsr

T = TypeVar("T")
BrokerEpochs = Mapping[BrokerId, int]


@dataclass(frozen=True)  # Tuples without fields would all be equal.
class ControllerChanged:
    """A possible change or resignation of the controller; also sent when a broker starts."""


@dataclass(frozen=True)
class Reconnected:
    """A reconnection to the tree, which lost its watches, so that anything may have changed."""


@dataclass(frozen=True)
class SessionEnded:
    """The end of this broker's session, which deposes a controller elected through it."""


@dataclass(frozen=True)
class BrokersChanged:
    """Registrations that appeared, disappeared or were renewed."""


@dataclass(frozen=True)
class TopicsChanged:
    """Creation or removal of topics."""


@dataclass(frozen=True)
class TopicChanged:
    """A possible addition of partitions to a topic."""

    name: TopicName


@dataclass(frozen=True)
class DeletionsChanged:
    """New marks for topic deletion."""


@dataclass(frozen=True)
class IsrsChanged:
    """ISRs written to the tree by leaders themselves, as before Kafka 2.7."""


@dataclass(frozen=True)
class DirectoriesFailed:
    """Failures of brokers' data directories."""


@dataclass(frozen=True)
class PreferredElectionsRequested:
    """A request for a preferred replica election of some partitions."""


@dataclass(frozen=True)
class RebalanceDue:
    """The time to check for leadership imbalance (auto.leader.rebalance.enable)."""


@dataclass(frozen=True)
class UncleanElectionEnabled:
    """A change of unclean.leader.election.enable to true, for the named topic or by default if None."""

    name: TopicName | None = None


@dataclass(frozen=True)
class Answered:
    """A broker's answer to a request; `errors` contains the failed partitions."""

    request: ControlRequest
    errors: Mapping[TopicPartition, ErrorCode]


class ControllerQuery(Generic[T]):
    """A request to the controller; at the end, either `answer` or `error` is set."""

    def __init__(self) -> None:
        self.answer: T | None = None
        self.error = ErrorCode.NONE


class BrokerQuery(ControllerQuery[T]):
    """A broker's request."""

    def __init__(self, broker: BrokerId, broker_epoch: int) -> None:
        super().__init__()
        self.broker = broker
        self.broker_epoch = broker_epoch  # -1 from brokers before Kafka 2.2.


class ElectionEnd(NamedTuple):
    """The result of one partition's election: the new leader and its epoch, or the error."""

    error: ErrorCode
    text: str | None = None
    leader: BrokerId = NO_BROKER
    leader_epoch: LeaderEpoch = NO_EPOCH


class ElectLeaders(ControllerQuery[Mapping[TopicPartition, ElectionEnd]]):
    """ElectLeaders: a client's request for preferred replicas, or any replicas, as leaders."""

    def __init__(self, election_type: ElectionType, partitions: Sequence[TopicPartition]) -> None:
        super().__init__()
        self.election_type = election_type
        self.partitions = partitions


class ShutDown(BrokerQuery[Sequence[TopicPartition]]):
    """ControlledShutdown: a broker's request to move all its leaderships; the answer lists the rest.

    The list omits partitions without another replica, and partitions whose other brokers are stopping, too. They go
    offline with this broker.
    """


class AlteredPartition(NamedTuple):
    """The answer for one partition: its current state, or the error."""

    error: ErrorCode
    state: LeaderAndIsr | None = None


class AlterPartitions(BrokerQuery[Mapping[TopicPartition, AlteredPartition]]):
    """AlterPartition (KIP-497): a leader's proposal of a new ISR, with the epochs known to the leader.

    `isr_epochs` are the broker epochs of ISR members as known to the leader (KIP-903); -1 or missing if unknown.
    """

    def __init__(
        self,
        broker: BrokerId,
        broker_epoch: int,
        proposals: Mapping[TopicPartition, LeaderAndIsr],
        isr_epochs: Mapping[TopicPartition, BrokerEpochs] = MappingProxyType({}),
    ) -> None:
        super().__init__(broker, broker_epoch)
        self.proposals = proposals
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
    | PreferredElectionsRequested
    | RebalanceDue
    | UncleanElectionEnabled
    | Answered
    | ElectLeaders
    | ShutDown
    | AlterPartitions
)
