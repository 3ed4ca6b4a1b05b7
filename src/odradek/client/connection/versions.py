"""Which version of a request goes out: the newest that both sides know, and that this client means to use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.client.connection.client_errors import Unsupported
from odradek.wire.schema.schema import schema_of

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3

# Below these the answer, or the records in it, would be of another kind (KIP-98, Kafka 0.11).  Others: any version.
LOWEST = {PRODUCE: 3, FETCH: 4, LIST_OFFSETS: 1, METADATA: 4}


class ApiRange(NamedTuple):
    """The versions of one API that a broker has, both inclusive."""

    lowest: int
    highest: int


def version_for(request: type, apis: Mapping[int, ApiRange], where: str) -> int:
    """Returns the version to send.  Raises Unsupported with the broker, the API, and what each side has."""
    schema = schema_of(request)
    assert schema.api_key is not None, "only whole requests are sent"
    name = schema.name.removesuffix("Request")
    theirs = apis.get(schema.api_key)
    if theirs is None:
        raise Unsupported(f"{where} does not support {name}")
    lowest = max(schema.versions[0], LOWEST.get(schema.api_key, 0))
    version = min(schema.versions[-1], theirs.highest)
    if version < max(lowest, theirs.lowest):
        raise Unsupported(
            f"{where} supports {name} versions {theirs.lowest} to {theirs.highest}, "
            f"this client {lowest} to {schema.versions[-1]}"
        )
    return version
