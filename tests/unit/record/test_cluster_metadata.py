"""Records of the metadata log: every field is as Kafka defines it, and any bytes are decoded or refused."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.errors import Refused
from odradek.record.internal.cluster_metadata import RECORDS, TopicRecord, decode_metadata
from odradek.wire.schema.compile import encode
from odradek.wire.schema.schema import schema_of
from unit.wire.wire_support import FACTS, Maker, MessageFact, check_message

NAMES = {cls.__name__ for cls in RECORDS}
FACT_OF: dict[str, MessageFact] = {
    fact["name"]: fact for fact in json.loads((FACTS / "records.json").read_text()) if fact["name"] in NAMES
}
CASES = [(cls, version) for cls in RECORDS for version in schema_of(cls).versions]


@pytest.mark.parametrize("cls", RECORDS)
def test_class_matches_kafkas_definition(cls: type) -> None:
    check_message(cls, FACT_OF[cls.__name__])


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_encoded_record_is_decoded_unchanged(cls: type, version: int) -> None:
    for seed in range(20):
        record = Maker(f"{cls.__name__} {version} {seed}").message(cls, version)
        kind = schema_of(cls).api_key
        assert kind is not None
        assert decode_metadata(bytes([1, kind, version]) + encode(record, version)) == record


def test_other_record_types_are_skipped() -> None:
    assert decode_metadata(bytes([1, 0x8C, 0x01, 0, 0])) is None


@pytest.mark.parametrize("value", [b"", b"\x80", b"\x02\x02\x00", b"\x01\x02\x01\x00", b"\x01\x02\x00\x05ab"])
def test_invalid_record_is_refused(value: bytes) -> None:
    with pytest.raises(Refused):
        decode_metadata(value)


@given(st.binary(max_size=100))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    with suppress(Refused):
        decode_metadata(b"\x01\x03\x02" + data)
        decode_metadata(data)


def test_topic_record_has_kafkas_bytes() -> None:
    value = bytes.fromhex("01 02 00 03 6162") + bytes(range(16)) + b"\0"
    assert decode_metadata(value) == TopicRecord(name="ab", topic_id=bytes(range(16)))
