"""A member of a classic group: joins, is assigned partitions, reads from the committed offsets, commits, leaves.

    joining ──> syncing ──> fetching offsets ──> reading, heartbeats, commits ──> leaving ──> done
       ^___________________________ rebalance, or any failure ______|

The group's requests have their own connection, so that a long fetch does not delay heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.consumer.group_messages import assignments, decode_partitions, protocols
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from sim.history import Committed, Fetched, Seen, Value
from sim.simclients import Environment, SimClient
from sim.simclock import MILLISECOND_US, SECOND_US, SimNode
from sim.simfetching import SimFetcher

GROUP = "group"
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 6_000, 8_000
JOIN_TIMEOUT_US = 20 * SECOND_US
HEARTBEAT_US = SECOND_US
COMMIT_US = (200 * MILLISECOND_US, 1_500 * MILLISECOND_US)
FETCH_PAUSE_US = (MILLISECOND_US, 80 * MILLISECOND_US)
FORGOTTEN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)

Then = Callable[[Any], None]


class SimMember(SimClient):
    """A member that commits positions it has read, never lower than the assigned start."""

    def __init__(self, name: str, node: SimNode, environment: Environment, topic: TopicName) -> None:
        super().__init__(name, node, environment)
        self._topic = topic
        self._group_link = self.new_link("-group")
        self._fetcher = SimFetcher(self, self._read, self._refused)
        self._member_id = ""
        self._generation = -1
        self._turn = 0  # Changes with each membership: actions scheduled in an earlier one are dropped.
        self._is_joining = self._is_ended = False
        self._at_end: dict[TopicPartition, int] | None = None

    @property
    def is_done(self) -> bool:
        return self._is_ended

    def pump(self) -> None:
        if self._generation < 0 and not self._is_joining and not self._is_ended:
            self._is_joining = True
            self.find_topics([self._topic], lambda exist: self._find() if exist else self._out("no topics"))

    def _send_request(
        self, message: object, version: int, answer: type, then: Then, timeout_us: int = 8 * SECOND_US
    ) -> None:
        """Send a request; `then` is called only with a response, and only within the same membership."""
        turn = self._turn

        def answered(response: Any) -> None:
            if turn == self._turn and not self._is_ended:
                then(response) if response is not None else self._out("no answer")

        self._group_link.send_request(message, version, answer, answered, timeout_us)

    def _later(self, delay_us: int, action: Callable[[], None]) -> None:
        turn = self._turn
        self.node.after(delay_us, lambda: action() if turn == self._turn and not self._is_ended else None)

    def _out(self, reason: str) -> None:
        """Leave the current generation, and join again."""
        self.add_event("out", reason)
        self._turn += 1
        self._generation = -1
        self._is_joining = False
        self._fetcher.assign({})
        self.again()

    def _fails(self, code: int) -> bool:
        """Return True if the response ends the membership."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code:
            self._out(ErrorCode(code).name)
        return code != 0

    # Joining.

    def _find(self) -> None:
        """Look up the coordinator; the first lookup creates the internal topic of groups."""
        request = FindCoordinatorRequest(key=GROUP, key_type=0)
        self._send_request(request, 2, FindCoordinatorResponse, self._found)

    def _found(self, answer: FindCoordinatorResponse) -> None:
        if not self._fails(answer.error_code):
            self._join()

    def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=protocols([self._topic]),
        )
        self._send_request(request, 5, JoinGroupResponse, self._joined, JOIN_TIMEOUT_US)

    def _joined(self, answer: JoinGroupResponse) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            self._join()
            return
        if self._fails(answer.error_code):
            return
        self._member_id = answer.member_id
        members = sorted(member.member_id for member in answer.members)
        shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for place, partition in enumerate(self.environment.partitions(self._topic) if members else ()):
            shares[members[place % len(members)]].append(partition)
        generation = answer.generation_id
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=generation, member_id=self._member_id, assignments=assignments(shares)
        )
        self._send_request(
            request, 3, SyncGroupResponse, lambda response: self._synced(generation, response), JOIN_TIMEOUT_US
        )

    def _synced(self, generation: int, answer: SyncGroupResponse) -> None:
        if self._fails(answer.error_code):
            return
        mine = decode_partitions(bytes(answer.assignment))
        self.add_event("assigned", f"generation {generation} " + " ".join(map(str, mine)))
        for partition in mine:
            owner = self.history.owners.setdefault((GROUP, generation, partition), self._member_id)
            assert owner == self._member_id, f"{partition} has two owners in generation {generation}"
        invoked_us = self.environment.clock.now_us
        topics = [OffsetFetchRequestTopic(name=self._topic, partition_indexes=[name.partition for name in mine])]
        request = OffsetFetchRequest(group_id=GROUP, topics=topics)
        self._send_request(
            request, 6, OffsetFetchResponse, lambda response: self._has_offsets(generation, invoked_us, response)
        )

    def _has_offsets(self, generation: int, invoked_us: int, answer: OffsetFetchResponse) -> None:
        parts = [(topic.name, part) for topic in answer.topics for part in topic.partitions]
        if self._fails(answer.error_code or next((part.error_code for _, part in parts if part.error_code), 0)):
            return
        positions: dict[TopicPartition, int] = {}
        for name, part in parts:
            partition, offset = TopicPartition(TopicName(name), part.partition_index), part.committed_offset
            now_us = self.environment.clock.now_us
            self.history.fetched.append(Fetched(GROUP, partition, offset, invoked_us, now_us))
            positions[partition] = max(offset, 0)
        self.add_event("from", " ".join(f"{name}@{offset}" for name, offset in positions.items()))
        self._generation, self._is_joining, self._at_end = generation, False, None
        self._fetcher.assign(positions)
        self._heartbeat()
        self._later(self.random.randrange(*COMMIT_US), self._commit)
        self._fetch()

    # Being a member.

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self._generation, member_id=self._member_id)
        self._send_request(request, 3, HeartbeatResponse, self._beaten)

    def _beaten(self, answer: HeartbeatResponse) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._commit_then(lambda: self._out("rebalance"))
        elif not self._fails(answer.error_code):
            self._later(HEARTBEAT_US, self._heartbeat)

    def _fetch(self) -> None:
        """Fetch records, unless an earlier fetch is pending, whose response this membership ignores."""
        if self._fetcher.is_under_way:
            self._later(self.random.randrange(*FETCH_PAUSE_US), self._fetch)
        elif self._fetcher.positions:
            self._fetcher.fetch(self._fetched, 100)

    def _fetched(self, was_answered: bool) -> None:
        if self._generation >= 0:
            self._later(self.random.randrange(*FETCH_PAUSE_US), self._fetch)

    def _commit(self) -> None:
        marks, positions = self._fetcher.high_watermarks, dict(self._fetcher.positions)
        has_all = all(name in marks and offset >= marks[name] for name, offset in positions.items())
        is_over, self._at_end = has_all and self._at_end == positions, positions
        if self.is_draining and is_over:
            self._commit_then(self._leave)
        else:
            self._commit_then(lambda: self._later(self.random.randrange(*COMMIT_US), self._commit))

    def _commit_then(self, then: Callable[[], None]) -> None:
        positions, now_us = dict(self._fetcher.positions), self.environment.clock.now_us
        if not positions:
            then()
            return
        commits = [Committed(GROUP, self.name, name, offset, now_us) for name, offset in positions.items()]
        self.history.commits += commits
        parts = [
            OffsetCommitRequestPartition(
                partition_index=name.partition, committed_offset=offset, committed_metadata=None
            )
            for name, offset in positions.items()
        ]
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=parts)],
        )
        self.add_event("commit", " ".join(f"{name}@{offset}" for name, offset in positions.items()))
        self._send_request(request, 7, OffsetCommitResponse, lambda answer: self._committed(commits, answer, then))

    def _committed(self, commits: list[Committed], answer: OffsetCommitResponse, then: Callable[[], None]) -> None:
        codes = {part.partition_index: part.error_code for topic in answer.topics for part in topic.partitions}
        for commit in commits:
            if not codes[commit.partition.partition]:
                commit.acknowledged_us = self.environment.clock.now_us
        if not self._fails(next((code for code in codes.values() if code), 0)):
            then()

    def _leave(self) -> None:
        member = MemberIdentity(member_id=self._member_id)
        self._send_request(LeaveGroupRequest(group_id=GROUP, members=[member]), 3, LeaveGroupResponse, self._left)

    def _left(self, answer: LeaveGroupResponse) -> None:
        if not self._fails(answer.error_code):
            self.add_event("left")
            self._is_ended = True
            self.link.leave()
            self._group_link.leave()

    def _read(self, partition: TopicPartition, offset: int, value: Value) -> None:
        history = self.history
        history.seen.append(Seen(self.name, self._fetcher.era, self.environment.clock.now_us, partition, offset, value))
        self.add_event("read", f"{partition}@{offset} {value}")

    def _refused(self, partition: TopicPartition, code: ErrorCode) -> None:
        assert code != ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} had {self._fetcher.positions[partition]} committed"
        self.add_event("refused", f"{partition} {code.name}")
