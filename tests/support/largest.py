"""The largest requests for every API that are within the limits, about existing or missing objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.base.limits import REQUEST_ELEMENTS_MAX
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.groups.consumer.heartbeating import SUBSCRIBED_TOPICS_MAX
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS
from odradek.record.builder import encode_batch
from odradek.wire.messages import (
    add_partitions_to_txn,
    alter_configs,
    incremental_alter_configs,
    leave_group,
    list_offsets,
    offset_fetch,
    write_txn_markers,
)
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.compact_partitions import CompactPartitionsRequest, CompactPartitionsTopic
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.wire.messages.describe_producers import DescribeProducersRequest
from odradek.wire.messages.describe_producers import TopicRequest as ProducersOf
from odradek.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek.wire.messages.describe_topic_partitions import TopicRequest as PartitionsOf
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest
from odradek.wire.messages.elect_leaders import TopicPartitions as LeadersOf
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.list_config_resources import ListConfigResourcesRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.wire.schema.api_keys import ApiKey

ELEMENTS = REQUEST_ELEMENTS_MAX - 100


class Known(NamedTuple):
    """The objects that requests may refer to: a topic with this number of partitions."""

    topic: str
    topic_id: Uuid
    partitions: int
    producer_id: int  # The producer id of transactional id "tx", with epoch 0.


def names(count: int = ELEMENTS, prefix: str = "n") -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def ways() -> list[tuple[ApiKey, str]]:
    return [(key, name) for key, some in _REQUESTS.items() for name in some]


def largest(known: Known, key: ApiKey, name: str) -> tuple[object, int]:
    """Return one request, and its version."""
    make, version = _REQUESTS[key][name]
    return make(known), version


def _indexes(known: Known, count: int = ELEMENTS) -> list[int]:
    return [number % known.partitions for number in range(count)]


def _produce(known: Known) -> ProduceRequest:
    records = bytes(encode_batch([(b"k", b"v", (), 1_700_000_000_000)]))
    parts = [PartitionProduceData(index=index, records=records) for index in _indexes(known)]
    topics = [TopicProduceData(name=known.topic, partition_data=parts)]
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics)


def _fetch(known: Known) -> FetchRequest:
    parts = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100) for index in range(ELEMENTS)]
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=known.topic, partitions=parts)])


def _list_offsets(known: Known) -> list_offsets.ListOffsetsRequest:
    parts = [list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(ELEMENTS)]
    topics = [list_offsets.ListOffsetsTopic(name=known.topic, partitions=parts)]
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)


def _ends_of_epochs(known: Known) -> OffsetForLeaderEpochRequest:
    parts = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(ELEMENTS)]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=known.topic, partitions=parts)])


def _ends_of_known_epochs(known: Known) -> OffsetForLeaderEpochRequest:
    parts = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in _indexes(known)]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=known.topic, partitions=parts)])


def _ends_of_epochs_of_topics(known: Known) -> OffsetForLeaderEpochRequest:
    parts = [OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    topics = [OffsetForLeaderTopic(topic=name, partitions=parts) for name in names(ELEMENTS // 2)]
    return OffsetForLeaderEpochRequest(topics=topics)


def _metadata(known: Known) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names()]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _elect_leaders(known: Known) -> ElectLeadersRequest:
    partitions = list(range(ELEMENTS))
    return ElectLeadersRequest(topic_partitions=[LeadersOf(topic=known.topic, partitions=partitions)])


def _elect_leaders_of_topics(known: Known) -> ElectLeadersRequest:
    topics = [LeadersOf(topic=name, partitions=[0]) for name in names(ELEMENTS // 2)]
    return ElectLeadersRequest(topic_partitions=topics)


def _delete_records(known: Known) -> DeleteRecordsRequest:
    parts = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in range(ELEMENTS)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=known.topic, partitions=parts)], timeout_ms=1_000)


def _delete_records_of_topics(known: Known) -> DeleteRecordsRequest:
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
        for name in names(ELEMENTS // 2)
    ]
    return DeleteRecordsRequest(topics=topics, timeout_ms=1_000)


def _compact(topic: str, partitions: int = ELEMENTS) -> CompactPartitionsRequest:
    topics = [CompactPartitionsTopic(name=topic, partitions=[number % partitions for number in range(ELEMENTS)])]
    return CompactPartitionsRequest(topics=topics, timeout_ms=1_000)


def _compact_topics(known: Known) -> CompactPartitionsRequest:
    topics = [CompactPartitionsTopic(name=name, partitions=[0]) for name in names(ELEMENTS // 2)]
    return CompactPartitionsRequest(topics=topics, timeout_ms=1_000)


def _move(known: Known) -> AlterReplicaLogDirsRequest:
    topics = [AlterReplicaLogDirTopic(name=known.topic, partitions=list(range(ELEMENTS)))]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=topics)])


def _describe_log_dirs(known: Known) -> DescribeLogDirsRequest:
    topics = [DescribableLogDirTopic(topic=known.topic, partitions=list(range(ELEMENTS)))]
    return DescribeLogDirsRequest(topics=topics)


def _describe_log_dirs_of_topics(known: Known) -> DescribeLogDirsRequest:
    topics = [DescribableLogDirTopic(topic=name, partitions=[0]) for name in names(ELEMENTS // 2)]
    return DescribeLogDirsRequest(topics=topics)


def _create_topics(known: Known) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in names(9_000)
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=1_000, validate_only=True)


def _create_too_many(known: Known) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in names()
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=1_000)


def _delete_topics(known: Known) -> DeleteTopicsRequest:
    topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names()]
    return DeleteTopicsRequest(topics=topics, timeout_ms=1_000)


def _create_partitions(known: Known) -> CreatePartitionsRequest:
    topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names()]
    return CreatePartitionsRequest(topics=topics, timeout_ms=1_000, validate_only=False)


def _describe_configs(known: Known) -> DescribeConfigsRequest:
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=[])
        for name in names(ELEMENTS // 2)
    ]
    return DescribeConfigsRequest(resources=resources)


def _alter_configs(known: Known) -> IncrementalAlterConfigsRequest:
    edits = [incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=0, value="1")]
    resources = [
        incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name=name, configs=edits)
        for name in names(ELEMENTS // 2)
    ]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def _alter_keys(known: Known) -> IncrementalAlterConfigsRequest:
    edits = [incremental_alter_configs.AlterableConfig(name=name, config_operation=0, value="1") for name in names()]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name=known.topic, configs=edits)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def _replace_configs(known: Known) -> alter_configs.AlterConfigsRequest:
    value = [alter_configs.AlterableConfig(name="retention.ms", value="1")]
    resources = [
        alter_configs.AlterConfigsResource(resource_type=2, resource_name=name, configs=value)
        for name in names(ELEMENTS // 2)
    ]
    return alter_configs.AlterConfigsRequest(resources=resources, validate_only=False)


def _join(known: Known) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name=name, metadata=b"") for name in names()]
    return JoinGroupRequest(
        group_id="members", session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=protocols
    )


def _sync(known: Known) -> SyncGroupRequest:
    assignments = [SyncGroupRequestAssignment(member_id=name, assignment=b"a") for name in names()]
    return SyncGroupRequest(group_id="members", generation_id=1, member_id="m", assignments=assignments)


def _leave(known: Known) -> leave_group.LeaveGroupRequest:
    return leave_group.LeaveGroupRequest(
        group_id="offsets", members=[leave_group.MemberIdentity(member_id=name) for name in names()]
    )


def _heartbeat(known: Known, count: int = SUBSCRIBED_TOPICS_MAX) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="consumers",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=names()[:count],
        topic_partitions=[],
    )


def _heartbeat_of_owner(known: Known) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="consumers",
        member_id="m",
        member_epoch=1,
        topic_partitions=[TopicPartitions(topic_id=known.topic_id, partitions=list(range(ELEMENTS)))],
    )


def _transaction(known: Known, verify_only: bool = False) -> add_partitions_to_txn.AddPartitionsToTxnTransaction:
    return add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id="tx",
        producer_id=known.producer_id,
        producer_epoch=0,
        verify_only=verify_only,
        topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=known.topic, partitions=_indexes(known))],
    )


def _add_partitions(known: Known) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
    one = _transaction(known)
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=one.transactional_id,
        v3_and_below_producer_id=one.producer_id,
        v3_and_below_producer_epoch=one.producer_epoch,
        v3_and_below_topics=one.topics,
    )


def _verify_partitions(known: Known) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
    return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[_transaction(known, verify_only=True)])


def _add_to_many(known: Known) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=known.topic, partitions=[0])]
    transactions = [
        add_partitions_to_txn.AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=1, producer_epoch=0, topics=topics
        )
        for name in names(ELEMENTS // 3)
    ]
    return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=transactions)


def _markers(known: Known) -> write_txn_markers.WriteTxnMarkersRequest:
    markers = [
        write_txn_markers.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=True,
            coordinator_epoch=0,
            topics=[
                write_txn_markers.WritableTxnMarkerTopic(
                    name=known.topic, partition_indexes=list(range(known.partitions))
                )
            ],
        )
        for producer_id in range(10_000 // (known.partitions + 2))  # Each is written: more would take seconds.
    ]
    return write_txn_markers.WriteTxnMarkersRequest(markers=markers)


def _markers_nowhere(known: Known) -> write_txn_markers.WriteTxnMarkersRequest:
    topics = [write_txn_markers.WritableTxnMarkerTopic(name="nowhere", partition_indexes=list(range(ELEMENTS)))]
    one = write_txn_markers.WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, coordinator_epoch=0, topics=topics
    )
    return write_txn_markers.WriteTxnMarkersRequest(markers=[one])


def _commit(known: Known, count: int = ELEMENTS) -> OffsetCommitRequest:
    parts = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in _indexes(known, count)
    ]
    topics = [OffsetCommitRequestTopic(name=known.topic, partitions=parts)]
    return OffsetCommitRequest(group_id="offsets", topics=topics)


def _commit_that_fits(known: Known) -> OffsetCommitRequest:
    return _commit(known, 10_000)


def _txn_commit(known: Known, count: int = ELEMENTS) -> TxnOffsetCommitRequest:
    parts = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in _indexes(known, count)
    ]
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="offsets",
        producer_id=known.producer_id,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name=known.topic, partitions=parts)],
    )


def _txn_commit_that_fits(known: Known) -> TxnOffsetCommitRequest:
    return _txn_commit(known, 10_000)


def _fetch_groups(known: Known) -> offset_fetch.OffsetFetchRequest:
    groups = [offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names(ELEMENTS // 2)]
    return offset_fetch.OffsetFetchRequest(groups=groups)


def _fetch_offsets(known: Known) -> offset_fetch.OffsetFetchRequest:
    topics = [offset_fetch.OffsetFetchRequestTopics(name=known.topic, partition_indexes=list(range(ELEMENTS)))]
    return offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id="offsets", topics=topics)], require_stable=True
    )


def _fetch_offsets_of_one(known: Known) -> offset_fetch.OffsetFetchRequest:
    topics = [offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in names(ELEMENTS // 2)]
    return offset_fetch.OffsetFetchRequest(group_id="offsets", topics=topics)


def _delete_offsets(known: Known) -> OffsetDeleteRequest:
    parts = [OffsetDeleteRequestPartition(partition_index=index) for index in _indexes(known)]
    return OffsetDeleteRequest(
        group_id="offsets", topics=[OffsetDeleteRequestTopic(name=known.topic, partitions=parts)]
    )


_Way = tuple[Callable[[Known], object], int]

_REQUESTS: dict[ApiKey, dict[str, _Way]] = {
    ApiKey.PRODUCE: {"batches": (_produce, 9)},
    ApiKey.FETCH: {"partitions": (_fetch, 12)},
    ApiKey.LIST_OFFSETS: {"partitions": (_list_offsets, 5)},
    ApiKey.METADATA: {"names": (_metadata, 9)},
    ApiKey.API_VERSIONS: {"all": (lambda _: ApiVersionsRequest(), 3)},
    ApiKey.CREATE_TOPICS: {"validated": (_create_topics, 7), "too many": (_create_too_many, 7)},
    ApiKey.DELETE_TOPICS: {"names": (_delete_topics, 6)},
    ApiKey.DELETE_RECORDS: {"partitions": (_delete_records, 2), "topics": (_delete_records_of_topics, 2)},
    ApiKey.DESCRIBE_CONFIGS: {"topics": (_describe_configs, 4)},
    ApiKey.ALTER_CONFIGS: {"topics": (_replace_configs, 2)},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"topics": (_alter_configs, 1), "keys": (_alter_keys, 1)},
    ApiKey.LIST_CONFIG_RESOURCES: {
        "types": (lambda _: ListConfigResourcesRequest(resource_types=[2, 4] * (ELEMENTS // 2)), 1)
    },
    ApiKey.COMPACT_PARTITIONS: {
        "refused": (lambda known: _compact(known.topic), 0),
        "compacted": (lambda _: _compact(CONSUMER_OFFSETS), 0),
        "repeated": (lambda _: _compact(CONSUMER_OFFSETS, 50), 0),
        "topics": (_compact_topics, 0),
    },
    ApiKey.ALTER_REPLICA_LOG_DIRS: {"partitions": (_move, 2)},
    ApiKey.DESCRIBE_LOG_DIRS: {"partitions": (_describe_log_dirs, 5), "topics": (_describe_log_dirs_of_topics, 5)},
    ApiKey.CREATE_PARTITIONS: {"names": (_create_partitions, 3)},
    ApiKey.ELECT_LEADERS: {
        "partitions": (_elect_leaders, 2),
        "topics": (_elect_leaders_of_topics, 2),
        "all": (lambda _: ElectLeadersRequest(topic_partitions=None), 2),
    },
    ApiKey.DESCRIBE_CLUSTER: {"all": (lambda _: DescribeClusterRequest(include_cluster_authorized_operations=True), 0)},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {
        "names": (lambda _: DescribeTopicPartitionsRequest(topics=[PartitionsOf(name=name) for name in names()]), 0)
    },
    ApiKey.JOIN_GROUP: {"protocols": (_join, 3)},
    ApiKey.SYNC_GROUP: {"assignments": (_sync, 3)},
    ApiKey.HEARTBEAT: {"one": (lambda _: HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)},
    ApiKey.LEAVE_GROUP: {"members": (_leave, 4)},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        "topics": (_heartbeat, 0),
        "too many": (lambda known: _heartbeat(known, ELEMENTS), 0),
        "partitions": (_heartbeat_of_owner, 0),
    },
    ApiKey.CONSUMER_GROUP_DESCRIBE: {
        "groups": (
            lambda _: ConsumerGroupDescribeRequest(group_ids=names(), include_authorized_operations=True),
            0,
        )
    },
    ApiKey.DESCRIBE_GROUPS: {"groups": (lambda _: DescribeGroupsRequest(groups=names()), 5)},
    ApiKey.ADD_OFFSETS_TO_TXN: {
        "one": (
            lambda known: AddOffsetsToTxnRequest(
                transactional_id="tx", producer_id=known.producer_id, producer_epoch=0, group_id="offsets"
            ),
            3,
        )
    },
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "partitions": (_add_partitions, 3),
        "verified": (_verify_partitions, 4),
        "transactions": (_add_to_many, 4),
    },
    ApiKey.DESCRIBE_PRODUCERS: {
        "partitions": (
            lambda known: DescribeProducersRequest(
                topics=[ProducersOf(name=known.topic, partition_indexes=list(range(ELEMENTS)))]
            ),
            0,
        )
    },
    ApiKey.DESCRIBE_TRANSACTIONS: {"ids": (lambda _: DescribeTransactionsRequest(transactional_ids=names()), 0)},
    ApiKey.FIND_COORDINATOR: {
        "keys": (lambda _: FindCoordinatorRequest(key_type=0, coordinator_keys=names()), 4),
    },
    ApiKey.INIT_PRODUCER_ID: {
        "one": (lambda _: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000), 4)
    },
    ApiKey.LIST_TRANSACTIONS: {
        "filters": (lambda _: ListTransactionsRequest(state_filters=names(), producer_id_filters=[]), 0)
    },
    ApiKey.WRITE_TXN_MARKERS: {"written": (_markers, 1), "nowhere": (_markers_nowhere, 1)},
    ApiKey.OFFSET_COMMIT: {"too many": (_commit, 8), "one batch": (_commit_that_fits, 8)},
    ApiKey.TXN_OFFSET_COMMIT: {"too many": (_txn_commit, 3), "one batch": (_txn_commit_that_fits, 3)},
    ApiKey.OFFSET_FETCH: {
        "groups": (_fetch_groups, 8),
        "partitions": (_fetch_offsets, 8),
        "topics of one": (_fetch_offsets_of_one, 7),
    },
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {
        "partitions": (_ends_of_epochs, 4),
        "known": (_ends_of_known_epochs, 2),
        "topics": (_ends_of_epochs_of_topics, 4),
    },
    ApiKey.OFFSET_DELETE: {"partitions": (_delete_offsets, 0)},
    ApiKey.LIST_GROUPS: {"filters": (lambda _: ListGroupsRequest(states_filter=names()), 4)},
    ApiKey.DELETE_GROUPS: {"names": (lambda _: DeleteGroupsRequest(groups_names=names()), 2)},
    ApiKey.END_TXN: {
        "one": (
            lambda known: EndTxnRequest(
                transactional_id="tx", producer_id=known.producer_id, producer_epoch=0, committed=False
            ),
            2,
        )
    },
}
