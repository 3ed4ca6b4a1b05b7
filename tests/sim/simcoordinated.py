"""Members of the simulated cluster that coordinate groups and transactions, with replicated state.

Brokers send each other requests for markers, and to verify partitions of transactions, over the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, ProducerId, TopicName
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.net.channels.broker_channels import BrokerChannels
from odradek.net.channels.channel_requests import RequestBuilder
from odradek.net.cluster.broker_requests import BrokerRequests
from odradek.net.cluster.controller_updates import Shell
from sim.simreplicated import ReplicatedCluster, SimReplicated
from sim.simrequests import SimServer

T = TypeVar("T")

ACCOUNTS = TopicName("accounts")  # Topics written by transactions.
IDS = 1000  # Producer ids of one block.


class SimChannels:
    """The simulated counterpart of net/'s channels to other brokers."""

    def __init__(self, member: SimReplicated) -> None:
        self._member = member

    def send_request(self, broker: BrokerId, builder: RequestBuilder[T], then: Callable[[T | Refused], None]) -> None:
        member = self._member

        def ended(answer: T | None) -> None:
            then(Refused(ErrorCode.NETWORK_EXCEPTION) if answer is None else answer)

        if broker in member.cluster.members:
            member.cluster.request(member.id, broker, builder, ended)
        else:
            member.node.soon(lambda: ended(None))


class SimCoordinating(SimReplicated):
    """A member whose coordinators send requests to other members."""

    cluster: CoordinatedCluster

    def make_server(self, shell: Shell) -> SimServer:
        self.broker_requests = BrokerRequests(shell, self.broker, cast("BrokerChannels", SimChannels(self)))
        return SimServer(
            self.broker, self.node, self.cluster.delay_us, self.send_pending_requests, self.cluster.next_ids
        )

    def send_pending_requests(self) -> None:
        super().send_pending_requests()
        self.broker_requests.send_queued_requests()


class CoordinatedCluster(ReplicatedCluster):
    """A cluster of such members, with both internal topics."""

    members: dict[BrokerId, SimCoordinating]  # type: ignore[assignment]

    def __init__(self, seed: int, brokers: int = 3) -> None:
        super().__init__(seed, brokers)
        self.configs = BrokerConfigs.parse({**self.settings, **COORDINATORS})
        self.members.update({id: SimCoordinating(self, id) for id in self.members})
        self._next_id = 0

    def make_topics(self) -> None:
        """Create the topics for transactions and groups, with a replica on each broker."""
        for name, count in ((TRANSACTION_STATE, 1), (CONSUMER_OFFSETS, 1), (ACCOUNTS, 2)):
            self.create_topic(name, [self.random.sample(range(3), 3) for _ in range(count)])

    def next_ids(self) -> ProducerIdBlock:
        self._next_id += IDS
        return ProducerIdBlock(ProducerId(100_000 + self._next_id), ProducerId(100_000 + self._next_id + IDS - 1))


COORDINATORS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
