"""Records of the internal topics: every field is as Kafka defines it, and any bytes are decoded or refused."""

from __future__ import annotations

import tracemalloc
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import ErrorCode, Refused
from odradek.record.internal.consumer_group_metadata import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
)
from odradek.record.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from odradek.record.internal.internal_codec import (
    GROUP_RECORDS,
    TRANSACTION_RECORDS,
    decode_key,
    decode_transaction_key,
    decode_value,
    encode,
)
from odradek.record.internal.offset_commit_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.record.internal.transaction_log import TransactionLogKey, TransactionLogValue
from odradek.wire.schema.schema import schema_of
from unit.wire.wire_support import Maker, check_message, dumb_encode, record_facts

pytestmark = pytest.mark.slow

FACT_OF = record_facts()
RECORDS = GROUP_RECORDS | TRANSACTION_RECORDS
CASES = [(key, value, version) for key, value in RECORDS.items() for version in schema_of(value).versions]

# Small numbers make plausible types, versions, counts and lengths; the rest is noise.
plausible = st.lists(st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 16, 0x7F, 0x80, 0xFF]), max_size=200).map(bytes)
garbage = st.one_of(st.binary(max_size=200), plausible)


@pytest.mark.parametrize("cls", [*RECORDS, *RECORDS.values()], ids=lambda cls: cls.__name__)
def test_class_matches_kafkas_definition(cls: type) -> None:
    check_message(cls, FACT_OF[cls.__name__])


def test_key_and_value_of_a_record_have_the_same_type() -> None:
    assert all(schema_of(key).api_key == schema_of(value).api_key for key, value in RECORDS.items())


def test_all_offset_and_group_record_types_are_defined() -> None:
    ours = {schema_of(key).api_key for key in GROUP_RECORDS}
    theirs = {fact["apiKey"] for name, fact in FACT_OF.items() if fact["type"] == "coordinator-key" and is_ours(name)}
    assert ours == theirs == {0, 1, 2, 3, 4, 5, 6, 7, 8, 16}


def is_ours(name: str) -> bool:
    return not name.startswith(("Share", "Streams", "Transaction"))


@pytest.mark.parametrize(("key_cls", "value_cls", "version"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_round_trip(key_cls: type, value_cls: type, version: int) -> None:
    """Records are encoded like the reference encoder does after two numbers, and are decoded unchanged."""

    @settings(max_examples=30, deadline=None, database=None)
    @given(st.integers())
    def check(seed: int) -> None:
        maker = Maker(f"{key_cls.__name__} {version} {seed}")
        key, value = maker.message(key_cls, 0), maker.message(value_cls, version)
        key_bytes, value_bytes = encode(key, value, version)
        number = FACT_OF[key_cls.__name__]["apiKey"]
        assert key_bytes == pack(">h", number) + dumb_encode(FACT_OF[key_cls.__name__], key, 0)
        assert value_bytes == pack(">h", version) + dumb_encode(FACT_OF[value_cls.__name__], value, version)
        assert read_key(key_cls, key_bytes) == as_read(key)
        if key_cls is not LegacyOffsetCommitKey:
            assert value_bytes is not None
            assert decode_value(key, value_bytes) == value
        assert encode(key, None, version) == (key_bytes, None)

    check()


def read_key(cls: type, data: bytes) -> object:
    return decode_transaction_key(data) if cls is TransactionLogKey else decode_key(data)


def as_read(key: object) -> object:
    if isinstance(key, LegacyOffsetCommitKey):
        return OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    return key


def test_offset_commit_has_kafkas_bytes() -> None:
    key = OffsetCommitKey(group="g", topic="tt", partition=3)
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="", commit_timestamp=7)
    key_bytes, value_bytes = encode(key, value, 3)
    assert key_bytes == bytes.fromhex("0001 0001 67 0002 7474 00000003")
    assert value_bytes == bytes.fromhex("0003 0000000000000005 00000002 0000 0000000000000007")


@pytest.mark.parametrize(
    ("metadata", "tagged"),
    [
        (None, "01 00 01 00"),
        (ClassicMemberMetadata(), "00"),
        (ClassicMemberMetadata(session_timeout_ms=6), "01 00 07 01 00000006 01 00"),
    ],
    ids=["consumer protocol", "empty", "classic protocol"],
)
def test_consumer_group_member_has_kafkas_bytes(metadata: ClassicMemberMetadata | None, tagged: str) -> None:
    """Apache Kafka 4.3.0 omits the empty struct and writes null; the struct's default is unused."""
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex=None,
        rebalance_timeout_ms=9,
        server_assignor=None,
        classic_member_metadata=metadata,
    )
    key_bytes, value_bytes = encode(key, value, 0)
    assert key_bytes == bytes.fromhex("0005 0001 67 0001 6d")
    assert value_bytes == bytes.fromhex("0000 00 00 02 63 02 68 02 02 74 00 00000009 00" + tagged)
    assert decode_value(key, value_bytes) == value


