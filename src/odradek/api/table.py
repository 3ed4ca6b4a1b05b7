"""Every API that this broker answers, in the versions it answers.  Dispatch and ApiVersions both come from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from odradek.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from odradek.api.call import Call
from odradek.base.errors import ErrorCode
from odradek.core.parked import Parked
from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsRequest
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest
from odradek.wire.messages.create_topics import CreateTopicsRequest
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.describe_producers import DescribeProducersRequest
from odradek.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.join_group import JoinGroupRequest
from odradek.wire.messages.leave_group import LeaveGroupRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.list_offsets import ListOffsetsRequest
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.offset_commit import OffsetCommitRequest
from odradek.wire.messages.offset_delete import OffsetDeleteRequest
from odradek.wire.messages.offset_fetch import OffsetFetchRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.messages.sync_group import SyncGroupRequest
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.wire.messages.write_txn_markers import WriteTxnMarkersRequest

# The one place where bodies of all kinds meet: each handler is typed for its own message, and paired with it below.
Handler = Callable[[Call, Any], object | Parked[object] | None]
Refuser = Callable[[Call, Any, ErrorCode], object | None]


class Api(NamedTuple):
    """One API.  `versions` are those answered; `advertised_from` is what ApiVersions says instead of their first."""

    key: ApiKey
    request: type
    versions: range
    handle: Handler
    refuse: Refuser
    advertised_from: int | None = None

    @property
    def advertisement(self) -> ApiVersion:
        first = self.versions.start if self.advertised_from is None else self.advertised_from
        return ApiVersion(api_key=self.key, min_version=first, max_version=self.versions.stop - 1)


def _versions(first: int, last: int) -> range:
    return range(first, last + 1)


def _api_versions(call: Call, body: ApiVersionsRequest) -> object:
    return api_versions.handle(call, body, ADVERTISED)


# librdkafka before 2.11 takes a broker without Produce v0 for one without compression, so Kafka 4 and we say 0
# (KAFKA-18659).  What comes in v0 to v2 is not answered yet.
_PRODUCE = Api(ApiKey.PRODUCE, ProduceRequest, _versions(3, 13), produce.handle, produce.refuse, advertised_from=0)

_APIS = (
    _PRODUCE,
    Api(ApiKey.FETCH, FetchRequest, _versions(4, 18), fetch.handle, fetch.refuse),
    Api(ApiKey.LIST_OFFSETS, ListOffsetsRequest, _versions(1, 11), list_offsets.handle, list_offsets.refuse),
    Api(ApiKey.METADATA, MetadataRequest, _versions(0, 13), metadata.handle, metadata.refuse),
    Api(ApiKey.API_VERSIONS, ApiVersionsRequest, _versions(0, 5), _api_versions, api_versions.refuse),
    Api(ApiKey.CREATE_TOPICS, CreateTopicsRequest, _versions(2, 7), create_topics.handle, create_topics.refuse),
    Api(ApiKey.DELETE_TOPICS, DeleteTopicsRequest, _versions(1, 6), delete_topics.handle, delete_topics.refuse),
    Api(
        ApiKey.DESCRIBE_CONFIGS,
        DescribeConfigsRequest,
        _versions(1, 4),
        describe_configs.handle,
        describe_configs.refuse,
    ),
    Api(
        ApiKey.CREATE_PARTITIONS,
        CreatePartitionsRequest,
        _versions(0, 3),
        create_partitions.handle,
        create_partitions.refuse,
    ),
    Api(
        ApiKey.DESCRIBE_CLUSTER,
        DescribeClusterRequest,
        _versions(0, 2),
        describe_cluster.handle,
        describe_cluster.refuse,
    ),
    Api(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        DescribeTopicPartitionsRequest,
        _versions(0, 0),
        describe_topic_partitions.handle,
        describe_topic_partitions.refuse,
    ),
    Api(ApiKey.JOIN_GROUP, JoinGroupRequest, _versions(0, 9), join_group.handle, join_group.refuse),
    Api(ApiKey.SYNC_GROUP, SyncGroupRequest, _versions(0, 5), sync_group.handle, sync_group.refuse),
    Api(ApiKey.HEARTBEAT, HeartbeatRequest, _versions(0, 4), heartbeat.handle, heartbeat.refuse),
    Api(ApiKey.LEAVE_GROUP, LeaveGroupRequest, _versions(0, 5), leave_group.handle, leave_group.refuse),
    Api(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ConsumerGroupHeartbeatRequest,
        _versions(0, 1),
        consumer_group_heartbeat.handle,
        consumer_group_heartbeat.refuse,
    ),
    Api(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ConsumerGroupDescribeRequest,
        _versions(0, 1),
        consumer_group_describe.handle,
        consumer_group_describe.refuse,
    ),
    Api(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest, _versions(0, 6), describe_groups.handle, describe_groups.refuse),
    Api(
        ApiKey.ADD_OFFSETS_TO_TXN,
        AddOffsetsToTxnRequest,
        _versions(0, 4),
        add_offsets_to_txn.handle,
        add_offsets_to_txn.refuse,
    ),
    Api(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        AddPartitionsToTxnRequest,
        _versions(0, 5),
        add_partitions_to_txn.handle,
        add_partitions_to_txn.refuse,
    ),
    Api(
        ApiKey.DESCRIBE_PRODUCERS,
        DescribeProducersRequest,
        _versions(0, 0),
        describe_producers.handle,
        describe_producers.refuse,
    ),
    Api(
        ApiKey.DESCRIBE_TRANSACTIONS,
        DescribeTransactionsRequest,
        _versions(0, 0),
        describe_transactions.handle,
        describe_transactions.refuse,
    ),
    Api(ApiKey.END_TXN, EndTxnRequest, _versions(0, 5), end_txn.handle, end_txn.refuse),
    Api(
        ApiKey.FIND_COORDINATOR,
        FindCoordinatorRequest,
        _versions(0, 6),
        find_coordinator.handle,
        find_coordinator.refuse,
    ),
    Api(
        ApiKey.INIT_PRODUCER_ID,
        InitProducerIdRequest,
        _versions(0, 6),
        init_producer_id.handle,
        init_producer_id.refuse,
    ),
    Api(
        ApiKey.LIST_TRANSACTIONS,
        ListTransactionsRequest,
        _versions(0, 2),
        list_transactions.handle,
        list_transactions.refuse,
    ),
    Api(
        ApiKey.WRITE_TXN_MARKERS,
        WriteTxnMarkersRequest,
        _versions(1, 2),
        write_txn_markers.handle,
        write_txn_markers.refuse,
    ),
    Api(ApiKey.OFFSET_COMMIT, OffsetCommitRequest, _versions(2, 10), offset_commit.handle, offset_commit.refuse),
    Api(ApiKey.OFFSET_FETCH, OffsetFetchRequest, _versions(1, 10), offset_fetch.handle, offset_fetch.refuse),
    Api(ApiKey.OFFSET_DELETE, OffsetDeleteRequest, _versions(0, 0), offset_delete.handle, offset_delete.refuse),
    Api(ApiKey.LIST_GROUPS, ListGroupsRequest, _versions(0, 5), list_groups.handle, list_groups.refuse),
    Api(ApiKey.DELETE_GROUPS, DeleteGroupsRequest, _versions(0, 2), delete_groups.handle, delete_groups.refuse),
    Api(
        ApiKey.TXN_OFFSET_COMMIT,
        TxnOffsetCommitRequest,
        _versions(0, 5),
        txn_offset_commit.handle,
        txn_offset_commit.refuse,
    ),
)


BY_KEY: dict[int, Api] = {int(api.key): api for api in _APIS}
ADVERTISED = [api.advertisement for _, api in sorted(BY_KEY.items())]
