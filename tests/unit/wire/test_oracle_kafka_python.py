"""Comparison with kafka-python, which encodes the same values to the same bytes and decodes our encoding."""

from __future__ import annotations

import importlib
import pkgutil
import uuid
from typing import Protocol

import pytest
from wire_support import Maker, is_our_own

from odradek.base.uuids import ZERO_UUID
from odradek.wire.catalog import APIS
from odradek.wire.messages.api_versions import ApiVersionsResponse
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.compile import encode
from odradek.wire.schema.primitives import UUID, Primitive
from odradek.wire.schema.schema import Field, schema_of

pytestmark = pytest.mark.slow

kafka_protocol = pytest.importorskip("kafka.protocol")
api_message = importlib.import_module("kafka.protocol.api_message")
BitField = importlib.import_module("kafka.protocol.schemas.fields.codecs").BitField

ROUNDS = 20
OTHER_NAMES = {
    "cluster_authorized_operations": "authorized_operations",
    "topic_authorized_operations": "authorized_operations",
    "generation_id_or_member_epoch": "generation_id",
}
NO_CLIENTS = {  # Requests between brokers and controllers.
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
}


class TheirMessage(Protocol):
    def encode(self, version: int) -> bytes: ...


def their_classes() -> dict[str, type]:
    found: dict[str, type] = {}
    for module in pkgutil.walk_packages(kafka_protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            found |= vars(importlib.import_module(module.name))
    return found


THEIRS = their_classes()
CASES = [
    (cls, version, THEIRS[cls.__name__])
    for pair in APIS.values()
    for cls in pair
    if cls.__name__ in THEIRS
    for version in schema_of(cls).versions
    if version <= THEIRS[cls.__name__].max_version  # type: ignore[attr-defined]
]


@pytest.mark.parametrize(("cls", "version", "theirs"), CASES, ids=lambda each: getattr(each, "__name__", str(each)))
def test_kafka_python_encodes_the_same_bytes(cls: type, version: int, theirs: type) -> None:
    maker = Maker(f"kafka-python {cls.__name__} {version}", has_tagged_structs=False, has_own_tags=False)
    for _ in range(ROUNDS):
        message = maker.message(cls, version)
        data = encode(message, version)
        copy = to_kafka_python(message, theirs, version)
        assert copy.encode(version=version) == data
        if cls is not ApiVersionsResponse or message.error_code == 0:  # type: ignore[attr-defined]
            read = theirs.decode(data, version=version)  # type: ignore[attr-defined]
            assert api_message.ApiMessage.encode(read) == data


def test_kafka_python_covers_most_messages() -> None:
    clients = [pair for key, pair in APIS.items() if key not in NO_CLIENTS]
    ours = {(cls, version) for pair in clients for cls in pair for version in schema_of(cls).versions}
    assert len(CASES) > len(ours) * 9 // 10


def to_kafka_python(message: object, theirs: type, version: int) -> TheirMessage:
    """Return kafka-python's object with the same values; nested classes are attributes of the outer class."""
    values: dict[str, object] = {}
    for field in schema_of(type(message)).fields:
        is_left_out = is_our_own(field) or (field.life.tag is not None and isinstance(field.type, type))
        if field.exists_in(version) and not is_left_out:
            name, value = field.name, getattr(message, field.name)
            if name not in theirs.fields:  # type: ignore[attr-defined]
                name = OTHER_NAMES[name]
            if getattr(theirs.fields[name], "_type", None) == BitField:  # type: ignore[attr-defined]
                value = BitField.from_32_bit_field(value)
            values[name] = converted(value, field, theirs, version)
    made: TheirMessage = theirs(version=version, **values)
    return made


def converted(value: object, field: Field, theirs: type, version: int) -> object:
    if isinstance(value, list):
        return [converted(item, field, theirs, version) for item in value]
    if field.type is UUID and isinstance(value, bytes):
        return uuid.UUID(bytes=value) if value != ZERO_UUID else None
    if value is None or isinstance(field.type, Primitive):
        return value
    return to_kafka_python(value, getattr(theirs, field.type.__name__), version)
