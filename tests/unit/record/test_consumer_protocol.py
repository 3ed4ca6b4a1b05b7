"""Messages that consumers exchange through the broker, and invalid bytes in their place."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import ErrorCode, Refused
from odradek.record.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from unit.wire.wire_support import Maker, check_message, message_facts

pytestmark = pytest.mark.slow

FACT_OF = {fact["name"]: fact for fact in message_facts()}
plausible = st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 0x7F, 0x80, 0xFF]), max_size=200).map(bytes)
garbage = st.one_of(st.binary(max_size=200), plausible)


@pytest.mark.parametrize(
    "cls", [ConsumerProtocolSubscription, ConsumerProtocolAssignment], ids=lambda cls: cls.__name__
)
def test_class_matches_kafkas_definition(cls: type) -> None:
    check_message(cls, FACT_OF[cls.__name__])


@pytest.mark.parametrize("version", range(4))
def test_round_trip(version: int) -> None:
    @settings(max_examples=50, deadline=None, database=None)
    @given(st.integers())
    def check(seed: int) -> None:
        maker = Maker(f"{seed} {version}")
        subscription = maker.message(ConsumerProtocolSubscription, version)
        assignment = maker.message(ConsumerProtocolAssignment, version)
        assert isinstance(subscription, ConsumerProtocolSubscription)
        assert isinstance(assignment, ConsumerProtocolAssignment)
        assert decode_subscription(encode_subscription(subscription, version)) == subscription
        assert decode_assignment(encode_assignment(assignment, version)) == assignment

    check()


def test_newer_version_is_decoded_as_the_latest_known() -> None:
    subscription = ConsumerProtocolSubscription(topics=["a", "b"], generation_id=4, rack_id="r")
    data = encode_subscription(subscription, 3)
    assert decode_subscription(pack(">h", 9) + data[2:] + b"what version 9 adds") == subscription
    assignment = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="a", partitions=[0, 1])])
    assert decode_assignment(pack(">h", 4) + encode_assignment(assignment, 3)[2:] + b"\0") == assignment


@pytest.mark.parametrize("data", ["", "00", "0000", "ffff 00000000 ffffffff", "0001 00000000 ffffffff"])
def test_invalid_subscription_is_refused(data: str) -> None:
    with pytest.raises(Refused) as caught:
        decode_subscription(bytes.fromhex(data))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@settings(max_examples=500, deadline=None, database=None)
@given(garbage, st.integers(-1, 5))
def test_any_bytes_are_decoded_or_refused(data: bytes, version: int) -> None:
    """Any bytes are decoded or refused as corrupt; no other error is raised."""
    for prefixed in (data, pack(">h", version) + data):
        for read in (decode_subscription, decode_assignment):
            try:
                read(prefixed)
            except Refused as refused:
                assert refused.code is ErrorCode.CORRUPT_MESSAGE


def test_too_many_elements_are_refused_before_decoding() -> None:
    """The metadata of a member may be as large as its request; the decoded objects may not."""
    with pytest.raises(Refused):
        decode_subscription(pack(">hi", 0, 200_000) + bytes(400_004))
