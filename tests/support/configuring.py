"""Requests that describe and alter configurations."""

from __future__ import annotations

from odradek.base.errors import ErrorCode
from odradek.core.configs.edits import Operation
from odradek.wire.messages.alter_configs import AlterableConfig as Replacement
from odradek.wire.messages.alter_configs import AlterConfigsRequest
from odradek.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
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
from support.raw_client import RawClient

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = Operation
Edits = list[tuple[str, int, str | None]]


def alter(*resources: tuple[int, str, Edits], dry: bool = False) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in edits],
            )
            for kind, name, edits in resources
        ],
        validate_only=dry,
    )


def replace(kind: int, name: str, **values: str) -> AlterConfigsRequest:
    configs = [Replacement(name=key.replace("_", "."), value=value) for key, value in values.items()]
    resource = ReplacedResource(resource_type=kind, resource_name=name, configs=configs)
    return AlterConfigsRequest(resources=[resource], validate_only=False)


def describe(kind: int, name: str, *keys: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    return DescribeConfigsRequest(resources=[resource])


def configs_in(answer: DescribeConfigsResponse) -> dict[str, tuple[str | None, int]]:
    """Return value and source by key."""
    (result,) = answer.results
    assert not result.error_code, result.error_message
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


def altered(client: RawClient, kind: int, name: str, *edits: tuple[str, int, str | None]) -> tuple[ErrorCode, str]:
    """Alter configurations; return the error and its message."""
    answer = client.request(alter((kind, name, list(edits))), 1, IncrementalAlterConfigsResponse)
    (result,) = answer.responses
    return ErrorCode(result.error_code), result.error_message or ""


def described(client: RawClient, kind: int, name: str, *keys: str) -> dict[str, tuple[str | None, int]]:
    return configs_in(client.request(describe(kind, name, *keys), 4, DescribeConfigsResponse))
