from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.app.cli.partition_arguments import ends_of, existing_partitions, named_partitions, parse_topic_option
from odradek.app.terminal.command_failed import CommandFailed
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import UnknownTopic
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from support.scripted_broker import ScriptedBroker


def at(topic: str, *indexes: int) -> list[TopicPartition]:
    return [TopicPartition(TopicName(topic), index) for index in indexes]


def test_topic_option_is_parsed() -> None:
    assert parse_topic_option("orders") == ("orders", None)
    assert parse_topic_option("orders:2") == ("orders", [2])
    assert parse_topic_option("orders:0, 2") == ("orders", [0, 2])


@pytest.mark.parametrize(
    "text", ["", ":1", "orders:", "orders:x", "orders:1,", "orders:-1", "orders:1:2", "orders:²", "orders:2147483648"]
)
def test_invalid_topic_option_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed, match="invalid --topic") as refused:
        parse_topic_option(text)
    assert refused.value.status == 2


@given(st.text(max_size=20))
def test_any_topic_option_is_parsed_or_refused(text: str) -> None:
    try:
        topic, numbers = parse_topic_option(text)
    except CommandFailed:
        return
    assert topic
    assert numbers is None or all(number >= 0 for number in numbers)


@pytest.mark.waits
def test_existing_partitions_are_selected() -> None:
    with ScriptedBroker() as broker, Cluster(ClientConfig(broker.address)) as cluster:
        broker.topics = {"t": 3, "u": 1}
        assert existing_partitions(cluster, ["u", "t:0,2", "t:2"]) == at("t", 0, 2) + at("u", 0)
        assert named_partitions(cluster, ["t:7", "u"]) == at("t", 7) + at("u", 0)
        with pytest.raises(CommandFailed, match="partition 3 does not exist: topic t has 3"):
            existing_partitions(cluster, ["t:3"])
        with pytest.raises(UnknownTopic, match="topic nix"):
            existing_partitions(cluster, ["nix"])


@pytest.mark.waits
def test_end_offsets_of_remaining_partitions() -> None:
    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        parts = [
            ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=0, offset=42)
            for part in request.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=request.topics[0].name, partitions=parts)])

    with ScriptedBroker() as broker, Cluster(ClientConfig(broker.address)) as cluster:
        broker.topics = {"t": 2}
        broker.on(ListOffsetsRequest, answer)
        assert ends_of(cluster, at("t", 0, 7) + at("gone", 0)) == {at("t", 0)[0]: 42}
        assert ends_of(cluster, []) == {}
    with ScriptedBroker() as broker, Cluster(ClientConfig(broker.address)) as cluster:
        broker.leader = -1
        assert ends_of(cluster, at("t", 0)) == {}, "nobody leads it: nobody is asked"
