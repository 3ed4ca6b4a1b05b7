"""OffsetCommit requests recognised by a template: they have the same effects as parsed ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from odradek.api.groups.plain_commit import PARTITIONS_MAX
from odradek.api.templates.template_cache import NumbersTemplates
from odradek.base.errors import ErrorCode
from odradek.base.limits import COMMIT_TEMPLATES_MAX
from odradek.base.units import TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.client_codec import decode_response, encode_request
from odradek.wire.connection import Connection
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
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
from odradek.wire.schema.malformed import Malformed
from support.alike import Damage, Usual, lengthen
from support.in_memory import Harness
from support.kept import committed_offsets
from support.members import stable

T = TypeVar("T")

VERSIONS = range(2, 11)
TOPIC_IDS_SINCE = 10
STEPS = 2_000
TOPICS = ("t", "another")
CLASSIC, CONSUMER, SIMPLE = "classic", "consumer", "simple"
ALL_SET = "\u00ff" * 8  # Metadata written with an offset, to find it again.


class Side(Harness):
    """A broker with topics of two partitions and three groups: one of each protocol, and one without members."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, offsets_topic_num_partitions="3", group_initial_rebalance_delay_ms="0")
        self.request(FindCoordinatorRequest(key="g", key_type=0), 3, FindCoordinatorResponse)
        for name in TOPICS:
            self.create(name)
        self.recognised = 0

    def create(self, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        self.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)

    def delete(self, name: str) -> None:
        self.request(DeleteTopicsRequest(topic_names=[name], timeout_ms=1_000), 3, DeleteTopicsResponse)

    def grow(self, name: str, count: int) -> None:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        self.request(
            CreatePartitionsRequest(topics=[topic], timeout_ms=1_000, validate_only=False), 2, CreatePartitionsResponse
        )

    def become_member(self, group: str) -> tuple[str, int]:
        """Join the group as its only member; return its id, and its generation or epoch."""
        if group == CLASSIC:
            joined = stable(self, group=group)
            return joined.member_id, joined.generation_id
        beat = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="c",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=list(TOPICS),
            topic_partitions=[],
        )
        answer = self.request(beat, 1, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        return "c", answer.member_epoch

    def leave(self, group: str, member_id: str) -> None:
        if group == CLASSIC:
            self.request(LeaveGroupRequest(group_id=group, member_id=member_id), 0, LeaveGroupResponse)
        else:
            beat = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=-1)
            self.request(beat, 1, ConsumerGroupHeartbeatResponse)

    def forget_offset(self, name: str, index: int) -> None:
        part = OffsetDeleteRequestPartition(partition_index=index)
        topic = OffsetDeleteRequestTopic(name=name, partitions=[part])
        self.request(OffsetDeleteRequest(group_id=SIMPLE, topics=[topic]), 0, OffsetDeleteResponse)

    def play(self, frame: bytes) -> bytes | str:
        (request,) = Connection().receive_data(frame)
        self.recognised += self.peer.commit_templates.match_request(request) is not None
        try:
            chunks = self.finished(self.send_frame(frame))
        except Malformed as closed:
            return str(closed)
        assert chunks is not None
        return b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))

    def kept(self) -> list[tuple[list[str], list[str]]]:
        """Return the groups and committed offsets of each shard."""
        return [
            (sorted(shard.groups), [repr(one) for one in committed_offsets(shard.offsets).items()])
            for shard in self.broker.groups.shards
        ]

    def logs(self) -> list[bytes]:
        paths = sorted(self._directory.glob(f"{CONSUMER_OFFSETS}-*/*.log"))
        return [path.read_bytes() for path in paths]


class Forgetful(Side):
    """A client whose every request is the first of its connection."""

    def play(self, frame: bytes) -> bytes | str:
        self.peer.commit_templates = NumbersTemplates(COMMIT_TEMPLATES_MAX)
        return super().play(frame)


class Habits:
    """Common properties of one committer's requests, mostly ordinary."""

    def __init__(self, random: Random) -> None:
        usually = Usual(random, 0.85)
        self.version = random.choice(VERSIONS)
        self.group = random.choice([CLASSIC, CONSUMER, SIMPLE, SIMPLE, ""])
        self.places = random.choice(
            [
                [(0, [0])],
                [(0, [1])],
                [(0, [0, 1]), (1, [1])],
                [(1, [0, 0])],
                [(0, [0]), (0, [1])],
                [(0, [2])],
                [(0, [])],
            ]
        )
        self.leader_epoch = usually(-1, 0, 3) if self.version >= 6 else -1
        self.metadata = random.choice([None, "", "", "some", "x" * 4096, "x" * 4097, ALL_SET])
        self.retention_ms = usually(-1, 0, 100_000) if self.version <= 4 else -1
        self.epoch_off = usually(0, -1, 1)
        self.is_other_member = random.random() < 0.1
        self.instance_id = usually(0, 1) if self.version >= 7 else 0
        self.damage = Damage(random, 60, 0.5) if random.random() < 0.2 else None
        self.is_old = random.random() < 0.2  # It does not learn that the topic was recreated.


