"""Waits between two steps of a scenario for changes that a broker makes in the background."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from odradek.base.errors import ErrorCode
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from odradek.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.raw_client import RawClient

SECONDS_MAX = 30
POLL_SECONDS = 0.01
DYNAMIC_MAX = 3  # Sources of values up to this are dynamic.
GROUP, TRANSACTION = 0, 1  # Kinds of coordinators.


class ConfigIs(NamedTuple):
    """A wait until a topic or a broker has this value for a key, None for the default."""

    kind: int
    name: str
    key: str
    value: str | None

    def is_over(self, client: RawClient) -> bool:
        resource = DescribeConfigsResource(
            resource_type=self.kind, resource_name=self.name, configuration_keys=[self.key]
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        own = [
            entry.value
            for result in client.request(request, 1, DescribeConfigsResponse).results
            for entry in result.configs
            if entry.config_source <= DYNAMIC_MAX
        ]
        return own == ([] if self.value is None else [self.value])


class Wait(Protocol):
    def is_over(self, client: RawClient) -> bool: ...


class Coordinators(NamedTuple):
    """A wait until groups and transactions have their coordinator, and producers get ids."""

    def is_over(self, client: RawClient) -> bool:
        for kind in (GROUP, TRANSACTION):
            request = FindCoordinatorRequest(key="first", key_type=kind)
            if client.request(request, 2, FindCoordinatorResponse).error_code:
                return False
        anyone = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        someone = InitProducerIdRequest(transactional_id="first", transaction_timeout_ms=1000)
        if any(client.request(request, 4, InitProducerIdResponse).error_code for request in (anyone, someone)):
            return False
        described = client.request(DescribeGroupsRequest(groups=["first"]), 5, DescribeGroupsResponse)
        return described.groups[0].error_code == ErrorCode.NONE


class GroupIs(NamedTuple):
    """A wait until a classic group is in this state, with this number of members."""

    group: str
    state: str
    members: int | None = None

    def is_over(self, client: RawClient) -> bool:
        (group,) = client.request(DescribeGroupsRequest(groups=[self.group]), 5, DescribeGroupsResponse).groups
        return group.group_state == self.state and self.members in (None, len(group.members))


class ConsumerGroupIs(NamedTuple):
    """A wait until a consumer group reaches this epoch."""

    group: str
    epoch: int

    def is_over(self, client: RawClient) -> bool:
        request = ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=False)
        (group,) = client.request(request, 1, ConsumerGroupDescribeResponse).groups
        return group.group_epoch >= self.epoch


class TransactionIs(NamedTuple):
    """A wait until a transactional id is in this state."""

    transactional_id: str
    state: str

    def is_over(self, client: RawClient) -> bool:
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        (state,) = client.request(request, 0, DescribeTransactionsResponse).transaction_states
        return state.transaction_state == self.state


class GroupsSee(NamedTuple):
    """A wait until groups see this number of partitions: their coordinator learns of changes after its broker.

    A member joins a separate group, leaves and deletes it.
    """

    topic: str
    partitions: int

    def is_over(self, client: RawClient) -> bool:
        seen = self._beat(client, 0).assignment
        assert self._beat(client, -1).error_code == ErrorCode.NONE
        client.request(DeleteGroupsRequest(groups_names=["seer"]), 2, DeleteGroupsResponse)
        return sum(len(topic.partitions) for topic in (seen.topic_partitions if seen else ())) == self.partitions

    def _beat(self, client: RawClient, epoch: int) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id="seer",
            member_id="seer",
            member_epoch=epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[self.topic],
            topic_partitions=[],
        )
        return client.request(request, 1, ConsumerGroupHeartbeatResponse)
