"""Cluster metadata and broker configuration as one broker describes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.base.units import INT16_MAX, NO_BROKER
from odradek.client.cluster.topic_metadata import Broker, Metadata, Topic
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import ClientError, KafkaUnavailable, NotKafka, Unsupported
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.schema import schema_of

BROKER_RESOURCE = 4
MAY_CREATE_SINCE = 4
KEYS = ("advertised.listeners", "listeners", "log.dirs", "log.dir")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cluster metadata from one broker's Metadata response."""

    id: str | None
    controller: int
    brokers: tuple[Broker, ...]
    topics: tuple[Topic, ...]


class Identity(NamedTuple):
    """Broker that answered, with its values of KEYS if it returned them."""

    node: int
    configs: dict[str, str]


def request_cluster(connection: Connection, *, with_topics: bool) -> Cluster:
    """Request cluster metadata. Raise KafkaUnavailable, NotKafka, or Unsupported for non-broker listeners."""
    broker_range = connection.apis.get(ApiKey.METADATA)
    if broker_range is None:
        raise Unsupported("the broker does not support Metadata requests")
    version = min(schema_of(MetadataRequest).versions[-1], broker_range.highest)
    request = MetadataRequest(
        topics=None if with_topics and version else [],  # Version 0: an empty list requests all topics.
        allow_auto_topic_creation=version < MAY_CREATE_SINCE,
    )
    response = connection.call(request, MetadataResponse, version=version)
    metadata = Metadata()
    topics = metadata.merge(response)
    return Cluster(response.cluster_id, response.controller_id, tuple(metadata.brokers.values()), tuple(topics))


def request_identity(connection: Connection, nodes: Iterable[int]) -> Identity | None:
    """Identify the peer among these brokers: a broker returns broker configurations for its own id only.

    Return NO_BROKER if it is none of them. Return None if it does not say, because it is too old or this client is not
    authorized.
    """
    resources = [
        DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name=str(node), configuration_keys=list(KEYS))
        for node in list(nodes)[:INT16_MAX]
    ]
    try:
        response = connection.call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
    except (KafkaUnavailable, NotKafka):
        raise
    except ClientError:
        return None
    for result in response.results:
        if result.error_code == ErrorCode.NONE and result.resource_name.isdecimal():
            return Identity(int(result.resource_name), {each.name: each.value or "" for each in result.configs})
    is_unknown = response.results and all(one.error_code == ErrorCode.INVALID_REQUEST for one in response.results)
    return Identity(NO_BROKER, {}) if is_unknown else None
