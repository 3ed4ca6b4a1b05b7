"""Verbs for commits of offsets, by members of groups and others."""

from __future__ import annotations

from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from scenario.group_verbs import ADMIN, Client, client
from scenario.world import World, error, options, partition_of


def commit(world: World, arguments: list[str]) -> None:
    """commit g a t-0=5 ... [generation=]; with no client: commit g t-0=5, as administrators do."""
    (group, *client_names), offsets = options(arguments)
    how = {"generation": offsets.pop("generation")} if "generation" in offsets else {}
    one = client(world, group, client_names[0]) if client_names else Client(ADMIN, group)
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for text, offset in offsets.items():
        topic, partition = partition_of(text)
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=int(offset), committed_metadata=None
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=int(how.get("generation", one.generation)),
        member_id=one.member_id,
        group_instance_id=one.instance,
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )

    def outcome_of(answer: OffsetCommitResponse) -> str:
        codes = {error(part.error_code) for topic in answer.topics for part in topic.partitions}
        return ", ".join(sorted(codes))

    world.send(one.name, request, one.version(9), OffsetCommitResponse, outcome_of)


def committed(world: World, arguments: list[str]) -> None:
    """committed g t-0"""
    group, text = arguments
    topic, partition = partition_of(text)
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
    world.send(
        ADMIN,
        OffsetFetchRequest(group_id=group, topics=topics),
        5,
        OffsetFetchResponse,
        lambda answer: str(answer.topics[0].partitions[0].committed_offset),
    )


VERBS = {
    "commit": commit,
    "committed": committed,
}
