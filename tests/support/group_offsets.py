"""Offsets of a group over a Harness: committed, fetched and deleted in any version, by name or by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
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
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from support.in_memory import Harness
from support.transactional import Transactional

Name = tuple[str, int]  # Topic and partition.
LATEST = 10  # Versions of OffsetCommit and OffsetFetch.
BY_ID = 10


class Kept(NamedTuple):
    """The committed offset of one partition."""

    offset: int
    metadata: str | None = ""
    leader_epoch: int = -1


class Member(NamedTuple):
    """The identity of a committing member, as sent in its requests."""

    id: str = ""
    generation: int = -1
    instance_id: str | None = None


NOT_A_MEMBER = Member()


def topic_id(harness: Harness, name: str) -> Uuid:
    """Return the id of a topic; of a missing topic, an unused id."""
    known = harness.broker.view.topics.get(TopicName(name))
    return Uuid(name.encode().rjust(16, b"?")) if known is None else known.id


class GroupOffsets:
    """The offsets of one group."""

    def __init__(self, harness: Harness, group_id: str = "g") -> None:
        self.harness = harness
        self.id = group_id
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
        (found,) = harness.request(request, 6, FindCoordinatorResponse).coordinators
        assert found.error_code == ErrorCode.NONE

    def request(
        self,
        kept: Mapping[Name, Kept | int],
        version: int = LATEST,
        member: Member = NOT_A_MEMBER,
        retention_ms: int = -1,
    ) -> OffsetCommitRequest:
        """Return a request that commits these offsets."""
        by_id = version >= BY_ID
        topics = [
            OffsetCommitRequestTopic(
                name="" if by_id else name,
                topic_id=topic_id(self.harness, name) if by_id else ZERO_UUID,
                partitions=[_partition(index, one) for (topic, index), one in kept.items() if topic == name],
            )
            for name in dict.fromkeys(topic for topic, _ in kept)
        ]
        return OffsetCommitRequest(
            group_id=self.id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.id,
            group_instance_id=member.instance_id,
            retention_time_ms=retention_ms,
            topics=topics,
        )

    def commit(
        self,
        kept: Mapping[Name, Kept | int],
        version: int = LATEST,
        member: Member = NOT_A_MEMBER,
        retention_ms: int = -1,
    ) -> dict[Name, ErrorCode]:
        request = self.request(kept, version, member, retention_ms)
        answer = self.harness.request(request, version, OffsetCommitResponse)
        names = {topic_id(self.harness, name): name for name, _ in kept}
        return {
            (names[Uuid(topic.topic_id)] if version >= BY_ID else topic.name, part.partition_index): ErrorCode(
                part.error_code
            )
            for topic in answer.topics
            for part in topic.partitions
        }

    def commit_in(
        self,
        producer: Transactional,
        kept: Mapping[Name, Kept | int],
        version: int = 5,
        member: Member = NOT_A_MEMBER,
    ) -> dict[Name, ErrorCode]:
        """Commit offsets with TxnOffsetCommit."""
        request = self.request_in(producer, kept, member)
        answer = self.harness.request(request, version, TxnOffsetCommitResponse)
        return {
            (topic.name, part.partition_index): ErrorCode(part.error_code)
            for topic in answer.topics
            for part in topic.partitions
        }

    def request_in(
        self, producer: Transactional, kept: Mapping[Name, Kept | int], member: Member = NOT_A_MEMBER
    ) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            transactional_id=producer.id,
            group_id=self.id,
            producer_id=producer.producer.id,
            producer_epoch=producer.producer.epoch,
            generation_id_or_member_epoch=member.generation,
            member_id=member.id,
            group_instance_id=member.instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[_in_transaction(index, one) for (topic, index), one in kept.items() if topic == name],
                )
                for name in dict.fromkeys(topic for topic, _ in kept)
            ],
        )

    def fetch(
        self, names: Sequence[Name] | None = None, version: int = LATEST, *, is_stable: bool = False
    ) -> dict[Name, Kept | ErrorCode]:
        """Fetch these offsets, or all; uncommitted ones are -1."""
        answer = self.harness.request(
            self.fetch_request(names, version, is_stable=is_stable), version, OffsetFetchResponse
        )
        if version < 8:
            assert answer.error_code == ErrorCode.NONE
            return {
                (topic.name, part.partition_index): _kept(
                    part.committed_offset, part.metadata, part.committed_leader_epoch, part.error_code
                )
                for topic in answer.topics
                for part in topic.partitions
            }
        (group,) = answer.groups
        assert (group.group_id, group.error_code) == (self.id, ErrorCode.NONE)
        return self._of_group(group, [name for name, _ in names or ()], by_id=version >= BY_ID)

    def _of_group(
        self, group: OffsetFetchResponseGroup, names: Sequence[str], *, by_id: bool
    ) -> dict[Name, Kept | ErrorCode]:
        ids = {topic_id(self.harness, name): name for name in (*names, *self.harness.broker.view.topics)}
        return {
            (ids[Uuid(topic.topic_id)] if by_id else topic.name, part.partition_index): _kept(
                part.committed_offset, part.metadata, part.committed_leader_epoch, part.error_code
            )
            for topic in group.topics
            for part in topic.partitions
        }

    def fetch_request(
        self, names: Sequence[Name] | None, version: int, *, is_stable: bool = False, member: Member = NOT_A_MEMBER
    ) -> OffsetFetchRequest:
        topics = None if names is None else dict.fromkeys(topic for topic, _ in names)
        indexes = {name: [index for topic, index in names or () if topic == name] for name in topics or ()}
        if version < 8:
            return OffsetFetchRequest(
                group_id=self.id,
                topics=None
                if topics is None
                else [OffsetFetchRequestTopic(name=name, partition_indexes=indexes[name]) for name in topics],
                require_stable=is_stable,
            )
        group = OffsetFetchRequestGroup(
            group_id=self.id,
            member_id=member.id or None,
            member_epoch=member.generation,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(
                    name=name if version < BY_ID else "",
                    topic_id=topic_id(self.harness, name) if version >= BY_ID else ZERO_UUID,
                    partition_indexes=indexes[name],
                )
                for name in topics
            ],
        )
        return OffsetFetchRequest(groups=[group], require_stable=is_stable)

    def forget(self, *names: Name) -> ErrorCode | dict[Name, ErrorCode]:
        """Delete offsets with OffsetDelete."""
        request = OffsetDeleteRequest(
            group_id=self.id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=index) for topic, index in names if topic == name
                    ],
                )
                for name in dict.fromkeys(topic for topic, _ in names)
            ],
        )
        answer = self.harness.request(request, 0, OffsetDeleteResponse)
        if answer.error_code:
            assert answer.topics == []
            return ErrorCode(answer.error_code)
        return {
            (topic.name, part.partition_index): ErrorCode(part.error_code)
            for topic in answer.topics
            for part in topic.partitions
        }

    def delete(self) -> ErrorCode:
        """Delete the group with DeleteGroups."""
        return delete_groups(self.harness, self.id)[self.id]


def delete_groups(harness: Harness, *names: str, version: int = 2) -> dict[str, ErrorCode]:
    answer = harness.request(DeleteGroupsRequest(groups_names=list(names)), version, DeleteGroupsResponse)
    assert len({one.group_id for one in answer.results}) == len(answer.results)
    return {one.group_id: ErrorCode(one.error_code) for one in answer.results}


def add_to_transaction(producer: Transactional, group_id: str) -> ErrorCode:
    """Add the group to the transaction with AddOffsetsToTxn."""
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.id,
        producer_id=producer.producer.id,
        producer_epoch=producer.producer.epoch,
        group_id=group_id,
    )
    return ErrorCode(producer.harness.request(request, 3, AddOffsetsToTxnResponse).error_code)


def groups(harness: Harness) -> set[str]:
    """List the groups with ListGroups."""
    answer = harness.request(ListGroupsRequest(), 5, ListGroupsResponse)
    assert answer.error_code == ErrorCode.NONE
    return {one.group_id for one in answer.groups}


def delete_topic(harness: Harness, name: str) -> None:
    answer = harness.request(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5, DeleteTopicsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE


def _partition(index: int, kept: Kept | int) -> OffsetCommitRequestPartition:
    one = Kept(kept) if isinstance(kept, int) else kept
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=one.offset,
        committed_leader_epoch=one.leader_epoch,
        committed_metadata=one.metadata,
    )


def _in_transaction(index: int, kept: Kept | int) -> TxnOffsetCommitRequestPartition:
    one = Kept(kept) if isinstance(kept, int) else kept
    return TxnOffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=one.offset,
        committed_leader_epoch=one.leader_epoch,
        committed_metadata=one.metadata,
    )


def _kept(offset: int, metadata: str | None, leader_epoch: int, code: int) -> Kept | ErrorCode:
    if code:
        assert (offset, metadata, leader_epoch) == (-1, "", -1)
        return ErrorCode(code)
    return Kept(offset, metadata, leader_epoch)
