"""Every API that this broker answers, in the versions it answers.  Dispatch and ApiVersions both come from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from odradek.api import (
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    fetch,
    list_offsets,
    metadata,
    produce,
)
from odradek.api.call import Call
from odradek.base.errors import ErrorCode
from odradek.core.parked import Parked
from odradek.wire.api_keys import ApiKey
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest
from odradek.wire.messages.create_topics import CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest
from odradek.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.list_offsets import ListOffsetsRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.produce import ProduceRequest

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
)


BY_KEY: dict[int, Api] = {int(api.key): api for api in _APIS}
ADVERTISED = [api.advertisement for _, api in sorted(BY_KEY.items())]
