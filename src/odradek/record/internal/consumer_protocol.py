"""Messages that classic protocol consumers exchange through the broker: subscriptions and assignments.

These bytes are opaque to the broker with two exceptions: checking whether a topic still has subscribers, and converting
a group between the classic and the consumer protocol.

│ i16 version │ the message in that version │

A version newer than the newest known is read as the newest known, without its added fields. Subscription v1:
owned_partitions (KIP-429). v2: generation_id (KIP-792). v3: rack_id (KIP-881). The assignment has never changed.
"""

from __future__ import annotations

from struct import pack, unpack_from
from typing import TypeVar

from odradek.base.errors import ErrorCode, Refused
from odradek.wire.schema.compile import decode, encode
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import Buffer, Bytes, Int32, Str
from odradek.wire.schema.schema import field, message, schema_of, since, struct

T = TypeVar("T")


@struct
class TopicPartition:
    topic: Str
    partitions: list[Int32]


@message(kind="data", versions=(0, 3), flexible_from=None)
class ConsumerProtocolSubscription:
    topics: list[Str]
    user_data: Bytes | None = field(default=None)
    owned_partitions: list[TopicPartition] = since(1, default_factory=list, ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: Str | None = since(3, default=None, ignorable=True)


@message(kind="data", versions=(0, 3), flexible_from=None)
class ConsumerProtocolAssignment:
    assigned_partitions: list[TopicPartition]
    user_data: Bytes | None = field(default=None)


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """Decode a subscription, or raise Refused(CORRUPT_MESSAGE)."""
    return _decoded(ConsumerProtocolSubscription, data)


def decode_topics(data: Buffer) -> list[str]:
    """Decode the topics of a subscription of any version as version 0, or raise Refused(CORRUPT_MESSAGE).

    Some clients write a newer version without its added fields; Apache Kafka reads no further either.
    """
    return _decoded(ConsumerProtocolSubscription, data, newest=0).topics


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """Decode an assignment, or raise Refused(CORRUPT_MESSAGE)."""
    return _decoded(ConsumerProtocolAssignment, data)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    return pack(">h", version) + encode(subscription, version)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    return pack(">h", version) + encode(assignment, version)


def _decoded(cls: type[T], data: Buffer, newest: int | None = None) -> T:
    version = unpack_from(">h", data)[0] if len(data) >= 2 else -1
    if version < 0:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"{cls.__name__} has no version")
    try:
        return decode(cls, min(version, schema_of(cls).versions[-1] if newest is None else newest), data, 2)
    except Malformed as malformed:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(malformed)) from None