class Story:
    """Similar commits, so that most match a template, and changes of the broker between them."""

    def __init__(self, seed: int, *sides: Side) -> None:
        self.random = Random(seed)
        self.sides = sides
        self.number = 0
        self.offset = 0
        self.topic_ids = dict.fromkeys(TOPICS, ZERO_UUID)
        self.members: dict[str, tuple[str, int]] = {SIMPLE: ("", -1), "": ("", -1)}
        for group in (CLASSIC, CONSUMER):
            self.members[group] = self.run_on_all(partial(Side.become_member, group=group))
        self.begin()

    def run_on_all(self, work: Callable[[Side], T]) -> T:
        done = [work(side) for side in self.sides]
        assert done[0] == done[1]
        return done[0]

    def begin(self) -> None:
        """Begin as another committer, now and then on another connection."""
        for side in self.sides:
            if self.number % 5 == 0:
                side.peer.commit_templates = NumbersTemplates(COMMIT_TEMPLATES_MAX)
        self.habits = Habits(self.random)

    def play(self) -> None:
        for number in range(STEPS):
            self.step()
            if number % 50 == 0:
                self.compare()
        self.compare()
        for side in self.sides:
            side.kill()
        self.compare()

    def compare(self) -> None:
        self.run_on_all(Side.kept)
        self.run_on_all(Side.logs)

    def step(self) -> None:
        match self.random.random():
            case chance if chance < 0.01:
                self.replace_topic(for_long=chance < 0.003)
            case chance if chance < 0.015:
                self.grow()
            case chance if chance < 0.03:
                self.change_members()
            case chance if chance < 0.04:
                self.forget()
            case chance if chance < 0.08:
                self.begin()
            case chance if chance < 0.1:
                for side in self.sides:
                    side.pass_time(500)
            case _:
                self.commit()

    def replace_topic(self, for_long: bool) -> None:
        name = self.random.choice(TOPICS)
        is_there = TopicName(name) in self.sides[0].broker.view.topics
        for side in self.sides:
            if is_there:
                side.delete(name)
            if not (is_there and for_long):
                side.create(name)

    def grow(self) -> None:
        name = self.random.choice([*TOPICS, CONSUMER_OFFSETS])
        known = self.sides[0].broker.view.topics.get(TopicName(name))
        if known is not None and len(known.partitions) < 6:
            for side in self.sides:
                side.grow(name, len(known.partitions) + 1)

    def change_members(self) -> None:
        group = self.random.choice([CLASSIC, CONSUMER])
        for side in self.sides:
            side.leave(group, self.members[group][0])
        self.members[group] = self.run_on_all(partial(Side.become_member, group=group))

    def forget(self) -> None:
        name, index, whole = self.random.choice(TOPICS), self.random.choice([0, 1]), self.random.random() < 0.5
        for side in self.sides:
            if whole:
                side.request(DeleteGroupsRequest(groups_names=[SIMPLE]), 1, DeleteGroupsResponse)
            else:
                side.forget_offset(name, index)

    def commit(self) -> None:
        version = self.habits.version
        request = self.request(version)
        frame = bytearray(framed(request, version, self.number))
        self.number += 1
        if self.habits.damage is not None:
            self.habits.damage.hit(frame)
        lengthen(frame, self.random)
        self.run_on_all(lambda side: side.play(bytes(frame)))

    def request(self, version: int) -> OffsetCommitRequest:
        random, habits = self.random, self.habits
        self.offset += 1
        member_id, epoch = self.members[habits.group]
        return OffsetCommitRequest(
            group_id=habits.group,
            generation_id_or_member_epoch=epoch + habits.epoch_off,
            member_id="somebody else" if habits.is_other_member else member_id,
            group_instance_id="instance" if habits.instance_id else None,
            retention_time_ms=habits.retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPICS[topic] if version < TOPIC_IDS_SINCE else "",
                    topic_id=self.topic_id(TOPICS[topic]) if version >= TOPIC_IDS_SINCE else ZERO_UUID,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=self.offset if random.random() < 0.9 else random.choice([-1, 0, 1 << 62]),
                            committed_leader_epoch=habits.leader_epoch,
                            committed_metadata=habits.metadata,
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in habits.places
            ],
        )

    def topic_id(self, name: str) -> Uuid:
        known = self.sides[0].broker.view.topics.get(TopicName(name))
        if known is not None and not self.habits.is_old:
            self.topic_ids[name] = known.id
        return self.topic_ids[name]


