"""The messages that are written down, by API: from this list tools and tests find a class by its number or name."""

from __future__ import annotations

from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from odradek.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from odradek.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from odradek.wire.messages.fetch import FetchRequest, FetchResponse
from odradek.wire.messages.header import RequestHeader, ResponseHeader
from odradek.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek.wire.messages.produce import ProduceRequest, ProduceResponse

APIS: dict[ApiKey, tuple[type, type]] = {
    ApiKey.PRODUCE: (ProduceRequest, ProduceResponse),
    ApiKey.FETCH: (FetchRequest, FetchResponse),
    ApiKey.LIST_OFFSETS: (ListOffsetsRequest, ListOffsetsResponse),
    ApiKey.METADATA: (MetadataRequest, MetadataResponse),
    ApiKey.API_VERSIONS: (ApiVersionsRequest, ApiVersionsResponse),
    ApiKey.CREATE_TOPICS: (CreateTopicsRequest, CreateTopicsResponse),
    ApiKey.DELETE_TOPICS: (DeleteTopicsRequest, DeleteTopicsResponse),
    ApiKey.DESCRIBE_CONFIGS: (DescribeConfigsRequest, DescribeConfigsResponse),
    ApiKey.CREATE_PARTITIONS: (CreatePartitionsRequest, CreatePartitionsResponse),
    ApiKey.DESCRIBE_CLUSTER: (DescribeClusterRequest, DescribeClusterResponse),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
}

HEADERS: tuple[type, type] = (RequestHeader, ResponseHeader)
