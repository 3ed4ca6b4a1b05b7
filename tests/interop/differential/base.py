"""One plain, valid request for every API and version, which the systematic scenarios vary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from differential.base_groups import PLAIN_OF_GROUPS
from differential.base_transactions import PLAIN_OF_TRANSACTIONS
from differential.batches import batch
from differential.steps import id_of
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.configs.edits import Operation
from odradek.wire.messages import alter_configs, incremental_alter_configs
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.list_config_resources import ListConfigResourcesRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.schema.api_keys import ApiKey

TRIMMED = "trimmed-"  # Prefixes of topics that lose records, or are measured.
TRIMMED_BASE = f"{TRIMMED}base"
BASE = "base"  # The topic of all requests: two partitions, ten batches of two records in the first.


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def produce(version: int, parts: list[tuple[int, bytes | None]], name: str = BASE, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in parts]
    return ProduceRequest(
        acks=acks,
        timeout_ms=9000,
        topic_data=[TopicProduceData(name=name, topic_id=_id(name, version, 13), partition_data=data)],
    )


def fetch_part(partition: int = 0, offset: int = 18, size: int = 1 << 20, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=size, current_leader_epoch=epoch
    )


def fetch_topic(version: int, parts: list[FetchPartition], name: str = BASE) -> FetchTopic:
    return FetchTopic(topic=name, topic_id=_id(name, version, 13), partitions=parts)


def fetch(version: int, parts: list[FetchPartition], name: str = BASE, **fields: int) -> FetchRequest:
    """Return a fetch that does not wait."""
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20} | fields
    topics = [fetch_topic(version, parts, name)]
    return FetchRequest(topics=topics, forgotten_topics_data=[], **limits)  # type: ignore[arg-type]


def offsets(timestamps: list[tuple[int, int]], name: str = BASE, epoch: int = -1, **fields: int) -> ListOffsetsRequest:
    parts = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
        for index, timestamp in timestamps
    ]
    fields = {"replica_id": -1} | fields
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=parts)], **fields)


def ends_of_epochs(
    positions: list[tuple[int, int]], *names: str, epoch: int = -1, **fields: int
) -> OffsetForLeaderEpochRequest:
    """Return a request for the same partitions and epochs of each topic; `epoch` is the leader's."""
    parts = [
        OffsetForLeaderPartition(partition=index, leader_epoch=last_epoch, current_leader_epoch=epoch)
        for index, last_epoch in positions
    ]
    topics = [OffsetForLeaderTopic(topic=name, partitions=parts) for name in names]
    return OffsetForLeaderEpochRequest(topics=topics, **fields)


def metadata(version: int, *names: str, creates: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=creates or version < 4,
        include_topic_authorized_operations=version >= 8,
        include_cluster_authorized_operations=8 <= version <= 10,
    )


def create(*topics: CreatableTopic, dry: bool = False, timeout_ms: int = 9000) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=dry)


def delete(version: int, *names: str) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=9000)
    states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
    return DeleteTopicsRequest(topics=states, timeout_ms=9000)


def grow(name: str, count: int, *assignments: list[int], dry: bool = False) -> CreatePartitionsRequest:
    by_hand = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments] or None
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=by_hand)]
    return CreatePartitionsRequest(topics=topics, timeout_ms=9000, validate_only=dry)


def configs(version: int, *resources: tuple[int, str, list[str] | None]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name, keys in resources
        ],
        include_synonyms=True,
        include_documentation=version >= 3,
    )


Edit = tuple[str, int, str | None]  # A key, an operation, a value.
SET, DELETE, APPEND, SUBTRACT = map(int, Operation)


def alter(
    *resources: tuple[int, str, list[Edit]], dry: bool = False
) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in edits
                ],
            )
            for kind, name, edits in resources
        ],
        validate_only=dry,
    )


def replace(
    *resources: tuple[int, str, list[tuple[str, str | None]]], dry: bool = False
) -> alter_configs.AlterConfigsRequest:
    return alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in values],
            )
            for kind, name, values in resources
        ],
        validate_only=dry,
    )


def resources(version: int, *kinds: int) -> ListConfigResourcesRequest:
    return ListConfigResourcesRequest(resource_types=list(kinds)) if version else ListConfigResourcesRequest()


def delete_records(*positions: tuple[str, int, int], timeout_ms: int = 9000) -> DeleteRecordsRequest:
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
        for name, index, offset in positions
    ]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def move(*names: str, path: str = "/nowhere") -> AlterReplicaLogDirsRequest:
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in names]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])


def log_dirs(*directories: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in directories]
    return DescribeLogDirsRequest(topics=topics)


def partitions(names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> object:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def elect(named: Mapping[str, Sequence[int]], kind: int = 0) -> ElectLeadersRequest:
    topics = [TopicPartitions(topic=name, partitions=list(indexes)) for name, indexes in named.items()]
    return ElectLeadersRequest(election_type=kind, topic_partitions=topics)


def software(name: str = "differential", version: str = "1.0", **fields: object) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version, **fields)  # type: ignore[arg-type]


def _id(name: str, version: int, since: int) -> Uuid:
    return id_of(name) if version >= since else ZERO_UUID


PLAIN: dict[int, Callable[[int], object]] = {
    # None of these changes the broker's state.
    ApiKey.PRODUCE: lambda version: produce(version, [(9, batch())]),
    ApiKey.FETCH: lambda version: fetch(version, [fetch_part()]),
    ApiKey.LIST_OFFSETS: lambda version: offsets([(0, -1)]),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda version: ends_of_epochs([(0, 0)], BASE),
    ApiKey.METADATA: lambda version: metadata(version, BASE),
    ApiKey.API_VERSIONS: lambda version: software(),
    ApiKey.CREATE_TOPICS: lambda version: create(topic("never", 1, 1, None, retention_ms="1000"), dry=True),
    ApiKey.DELETE_TOPICS: lambda version: delete(version, "never"),
    ApiKey.DELETE_RECORDS: lambda version: delete_records((TRIMMED_BASE, 0, 0)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda version: move(TRIMMED_BASE),
    ApiKey.DESCRIBE_LOG_DIRS: lambda version: log_dirs((TRIMMED_BASE, [0])),
    ApiKey.DESCRIBE_CONFIGS: lambda version: configs(version, (2, BASE, ["retention.ms"])),
    ApiKey.ALTER_CONFIGS: lambda version: replace((2, BASE, [("retention.ms", "-1")]), dry=True),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda version: alter((2, BASE, [("retention.ms", SET, "-1")]), dry=True),
    ApiKey.LIST_CONFIG_RESOURCES: lambda version: resources(version, 4),
    ApiKey.CREATE_PARTITIONS: lambda version: grow(BASE, 3, [1], dry=True),
    ApiKey.ELECT_LEADERS: lambda version: elect({BASE: [0]}),
    ApiKey.DESCRIBE_CLUSTER: lambda version: DescribeClusterRequest(include_cluster_authorized_operations=True),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda version: partitions([BASE], cursor=(BASE, 0)),
    **PLAIN_OF_GROUPS,
    **PLAIN_OF_TRANSACTIONS,
}
