"""The version of a request: the newest that both sides know and this client uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.client.connection.client_errors import Unsupported
from odradek.wire.schema.schema import schema_of

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3

# Below these versions the answer, or its records, would have a different format (KIP-98, Kafka 0.11). Other APIs: any
# version.
LOWEST = {PRODUCE: 3, FETCH: 4, LIST_OFFSETS: 1, METADATA: 4}


class ApiRange(NamedTuple):
    """The versions of one API that a broker supports, both inclusive."""

    lowest: int
    highest: int


def version_for(request: type, apis: Mapping[int, ApiRange], where: str) -> int:
    """Return the version to send.

    Raise Unsupported with the broker, the API, and the versions of each side.
    """
    schema = schema_of(request)
    assert schema.api_key is not None, "only request messages have an API key"
    name = schema.name.removesuffix("Request")
    broker_range = apis.get(schema.api_key)
    if broker_range is None:
        raise Unsupported(f"{where} does not support {name}")
    lowest = max(schema.versions[0], LOWEST.get(schema.api_key, 0))
    version = min(schema.versions[-1], broker_range.highest)
    if version < max(lowest, broker_range.lowest):
        raise Unsupported(
            f"{where} supports {name} versions {broker_range.lowest} to {broker_range.highest}, "
            f"this client requires {lowest} to {schema.versions[-1]}"
        )
    return version
