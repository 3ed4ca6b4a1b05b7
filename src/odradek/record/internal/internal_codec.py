"""Conversion of internal topics' keys and values to and from bytes.

key    │ i16 type of the record    │ key, in its only version │
value  │ i16 version of the schema │ value                    │   or null: a tombstone that deletes the key

Types are numbered per topic: 0 is a legacy offset in one topic and a transactional id in the other. Readers skip
unknown types (for example of share groups or newer brokers), as Apache Kafka does. A newer version of a known value
type is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack, unpack_from

from odradek.base.errors import ErrorCode, Refused
from odradek.record.internal.consumer_group_metadata import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.record.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from odradek.record.internal.offset_commit_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.record.internal.transaction_log import TransactionLogKey, TransactionLogValue
from odradek.wire.schema import compile as compiled
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import STRING_BYTES_MAX, Buffer
from odradek.wire.schema.schema import schema_of

GROUP_RECORDS: dict[type, type] = {
    LegacyOffsetCommitKey: LegacyOffsetCommitValue,
    OffsetCommitKey: OffsetCommitValue,
    GroupMetadataKey: GroupMetadataValue,
    ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupPartitionMetadataValue,
    ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
}
TRANSACTION_RECORDS: dict[type, type] = {TransactionLogKey: TransactionLogValue}

_VALUE_OF = GROUP_RECORDS | TRANSACTION_RECORDS
_TYPE_OF = {key: schema_of(key).api_key or 0 for key in _VALUE_OF}
_GROUP_KEYS = {_TYPE_OF[key]: key for key in GROUP_RECORDS}
_TRANSACTION_KEYS = {_TYPE_OF[key]: key for key in TRANSACTION_RECORDS}


def compile_writers(keys: Iterable[type]) -> None:
    """Compile the writers of these keys and their version 0 values before the first record, 1 ms each."""
    for key in keys:
        compiled.writer(key, 0)
        compiled.writer(_VALUE_OF[key], 0)


def key_prefix(cls: type) -> bytes:
    """Return the prefix that only keys of this class have in their topic."""
    return pack(">h", _TYPE_OF[cls])


def encode(key: object, value: object | None, value_version: int) -> tuple[bytes, bytes | None]:
    """Encode a record; a value of None is a tombstone.

    Raise Refused(INVALID_REQUEST) for text that is too long: invalid UTF-8 from a peer triples in length when it is
    read. Raise ValueError for anything else that the version can't represent.
    """
    assert value is None or _VALUE_OF[type(key)] is type(value), (key, value)
    encoded = pack(">h", _TYPE_OF[type(key)]) + _encode(key, 0)
    return encoded, None if value is None else pack(">h", value_version) + _encode(value, value_version)


def decode_key(data: Buffer) -> object | None:
    """Decode the key of a record of __consumer_offsets; return None for an unknown type.

    A legacy key is returned as an OffsetCommitKey. Raise Refused(CORRUPT_MESSAGE).
    """
    key = _decode_key(data, _GROUP_KEYS)
    if isinstance(key, LegacyOffsetCommitKey):
        return OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    return key


def decode_transaction_key(data: Buffer) -> TransactionLogKey | None:
    """Decode the key of a record of __transaction_state; return None for an unknown type.

    Raise Refused(CORRUPT_MESSAGE).
    """
    key = _decode_key(data, _TRANSACTION_KEYS)
    assert key is None or isinstance(key, TransactionLogKey)
    return key


def decode_value(key: object, data: Buffer) -> object:
    """Decode the value of a record with this key, of either topic, or raise Refused(CORRUPT_MESSAGE)."""
    cls = _VALUE_OF[type(key)]
    version = _prefix(cls.__name__, data)
    if version not in schema_of(cls).versions:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"{cls.__name__} has unknown version {version}")
    return _decode(cls, version, data)


def _decode_key(data: Buffer, keys: dict[int, type]) -> object | None:
    cls = keys.get(_prefix("the key of an internal record", data))
    return None if cls is None else _decode(cls, 0, data)


def _prefix(what: str, data: Buffer) -> int:
    if len(data) < 2:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"{what} has {len(data)} bytes")
    number: int = unpack_from(">h", data)[0]
    return number


def _decode(cls: type, version: int, data: Buffer) -> object:
    try:
        decoded: object = compiled.decode(cls, version, data, 2)
    except Malformed as malformed:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"{cls.__name__}: {malformed}") from None
    return decoded


def _encode(message: object, version: int) -> bytes:
    try:
        return compiled.encode(message, version)
    except ValueError:
        if _has_long_text(message):
            raise Refused(ErrorCode.INVALID_REQUEST, f"a string in {type(message).__name__} is too long") from None
        raise


def _has_long_text(value: object) -> bool:
    if isinstance(value, str):
        return len(value.encode()) > STRING_BYTES_MAX
    if isinstance(value, list):
        return any(_has_long_text(item) for item in value)
    names: tuple[str, ...] = getattr(type(value), "__slots__", ())
    return any(_has_long_text(getattr(value, name)) for name in names)
