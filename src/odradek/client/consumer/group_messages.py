"""Subscriptions and assignments that classic group members exchange in JoinGroup and SyncGroup.

Subscriptions use the first format: eager assignment needs no other fields, and every client can read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from odradek.base.errors import Refused
from odradek.base.units import TopicName, TopicPartition
from odradek.client.connection.client_errors import ClientError
from odradek.client.consumer.assignors import ASSIGNORS, Subscriber
from odradek.client.consumer.group_offsets import by_topic
from odradek.record.internal import consumer_protocol
from odradek.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponseMember
from odradek.wire.messages.sync_group import SyncGroupRequestAssignment

FORMAT = 0


def protocols(topics: Sequence[str]) -> list[JoinGroupRequestProtocol]:
    """Return the same subscription for each assignor."""
    subscription = consumer_protocol.encode_subscription(
        consumer_protocol.ConsumerProtocolSubscription(topics=list(topics)), FORMAT
    )
    return [JoinGroupRequestProtocol(name=name, metadata=subscription) for name in ASSIGNORS]


def subscribers(members: Iterable[JoinGroupResponseMember]) -> list[Subscriber]:
    """Return the members' subscriptions; raise ClientError for an unreadable one."""
    return [
        Subscriber(
            each.member_id, each.group_instance_id, frozenset(decode_topics(each.member_id, bytes(each.metadata)))
        )
        for each in members
    ]


def decode_topics(member_id: str, data: bytes) -> list[str]:
    try:
        return consumer_protocol.decode_subscription(data).topics
    except Refused as refused:
        raise ClientError(f"invalid subscription of member {member_id}: {refused.detail}") from None


def assignments(shares: Mapping[str, Sequence[TopicPartition]]) -> list[SyncGroupRequestAssignment]:
    return [
        SyncGroupRequestAssignment(member_id=each, assignment=encode_share(those)) for each, those in shares.items()
    ]


def encode_share(partitions: Sequence[TopicPartition]) -> bytes:
    topics = [
        consumer_protocol.TopicPartition(topic=topic, partitions=[each.partition for each in those])
        for topic, those in by_topic(partitions).items()
    ]
    return consumer_protocol.encode_assignment(
        consumer_protocol.ConsumerProtocolAssignment(assigned_partitions=topics), FORMAT
    )


def decode_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions assigned to a member, possibly none, or raise ClientError."""
    if not data:
        return ()
    try:
        decoded = consumer_protocol.decode_assignment(data)
    except Refused as refused:
        raise ClientError(f"invalid assignment from the group leader: {refused.detail}") from None
    return tuple(
        sorted(
            TopicPartition(TopicName(each.topic), index)
            for each in decoded.assigned_partitions
            for index in each.partitions
        )
    )
