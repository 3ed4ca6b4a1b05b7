"""A member of a consumer group of the classic protocol: joins, sends heartbeats, commits, leaves.

    member = GroupMember(cluster, "billing", ["orders"])
    while ...:
        if member.keep_alive():        # Joins, sends due heartbeats, and rejoins after a rebalance.
            ...                        # member.assignment is new.
        ...                            # For less than the session timeout.
        member.commit({partition: Committed(offset)})
    member.leave()

There is no thread: a caller that waits for other events calls keep_alive() about once a second. Assignment is eager (in
the terms of KIP-429): a rebalance revokes and reassigns all partitions. The member elected leader by the broker assigns
partitions with an assignor from assignors.ASSIGNORS, and requests a rebalance when partitions are added to a topic.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from odradek.base.errors import ErrorCode
from odradek.base.units import MINUTE_MS, SECOND_MS, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.coordinator_lookup import Coordinator, KeyType, has_moved
from odradek.client.cluster.describe import check
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import ClientError, ErrorResponse, Unsupported
from odradek.client.connection.retry import Backoff, RetryDeadline, is_retriable
from odradek.client.consumer.assignors import ASSIGNORS
from odradek.client.consumer.group_messages import assignments, decode_partitions, protocols, subscribers
from odradek.client.consumer.group_offsets import Committed, Membership, commit
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SESSION_TIMEOUT_MS = 45 * SECOND_MS  # The defaults of Kafka's consumers, like the next two values.
REBALANCE_TIMEOUT_MS = 5 * MINUTE_MS
HEARTBEAT_INTERVAL_MS = 3 * SECOND_MS
JOIN_SLACK_MS = 5 * SECOND_MS  # The broker answers a join only after the rebalance timeout.
LEAVE_TIMEOUT_MS = 5 * SECOND_MS
VERSION_WITH_INSTANCES = 5  # Version of JoinGroup.
LEAVE_BY_IDENTITY = 3

# The group has rebalanced without this member, which rejoins with the same member id.
REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
# The group has removed this member, which rejoins as a new one.
REMOVED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID})


class GroupMember:
    """Member of a group; not thread-safe.

    Methods raise ClientErrors that can't be retried: FENCED_INSTANCE_ID, authorization, ...
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Sequence[str],
        *,
        instance_id: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
        heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS,
    ) -> None:
        """Create a member without joining.

        instance_id makes the membership static (KIP-345): leave() then sends nothing, and a member that returns within
        the session timeout gets the same partitions without a rebalance.
        """
        self.group = group
        self.assignment: tuple[TopicPartition, ...] = ()
        self._cluster = cluster
        self._topics = sorted(set(topics))
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self.coordinator = Coordinator(cluster, KeyType.GROUP, group)
        self._member = Membership(instance_id=instance_id)
        self._is_joined = False
        self._is_leader = False
        self._reason = "the consumer is starting"
        self._heartbeat_at = 0.0
        self._failing: RetryDeadline | None = None  # The time limit since the first failed heartbeat.
        self._partition_counts: dict[str, int] = {}
        self._counted_at = 0.0

    @property
    def generation(self) -> int:
        """Return the group's generation at the last join; -1 before it, and after removal from the group."""
        return self._member.generation

    @property
    def member_id(self) -> str:
        return self._member.member_id

    def heartbeat_due_ms(self) -> float:
        """Return the time until the next heartbeat in milliseconds."""
        return max(0.0, (self._heartbeat_at - time.monotonic()) * 1000)

    def keep_alive(self) -> bool:
        """Send a due heartbeat or rejoin; return whether the assignment may have changed by a rejoin."""
        if self._is_joined and not self.heartbeat_due_ms():
            self._send_heartbeat()
        if self._is_joined and self._is_leader and self._has_topic_grown():
            self._request_rejoin("the partition count of a topic has changed")
        if self._is_joined:
            return False
        self._join()
        return True

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> bool:
        """Commit offsets; return False if the group rebalanced without this member.

        In that case, keep_alive() rejoins.
        """
        if not offsets:
            return True
        if not self._is_joined:
            return False  # After an interrupted join, the partitions may already belong to other members.
        try:
            self.coordinator.call(lambda connection: commit(connection, self.group, offsets, self._member))
        except ErrorResponse as error:
            if error.code not in REJOIN | REMOVED:
                raise
            self._rejoin_after(error)
            return False
        return True

    def leave(self, reason: str = "the consumer is being closed") -> None:
        """Leave the group, so that its partitions are reassigned immediately.

        Without an answer, the session expires later.
        """
        if not self._is_joined:
            self.coordinator.forget()  # An interrupted join keeps its connection busy.
        self._is_joined, self.assignment = False, ()
        if self._member.member_id and self._member.instance_id is None:
            with suppress(ClientError):
                self.coordinator.call(lambda connection: self._leave(connection, reason), timeout_ms=LEAVE_TIMEOUT_MS)
        self._member = Membership(instance_id=self._member.instance_id)
        self.coordinator.forget()

    # Heartbeats.

    def _send_heartbeat(self) -> None:
        member = self._member
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        try:
            response = self.coordinator.connection().call(request, HeartbeatResponse)
            check(response.error_code, f"group {self.group}", None)
        except ClientError as error:
            self._on_heartbeat_failed(error)
        else:
            self._schedule_heartbeat()

    def _on_heartbeat_failed(self, error: ClientError) -> None:
        if isinstance(error, ErrorResponse) and error.code in REJOIN | REMOVED:
            self._rejoin_after(error)
            return
        if has_moved(error):
            self.coordinator.forget()
        self._failing = self._failing or RetryDeadline(self._cluster.config)
        self._failing.wait_or_raise(error)  # The next keep_alive() retries.

    def _schedule_heartbeat(self) -> None:
        self._heartbeat_at = time.monotonic() + self._heartbeat_interval_ms / 1000
        self._failing = None

    def _rejoin_after(self, error: ErrorResponse) -> None:
        if error.code in REMOVED:
            self._member = Membership(instance_id=self._member.instance_id)
        self._request_rejoin(f"rejoins after {error.code.name}")

    def _request_rejoin(self, reason: str) -> None:
        self._is_joined, self._reason = False, reason

    def _has_topic_grown(self) -> bool:
        """Return whether a topic assigned by this leader has grown, checked every metadata_max_age_ms."""
        config, now = self._cluster.config, time.monotonic()
        if (now - self._counted_at) * 1000 < config.metadata_max_age_ms:
            return False
        before = dict(self._partition_counts)
        try:
            self._count_partitions(list(before))
        except ClientError as error:
            if not is_retriable(error):
                raise
            self._counted_at = now
            return False
        return before != self._partition_counts

    # Joining.

    def _join(self) -> None:
        backoff, deadline = Backoff(self._cluster.config), RetryDeadline(self._cluster.config)
        while not self._is_joined:
            try:
                self._join_once()
            except ClientError as error:
                if isinstance(error, ErrorResponse) and error.code in REJOIN | REMOVED:
                    self._rejoin_after(error)
                    time.sleep(backoff.next_ms() / 1000)
                    deadline = RetryDeadline(self._cluster.config)  # The group is active; only its membership changes.
                    continue
                if has_moved(error):
                    self.coordinator.forget()
                deadline.wait_or_raise(error)

    def _join_once(self) -> None:
        join_response = self._join_group()
        self._member = self._member._replace(generation=join_response.generation_id, member_id=join_response.member_id)
        self._is_leader = join_response.leader == join_response.member_id
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=join_response.generation_id,
            member_id=join_response.member_id,
            group_instance_id=self._member.instance_id,
            protocol_type=join_response.protocol_type,
            protocol_name=join_response.protocol_name,
            assignments=assignments(self._assign_partitions(join_response)) if self._is_leader else [],
        )
        response = self.coordinator.connection().call(request, SyncGroupResponse, timeout_ms=self._join_timeout_ms)
        check(response.error_code, f"group {self.group}", None)
        self.assignment = decode_partitions(bytes(response.assignment))
        self._is_joined = True
        self._schedule_heartbeat()

    @property
    def _join_timeout_ms(self) -> int:
        return self._rebalance_timeout_ms + JOIN_SLACK_MS

    def _join_group(self) -> JoinGroupResponse:
        """Join the group; repeat the request if the broker assigns a member id first (KIP-394)."""
        response = self._send_join()
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = self._member._replace(member_id=response.member_id)
            response = self._send_join()
        check(response.error_code, f"group {self.group}", None)
        return response

    def _send_join(self) -> JoinGroupResponse:
        connection = self.coordinator.connection()
        version = connection.version(JoinGroupRequest)
        if self._member.instance_id is not None and version < VERSION_WITH_INSTANCES:
            raise Unsupported(f"{connection.where} does not support group.instance.id: it is older than Kafka 2.3")
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self._member.member_id,
            group_instance_id=self._member.instance_id,
            protocol_type="consumer",
            protocols=protocols(self._topics),
            reason=self._reason,
        )
        return connection.call(request, JoinGroupResponse, version=version, timeout_ms=self._join_timeout_ms)

    def _assign_partitions(self, join_response: JoinGroupResponse) -> dict[str, list[TopicPartition]]:
        members = subscribers(join_response.members)
        self._count_partitions(sorted(set().union(*(each.topics for each in members))))
        if (
            join_response.skip_assignment
        ):  # A static leader that returned (KIP-814): its earlier assignment is still valid.
            return {}
        return ASSIGNORS[join_response.protocol_name or ""](members, self._partition_counts)

    def _count_partitions(self, topics: list[str]) -> None:
        """Count the topics' partitions; a topic that does not exist yet has none."""
        found = self._cluster.retry(lambda: self._cluster.refresh(topics))
        self._partition_counts = {each.name: len(each.partitions) for each in found}
        self._counted_at = time.monotonic()

    def _leave(self, connection: Connection, reason: str) -> None:
        member_id = self._member.member_id
        if connection.version(LeaveGroupRequest) >= LEAVE_BY_IDENTITY:
            members = [MemberIdentity(member_id=member_id, reason=reason)]
            request = LeaveGroupRequest(group_id=self.group, members=members)
        else:
            request = LeaveGroupRequest(group_id=self.group, member_id=member_id)
        connection.call(request, LeaveGroupResponse, timeout_ms=LEAVE_TIMEOUT_MS)
