"""Configurations of topics and brokers: description and incremental changes.

Changes use IncrementalAlterConfigs (KIP-339). Requests for a broker's own configuration go to that broker; all others
go to any broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.describe import TOPIC_RESOURCE, ConfigEntry, check, entry_of
from odradek.client.connection.broker_connection import Connection
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

T = TypeVar("T")

BROKER_RESOURCE = 4
SET, DELETE, APPEND, SUBTRACT = range(4)


@dataclass(frozen=True, slots=True)
class Resource:
    """A topic, a broker, or all brokers if the name is empty."""

    type: int
    name: str

    def __str__(self) -> str:
        if self.type == TOPIC_RESOURCE:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"

    @property
    def broker(self) -> int | None:
        """Return the broker that must receive requests, or None for any broker."""
        return int(self.name) if self.type == BROKER_RESOURCE and self.name else None


@dataclass(frozen=True, slots=True)
class Edit:
    """One operation on one configuration key."""

    key: str
    operation: int
    value: str | None = None


def topic(name: str) -> Resource:
    return Resource(TOPIC_RESOURCE, name)


def broker(broker_id: int | None) -> Resource:
    return Resource(BROKER_RESOURCE, "" if broker_id is None else str(broker_id))


def describe_configs(cluster: Cluster, resource: Resource) -> list[ConfigEntry]:
    """Return every configuration of a topic or broker, including defaults.

    For all brokers, return only the configurations set for them.
    """
    request_resource = DescribeConfigsResource(
        resource_type=resource.type, resource_name=resource.name, configuration_keys=None
    )

    def send_describe_configs(connection: Connection) -> list[ConfigEntry]:
        (result,) = connection.call(
            DescribeConfigsRequest(resources=[request_resource]), DescribeConfigsResponse
        ).results
        check(result.error_code, str(resource), result.error_message)
        return [entry_of(config) for config in result.configs]

    return _call_broker_of(cluster, resource, send_describe_configs)


def alter_configs(cluster: Cluster, resource: Resource, edits: Iterable[Edit], *, validate_only: bool = False) -> None:
    """Apply all edits or none; raise ErrorResponse: INVALID_CONFIG, INVALID_REQUEST, ..."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    AlterableConfig(name=edit.key, config_operation=edit.operation, value=edit.value) for edit in edits
                ],
            )
        ],
        validate_only=validate_only,
    )

    def send_alter_configs(connection: Connection) -> None:
        (result,) = connection.call(request, IncrementalAlterConfigsResponse).responses
        check(result.error_code, str(resource), result.error_message)

    _call_broker_of(cluster, resource, send_alter_configs)


def _call_broker_of(cluster: Cluster, resource: Resource, send: Callable[[Connection], T]) -> T:
    broker_id = resource.broker
    if broker_id is None:
        return cluster.call_any(send)
    return cluster.retry(lambda: send(cluster.connection(broker_id)))