def framed(request: OffsetCommitRequest, version: int, number: int = 1) -> bytes:
    return b"".join(chunk for chunk in encode_request(request, version, number, "tests") if isinstance(chunk, bytes))


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(6))
def test_recognised_commits_have_the_effects_of_parsed_ones(tmp_path: Path, seed: int) -> None:
    quick, slow = Side(tmp_path / "quick"), Forgetful(tmp_path / "slow")
    Story(seed, quick, slow).play()
    assert quick.recognised > STEPS / 10
    assert not slow.recognised


@pytest.fixture
def side(tmp_path: Path) -> Side:
    return Side(tmp_path)


def commit(
    side: Side, offset: int, version: int = 9, *, group: str = SIMPLE, metadata: str = "", partitions: int = 2
) -> list[ErrorCode]:
    """Commit an offset and return the error codes."""
    topic = side.broker.view.topics.get(TopicName("t"))
    named = {"name": "t"} if version < TOPIC_IDS_SINCE else {"topic_id": topic.id if topic else ZERO_UUID}
    parts = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
        for index in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(partitions=parts, **named)],  # type: ignore[arg-type]
    )
    answer = side.play(framed(request, version, offset))
    assert isinstance(answer, bytes)
    correlation_id, response = decode_response(OffsetCommitResponse, version, answer[4:])
    assert correlation_id == offset
    return [ErrorCode(part.error_code) for topic in response.topics for part in topic.partitions]


def list_committed(side: Side, group: str = SIMPLE) -> list[int]:
    (topic,) = side.broker.groups.shard_of(group).offsets.of_group(group).values()
    return [topic[index].offset for index in sorted(topic)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_third_similar_commit_is_recognised(side: Side, version: int) -> None:
    """Otherwise the comparison above would compare nothing. The second request shows that there may be more."""
    for offset in range(1, 6):
        assert commit(side, offset, version) == [ErrorCode.NONE] * 2
        assert list_committed(side) == [offset] * 2
    assert side.recognised == 3
    side.kill()
    assert list_committed(side) == [5, 5]


@pytest.mark.parametrize(("partitions", "is_recognised"), [(PARTITIONS_MAX, True), (PARTITIONS_MAX + 1, False)])
def test_a_similar_commit_of_many_partitions_is_recognised(side: Side, partitions: int, is_recognised: bool) -> None:
    side.grow("t", PARTITIONS_MAX + 1)
    for offset in range(1, 5):
        assert commit(side, offset, partitions=partitions) == [ErrorCode.NONE] * partitions
        assert list_committed(side) == [offset] * partitions
    assert bool(side.recognised) == is_recognised
    side.kill()
    assert list_committed(side) == [4] * partitions


def test_a_recognised_commit_waits_until_it_is_durable(side: Side) -> None:
    for offset in (1, 2, 3):
        commit(side, offset)
    topic = OffsetCommitRequestTopic(
        name="t",
        partitions=[
            OffsetCommitRequestPartition(partition_index=index, committed_offset=4, committed_metadata="")
            for index in (0, 1)
        ],
    )
    waiting = side.send_frame(framed(OffsetCommitRequest(group_id=SIMPLE, topics=[topic]), 9))
    assert isinstance(waiting, ParkedRequest)
    side.broker.groups.shard_of(SIMPLE).log.leading.partition.take_offline()
    answer = side.finished(waiting)
    assert answer is not None
    (chunk,) = answer
    assert isinstance(chunk, bytes)
    (result,) = decode_response(OffsetCommitResponse, 9, chunk[4:])[1].topics
    assert [part.error_code for part in result.partitions] == [ErrorCode.NOT_COORDINATOR] * 2


def test_a_recreated_topic_gets_no_former_offsets(side: Side) -> None:
    for offset in (1, 2, 3):
        commit(side, offset)
    first = side.broker.view.topics[TopicName("t")].id
    side.delete("t")
    assert commit(side, 4) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    side.create("t")
    assert commit(side, 5) == [ErrorCode.NONE] * 2
    (topic,) = side.broker.groups.shard_of(SIMPLE).offsets.of_group(SIMPLE).values()
    assert topic[0].topic_id != first


def test_commit_templates_are_bounded(side: Side) -> None:
    for number in range(COMMIT_TEMPLATES_MAX + 50):
        for offset in (1, 2):
            commit(side, offset, group=f"{number:04}")
    assert len(side.peer.commit_templates) == COMMIT_TEMPLATES_MAX
    assert len(side.peer.commit_templates._seen) <= COMMIT_TEMPLATES_MAX


def test_a_single_commit_creates_no_template(side: Side) -> None:
    for number in range(50):
        commit(side, 1, group=f"{number:04}")
    assert not len(side.peer.commit_templates)


def test_long_commits_are_parsed_each_time(side: Side) -> None:
    for offset in range(1, 5):
        assert commit(side, offset, metadata="x" * 4096) == [ErrorCode.NONE] * 2
    assert not side.recognised
