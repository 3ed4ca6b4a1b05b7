"""Verbs for offsets of groups other than commits, and for the groups themselves."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from scenario.group_verbs import ADMIN, Client, client
from scenario.txn_verbs import process
from scenario.world import World, error, milliseconds, options

STABLE = "stable"


def kept(world: World, arguments: list[str]) -> None:
    """kept g [stable]: all that the group has committed."""
    group_id, *how = arguments
    requested_group = OffsetFetchRequestGroup(group_id=group_id, topics=None)

    def outcome_of(answer: OffsetFetchResponse) -> str:
        (group,) = answer.groups
        if group.error_code:
            return error(group.error_code)
        offsets = sorted(
            f"{topic.name}-{part.partition_index} "
            + (error(part.error_code) if part.error_code else str(part.committed_offset))
            for topic in group.topics
            for part in topic.partitions
        )
        return ", ".join(offsets) or "none"

    request = OffsetFetchRequest(groups=[requested_group], require_stable=how == [STABLE])
    world.send(ADMIN, request, 9, OffsetFetchResponse, outcome_of)


def commit_for(world: World, arguments: list[str]) -> None:
    """commit-for 1h g t-0=5: an offset with a time of its own, as old clients commit."""
    (duration, group), offsets = options(arguments)
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=None)
                for index, offset in partitions
            ],
        )
        for name, partitions in _by_topic(offsets)
    ]
    request = OffsetCommitRequest(group_id=group, retention_time_ms=milliseconds(duration), topics=topics)

    def outcome_of(answer: OffsetCommitResponse) -> str:
        return _codes(part.error_code for topic in answer.topics for part in topic.partitions)

    world.send(ADMIN, request, 4, OffsetCommitResponse, outcome_of)


def drop(world: World, arguments: list[str]) -> None:
    """drop g t-0 ...: an administrator has the group forget these offsets."""
    group, *places = arguments
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index, _ in partitions]
        )
        for name, partitions in _by_topic(dict.fromkeys(places, "0"))
    ]

    def outcome_of(answer: OffsetDeleteResponse) -> str:
        if answer.error_code:
            return error(answer.error_code)
        return ", ".join(
            f"{topic.name}-{part.partition_index} {error(part.error_code)}"
            for topic in answer.topics
            for part in topic.partitions
        )

    world.send(ADMIN, OffsetDeleteRequest(group_id=group, topics=topics), 0, OffsetDeleteResponse, outcome_of)


def groups(world: World, arguments: list[str]) -> None:
    """groups [state=Stable] [type=consumer]"""
    _, how = options(arguments)
    request = ListGroupsRequest(
        states_filter=[how["state"]] if "state" in how else [], types_filter=[how["type"]] if "type" in how else []
    )

    def outcome_of(answer: ListGroupsResponse) -> str:
        if answer.error_code:
            return error(answer.error_code)
        return ", ".join(sorted(f"{one.group_id} {one.group_state}" for one in answer.groups)) or "none"

    world.send(ADMIN, request, 5, ListGroupsResponse, outcome_of)


def delete(world: World, arguments: list[str]) -> None:
    """delete g ...: groups."""

    def outcome_of(answer: DeleteGroupsResponse) -> str:
        return ", ".join(f"{one.group_id} {error(one.error_code)}" for one in answer.results)

    world.send(ADMIN, DeleteGroupsRequest(groups_names=arguments), 2, DeleteGroupsResponse, outcome_of)


def delete_topic(world: World, arguments: list[str]) -> None:
    """delete-topic t"""
    request = DeleteTopicsRequest(topic_names=arguments, timeout_ms=1000)
    answer = world.harness.request(request, 5, DeleteTopicsResponse)
    assert answer.responses[0].error_code == 0, error(answer.responses[0].error_code)


def send_offsets(world: World, arguments: list[str]) -> None:
    """send-offsets p g [a] t-0=5 ... [generation=]: in the producer's transaction, as that member of the group."""
    (name, group, *client_names), offsets = options(arguments)
    one = client(world, group, client_names[0]) if client_names else Client(ADMIN, group)
    generation = int(offsets.pop("generation", one.generation))
    producer = process(world, name)
    topics = [
        TxnOffsetCommitRequestTopic(
            name=topic,
            partitions=[
                TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=None)
                for index, offset in partitions
            ],
        )
        for topic, partitions in _by_topic(offsets)
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=producer.id,
        group_id=group,
        producer_id=producer.producer.id,
        producer_epoch=producer.producer.epoch,
        generation_id_or_member_epoch=generation,
        member_id=one.member_id,
        group_instance_id=one.instance,
        topics=topics,
    )

    def outcome_of(answer: TxnOffsetCommitResponse) -> str:
        return _codes(part.error_code for topic in answer.topics for part in topic.partitions)

    world.send(name, request, 5, TxnOffsetCommitResponse, outcome_of)


def _by_topic(offsets: dict[str, str]) -> list[tuple[str, list[tuple[int, int]]]]:
    topics: dict[str, list[tuple[int, int]]] = {}
    for text, offset in offsets.items():
        topic, _, index = text.rpartition("-")
        topics.setdefault(topic, []).append((int(index), int(offset)))
    return list(topics.items())


def _codes(codes: Iterable[int]) -> str:
    return ", ".join(sorted({error(code) for code in codes}))


VERBS = {
    "kept": kept,
    "commit-for": commit_for,
    "drop": drop,
    "groups": groups,
    "delete": delete,
    "delete-topic": delete_topic,
    "send-offsets": send_offsets,
}
