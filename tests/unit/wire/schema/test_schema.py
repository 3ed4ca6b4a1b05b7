"""Message classes generated from their bodies: slots, constructors, defaults, equality, and invalid definitions."""

from __future__ import annotations

from typing import cast

import pytest

from odradek.base.uuids import ZERO_UUID
from odradek.wire.messages.fetch import FetchRequest, ReplicaState
from odradek.wire.messages.metadata import MetadataRequestTopic, MetadataResponse
from odradek.wire.messages.produce import PartitionProduceData, PartitionProduceResponse
from odradek.wire.schema.primitives import Int32
from odradek.wire.schema.schema import default_instance, field, maker, message, schema_of, struct


def test_fields_have_their_defaults() -> None:
    made = PartitionProduceResponse(index=1, error_code=0, base_offset=5)
    assert (made.log_append_time_ms, made.log_start_offset, made.error_message) == (-1, -1, None)
    assert MetadataRequestTopic(name=None).topic_id == ZERO_UUID


def test_field_without_default_is_required() -> None:
    with pytest.raises(TypeError, match="base_offset"):
        PartitionProduceResponse(index=1, error_code=0)  # type: ignore[call-arg]  # That is the point.


def test_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="indx"):
        PartitionProduceData(index=1, records=None, indx=1)  # type: ignore[call-arg]  # That is the point.
    made = PartitionProduceData(index=1, records=None)
    with pytest.raises(AttributeError):
        made.indx = 2  # type: ignore[attr-defined]  # That is the point.


def test_default_lists_are_not_shared() -> None:
    one, other = (PartitionProduceResponse(index=1, error_code=0, base_offset=5) for _ in range(2))
    assert one.record_errors == []
    assert one.record_errors is not other.record_errors


def test_default_structs_are_shared_and_immutable() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])
    assert request.replica_state == ReplicaState(replica_id=-1, replica_epoch=-1)
    assert request.replica_state is default_instance(ReplicaState)
    with pytest.raises(AttributeError, match="shared"):
        request.replica_state.replica_id = 3
    assert repr(request.replica_state) == "ReplicaState(replica_id=-1, replica_epoch=-1)"
    assert schema_of(type(request.replica_state)) is schema_of(ReplicaState)


def test_equality_is_by_value_and_class() -> None:
    assert ReplicaState() == ReplicaState()
    assert ReplicaState() != ReplicaState(replica_id=4)
    assert cast(object, ReplicaState()) != (-1, -1)
    assert default_instance(ReplicaState) == ReplicaState()
    with pytest.raises(TypeError):
        hash(ReplicaState())


def test_repr_abbreviates_long_bytes() -> None:
    assert repr(PartitionProduceData(index=1, records=bytes(100))) == (
        "PartitionProduceData(index=1, records=<100 bytes>)"
    )


def test_schema_of_another_class_is_refused() -> None:
    with pytest.raises(TypeError, match="int is not a message class"):
        schema_of(int)


def test_schema_has_name_kind_and_versions() -> None:
    schema = schema_of(MetadataResponse)
    assert (schema.name, schema.kind, schema.api_key) == ("MetadataResponse", "response", 3)
    assert [version for version in schema.versions if schema.is_flexible(version)] == [9, 10, 11, 12, 13]


@pytest.mark.parametrize("annotation", [int, str | int, list[str], object])
def test_annotations_must_be_wire_types(annotation: object) -> None:
    body = type("Bad", (), {"__annotations__": {"value": annotation}})
    with pytest.raises(TypeError):
        struct(body)


def test_defaults_must_be_markers() -> None:
    with pytest.raises(TypeError, match="field\\(default="):

        @struct
        class Bad:
            value: Int32 = 3


def test_message_without_fields_is_allowed() -> None:
    @message(kind="data", versions=(0, 0), flexible_from=0)
    class Empty:
        pass

    assert Empty() == Empty()
    assert repr(Empty()).endswith("Empty()")


def test_fields_with_defaults_may_come_first() -> None:
    @struct
    class Mixed:
        first: Int32 = field(default=7)
        second: Int32

    made = Mixed(second=2)
    assert (made.first, made.second) == (7, 2)
    assert cast(object, made) == Mixed(first=7, second=2)


def test_maker_creates_the_same_object_as_the_class() -> None:
    make = maker(PartitionProduceResponse)
    made = make(index=1, error_code=0, base_offset=5)
    assert made == PartitionProduceResponse(index=1, error_code=0, base_offset=5)
    assert type(made) is PartitionProduceResponse
    assert made.record_errors is not make(index=1, error_code=0, base_offset=5).record_errors
    with pytest.raises(TypeError, match="base_offset"):
        make(index=1, error_code=0)  # type: ignore[call-arg]  # That is the point.