def test_legacy_offset_commit_is_decoded_as_an_offset_commit() -> None:
    legacy = LegacyOffsetCommitKey(group="g", topic="t", partition=1)
    value = LegacyOffsetCommitValue(offset=4, metadata="m", commit_timestamp=8)
    key_bytes, value_bytes = encode(legacy, value, 0)
    assert value_bytes is not None
    key = decode_key(key_bytes)
    assert key == OffsetCommitKey(group="g", topic="t", partition=1)
    assert decode_value(key, value_bytes) == OffsetCommitValue(offset=4, metadata="m", commit_timestamp=8)


@pytest.mark.parametrize("number", [-1, 9, 10, 15, 17, 24, 32767])
def test_unknown_key_type_is_decoded_as_none(number: int) -> None:
    assert decode_key(pack(">h", number) + b"anything") is None


def test_key_types_are_specific_to_their_topic() -> None:
    offset, _ = encode(OffsetCommitKey(group="g", topic="t", partition=1), None, 3)
    transaction, _ = encode(TransactionLogKey(transactional_id="x"), None, 0)
    assert decode_transaction_key(offset) is None
    assert decode_transaction_key(transaction) == TransactionLogKey(transactional_id="x")
    with pytest.raises(Refused):
        decode_key(transaction)  # Decoded as a legacy offset commit, the key lacks its topic.


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_unknown_value_version_is_refused(version: int) -> None:
    with pytest.raises(Refused) as caught:
        decode_value(GroupMetadataKey(group="g"), pack(">h", version) + bytes(100))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1", b"\0\1\0", b"\0\1\0\1", b"\0\2\xff\xff", b"\0\3\0\2g"])
def test_truncated_key_is_refused(data: bytes) -> None:
    with pytest.raises(Refused) as caught:
        decode_key(data)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_trailing_bytes_are_ignored() -> None:
    """As in Apache Kafka: a later version of the software may append fields."""
    key = ConsumerGroupMetadataKey(group_id="g")
    assert decode_key(encode(key, None, 0)[0] + b"more") == key


@pytest.mark.parametrize(("key_cls", "value_cls", "version"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_any_value_bytes_are_decoded_or_refused(key_cls: type, value_cls: type, version: int) -> None:
    """Any bytes are decoded or refused as corrupt, and decoded values can be encoded again."""
    if key_cls is LegacyOffsetCommitKey:
        key_cls, value_cls = OffsetCommitKey, OffsetCommitValue
    key = Maker("key").message(key_cls, 0)

    @settings(max_examples=60, deadline=None, database=None)
    @given(garbage)
    def check(data: bytes) -> None:
        for prefixed in (data, pack(">h", version) + data):
            try:
                value = decode_value(key, prefixed)
            except Refused as refused:
                assert refused.code is ErrorCode.CORRUPT_MESSAGE
                continue
            assert type(value) is value_cls
            number = prefixed[1]
            _, again = encode(key, value, number)
            assert again is not None
            assert decode_value(key, again) == value

    check()


@settings(max_examples=500, deadline=None, database=None)
@given(garbage, st.integers(0, 17))
def test_any_key_bytes_are_decoded_or_refused(data: bytes, number: int) -> None:
    for prefixed in (data, pack(">h", number) + data):
        for read in (decode_key, decode_transaction_key):
            try:
                key = read(prefixed)
            except Refused as refused:
                assert refused.code is ErrorCode.CORRUPT_MESSAGE
                continue
            assert key is None or read(encode(key, None, 0)[0]) == key


@pytest.mark.parametrize("count", [1 << 20, (1 << 31) - 1])
def test_count_beyond_the_data_allocates_no_memory(count: int) -> None:
    key = GroupMetadataKey(group="g")
    front = pack(">hhi", 3, 0, 1) + pack(">hhq", -1, -1, 0)
    assert decode_value(key, front + pack(">i", 0)) == GroupMetadataValue(
        protocol_type="", generation=1, protocol=None, leader=None, current_state_timestamp=0, members=[]
    )
    tracemalloc.start()
    try:
        with pytest.raises(Refused):
            decode_value(key, front + pack(">i", count))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("text", ["x" * 32_768, "�" * 11_000])
def test_too_long_string_is_refused(text: str) -> None:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        subscribed_topic_names=["t", text],
        subscribed_topic_regex=None,
        server_assignor=None,
    )
    for key in (GroupMetadataKey(group=text), OffsetCommitKey(group="g", topic=text, partition=0)):
        with pytest.raises(Refused) as caught:
            encode(key, None, 0)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(Refused):
        encode(ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), value, 0)


def test_encoding_in_a_version_without_a_set_field_is_an_error() -> None:
    value = TransactionLogValue(
        producer_id=1,
        previous_producer_id=0,
        producer_epoch=0,
        transaction_timeout_ms=1,
        transaction_status=0,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=1,
        transaction_start_timestamp_ms=1,
    )
    with pytest.raises(ValueError, match="previous_producer_id"):
        encode(TransactionLogKey(transactional_id="x"), value, 0)
    with pytest.raises(AssertionError):
        encode(GroupMetadataKey(group="g"), value, 0)
