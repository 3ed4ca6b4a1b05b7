"""A coordinator's interface to its broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from odradek.base.units import BrokerId, TopicPartition
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.inter_broker_protocol import InterBrokerProtocol
from odradek.core.coordinators.durable import NextSteps
from odradek.core.kernel.cluster_view import ClusterView
from odradek.core.kernel.entropy import Entropy
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import Purgatory
from odradek.core.kernel.timers import Timers
from odradek.core.partition.leading import Leading
from odradek.core.partition.staging import Append
from odradek.record.record_batch import Batch


class AppendState(Protocol):
    """Writer of one batch to a state topic's partition with acks=all; raises Refused and writes nothing."""

    def __call__(self, leading: Leading, batch: Batch, now: Moment) -> Append: ...


class Runtime(NamedTuple):
    """A coordinator's handles on its broker.

    `view` is called each time, because the cluster changes. `compact` schedules compaction of a partition's log.
    `protocol` has the versions in which state is written.
    """

    broker_id: BrokerId
    configs: BrokerConfigs
    entropy: Entropy
    purgatory: Purgatory
    timers: Timers
    steps: NextSteps
    view: Callable[[], ClusterView]
    append: AppendState
    compact: Callable[[TopicPartition], object]
    protocol: InterBrokerProtocol
