"""Topic records of __cluster_metadata, the metadata log of Apache Kafka 4.

value  │ frame, 1 │ type of the record │ version │ the record, flexible │   all three numbers are unsigned varints
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.wire.schema import compile as compiled
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import Buffer, Int8, Int32, Str, UuidField
from odradek.wire.schema.schema import field, message, schema_of, since

FRAME = 1
TOPIC, BROKER = 2, 4  # The resource types of a ConfigRecord.
NO_LEADER_CHANGE = -2  # In a PartitionChangeRecord, any other leader, including no leader, starts a new epoch.
_VARINT_BYTES_MAX = 5


@message(api_key=2, kind="metadata", versions=(0, 0), flexible_from=0)
class TopicRecord:
    name: Str
    topic_id: UuidField


@message(api_key=3, kind="metadata", versions=(0, 2), flexible_from=0)
class PartitionRecord:
    partition_id: Int32 = field(default=-1)
    topic_id: UuidField
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = field(default=-1)
    leader_recovery_state: Int8 = field(default=0, tag=0)
    leader_epoch: Int32 = field(default=-1)
    partition_epoch: Int32 = field(default=-1)
    directories: list[UuidField] = since(1, default_factory=list)
    eligible_leader_replicas: list[Int32] | None = since(2, default=None, tag=1)
    last_known_elr: list[Int32] | None = since(2, default=None, tag=2)


@message(api_key=4, kind="metadata", versions=(0, 0), flexible_from=0)
class ConfigRecord:
    resource_type: Int8
    resource_name: Str
    name: Str
    value: Str | None


@message(api_key=5, kind="metadata", versions=(0, 2), flexible_from=0)
class PartitionChangeRecord:
    partition_id: Int32 = field(default=-1)
    topic_id: UuidField
    isr: list[Int32] | None = field(default=None, tag=0)
    leader: Int32 = field(default=NO_LEADER_CHANGE, tag=1)
    replicas: list[Int32] | None = field(default=None, tag=2)
    removing_replicas: list[Int32] | None = field(default=None, tag=3)
    adding_replicas: list[Int32] | None = field(default=None, tag=4)
    leader_recovery_state: Int8 = field(default=-1, tag=5)
    directories: list[UuidField] | None = since(1, default=None, tag=8)
    eligible_leader_replicas: list[Int32] | None = since(2, default=None, tag=6)
    last_known_elr: list[Int32] | None = since(2, default=None, tag=7)


@message(api_key=9, kind="metadata", versions=(0, 0), flexible_from=0)
class RemoveTopicRecord:
    topic_id: UuidField


RECORDS = (TopicRecord, PartitionRecord, ConfigRecord, PartitionChangeRecord, RemoveTopicRecord)
_CLASSES = {schema_of(cls).api_key: cls for cls in RECORDS}


def decode_metadata(value: Buffer) -> object | None:
    """Decode a record's value, or return None for a record that does not describe topics.

    Raise Refused(CORRUPT_MESSAGE).
    """
    frame, at = _number(value, 0)
    if frame != FRAME:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"a metadata record has unknown frame version {frame}")
    kind, at = _number(value, at)
    version, at = _number(value, at)
    cls = _CLASSES.get(kind)
    if cls is None:
        return None
    if version not in schema_of(cls).versions:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"{cls.__name__} has unknown version {version}")
    try:
        decoded: object = compiled.decode(cls, version, value, at)
    except Malformed as malformed:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"{cls.__name__}: {malformed}") from None
    return decoded


def _number(data: Buffer, at: int) -> tuple[int, int]:
    """Read an unsigned varint and return it with the position after it."""
    number = 0
    for place, byte in enumerate(data[at : at + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise Refused(ErrorCode.CORRUPT_MESSAGE, "a metadata record contains a truncated varint")
