"""Messages between group members: decoded by kafka-python; invalid bytes are refused with one error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import (  # type: ignore[import-untyped]  # Has no types.
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from odradek.base.units import TopicName, TopicPartition
from odradek.client.connection.client_errors import ClientError
from odradek.client.consumer.group_messages import (
    assignments,
    decode_partitions,
    decode_topics,
    encode_share,
    protocols,
    subscribers,
)
from odradek.wire.messages.join_group import JoinGroupResponseMember

NAMES = st.text(min_size=1, max_size=20)
PARTITIONS = st.sets(st.builds(TopicPartition, NAMES.map(TopicName), st.integers(0, 2**31 - 1)), max_size=8)


@given(st.lists(NAMES, max_size=6))
def test_subscription_round_trip(topics: list[str]) -> None:
    for protocol in protocols(topics):
        member = JoinGroupResponseMember(member_id="m", group_instance_id="i", metadata=bytes(protocol.metadata))
        assert subscribers([member]) == [("m", "i", frozenset(topics))]


@given(PARTITIONS)
def test_assignment_round_trip(partitions: set[TopicPartition]) -> None:
    assert decode_partitions(encode_share(sorted(partitions))) == tuple(sorted(partitions))


def test_kafka_python_reads_them() -> None:
    (first, second) = protocols(["a", "b"])
    assert (first.name, second.name) == ("range", "roundrobin")
    theirs = ConsumerProtocolSubscription.decode(bytes(first.metadata))
    assert list(theirs.topics) == ["a", "b"]
    partitions = [
        TopicPartition(TopicName("a"), 0),
        TopicPartition(TopicName("a"), 2),
        TopicPartition(TopicName("b"), 1),
    ]
    (sent,) = assignments({"m": partitions})
    read = ConsumerProtocolAssignment.decode(bytes(sent.assignment))
    assert [(each[0], list(each[1])) for each in read.assigned_partitions] == [("a", [0, 2]), ("b", [1])]


def test_empty_assignment_is_accepted() -> None:
    assert decode_partitions(b"") == ()
    assert decode_partitions(encode_share([])) == ()


@given(st.binary(max_size=64))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for read in (lambda: decode_topics("m", data), lambda: decode_partitions(data)):
        try:
            read()
        except ClientError as error:
            assert str(error).startswith(
                ("invalid subscription of member m", "invalid assignment from the group leader")
            )


def test_error_contains_the_member_id() -> None:
    with pytest.raises(ClientError, match="invalid subscription of member m-1"):
        decode_topics("m-1", b"\x00")
