"""Consumption of topics as a group member: a GroupMember gets the assignment, a Fetcher reads it.

    consumer = GroupConsumer(cluster, member, start=lambda partitions: {...})
    while not consumer.is_done:
        for fetched in consumer.poll(1_000):
            if consumer.owns(fetched.partition):
                ...                                          # Call keep_alive() regularly if this takes long.
                consumer.processed(fetched.partition, fetched.next_offset)
        consumer.commit()
    consumer.close()

Delivery is at least once: records that were processed but not committed before a partition moved to a different member
are read again there. The group may rebalance between poll() and processed(); owns() returns whether a polled partition
still belongs to this member.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import ClientError, OffsetOutOfRange
from odradek.client.consumer.fetcher import Fetched, Fetcher
from odradek.client.consumer.group_member import GroupMember
from odradek.client.consumer.group_offsets import NO_MEMBER, Committed, Membership, fetch_from_coordinator
from odradek.client.consumer.offset_lookup import LATEST, list_offsets

Start = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]


class GroupConsumer:
    """Consumer in a group; not thread-safe.

    It is a context manager: leaving it commits and leaves the group.
    """

    def __init__(self, cluster: Cluster, member: GroupMember, *, start: Start, follows: bool = True) -> None:
        """Create a consumer without reading anything yet.

        start: returns the initial offsets of partitions without a valid committed offset.

        follows: without it, each partition is done at the log end at the time of its assignment.
        """
        self._cluster = cluster
        self._member = member
        self._start = start
        self._follows = follows
        self._until: dict[TopicPartition, int] = {}
        self._processed: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._handed_out: set[TopicPartition] = set()
        self._fetcher = Fetcher(cluster, {})
        self._fetcher_membership = NO_MEMBER  # The membership with which the partitions of the fetcher were assigned.
        self._is_behind = True  # The assignment contains partitions that the fetcher does not read yet.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            with suppress(ClientError):  # The first error is the one to report.
                self.close()

    @property
    def is_done(self) -> bool:
        """Return whether all partitions are read to their ends and none is followed."""
        return not self._is_behind and not self._follows and self._fetcher.is_done

    @property
    def until(self) -> Mapping[TopicPartition, int]:
        """Return the end offset of each partition; a followed partition has none."""
        return self._until

    def owns(self, partition: TopicPartition) -> bool:
        """Return whether the records of the partition from the last poll() are this member's to process."""
        return partition in self._handed_out

    def poll(self, timeout_ms: int) -> list[Fetched]:
        """Return the data that arrived, or [] if none arrived in time or there is nothing to read."""
        self._handed_out = set()
        self.keep_alive()
        wait_ms = int(min(timeout_ms, self._member.heartbeat_due_ms() + 1))
        if self._fetcher.is_done:
            if self._follows:
                time.sleep(wait_ms / 1000)
            return []
        try:
            arrived = self._fetcher.poll(wait_ms)
        except OffsetOutOfRange as error:
            self._reset_offset(error)
            return []
        self._handed_out = {each.partition for each in arrived}
        return arrived

    def keep_alive(self) -> None:
        """Stay in the group or rejoin it, and take over the assigned partitions."""
        if self._member.keep_alive():
            self._is_behind = True
        if self._is_behind:
            self._take_over()

    def processed(self, partition: TopicPartition, offset: int) -> None:
        """Record that all records before this offset are processed; ignore partitions of other members."""
        if self.owns(partition):
            self._processed[partition] = offset

    def commit(self) -> None:
        """Commit the offsets processed since the last commit; do nothing after a rebalance."""
        due = {each: offset for each, offset in self._processed.items() if self._committed.get(each) != offset}
        if self._member.commit({each: Committed(offset) for each, offset in due.items()}):
            self._committed |= due

    def close(self) -> None:
        """Commit and leave the group."""
        try:
            self.commit()
        finally:
            self._member.leave()
            self._fetcher.close()

    # Rebalances.

    def _take_over(self) -> None:
        """Take over the assignment.

        A partition that this member also owned in the preceding generation continues at its position, because no other
        member owned it in between. Other partitions continue at their committed offsets.
        """
        owned, member = self._member.assignment, Membership(self._member.generation, self._member.member_id)
        is_same = member.member_id == self._fetcher_membership.member_id
        is_next = is_same and member.generation - self._fetcher_membership.generation in (0, 1)
        kept = [each for each in owned if is_next and each in self._processed]
        positions = {each: self._fetcher.position(each) for each in kept}
        gained = [each for each in owned if each not in positions]
        # Must come before the requests, which may fail: offsets of lost partitions must not be committed.
        self._committed = {each: offset for each, offset in self._committed.items() if each in kept}
        self._processed = {each: self._processed[each] for each in kept}
        self._handed_out &= set(kept)
        started = self._start_offsets(gained)
        self._until = {each: self._until[each] for each in kept if each in self._until} | self._end_offsets(gained)
        self._processed |= started
        self._fetcher.close()
        self._fetcher = Fetcher(self._cluster, positions | started, until=self._until)
        self._fetcher_membership, self._is_behind = member, False

    def _start_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets and, for partitions without one, the start offsets.

        Only start offsets still need to be committed.
        """
        if not partitions:
            return {}
        group = self._member.group

        def send_offset_fetch(connection: Connection) -> dict[TopicPartition, Committed]:
            outcome = fetch_from_coordinator(connection, {group: partitions}, True)[group]
            if isinstance(outcome, ClientError):
                raise outcome
            return outcome

        known = {each: at.offset for each, at in self._member.coordinator.call(send_offset_fetch).items()}
        missing = [each for each in partitions if each not in known]
        self._committed |= known
        return known | dict(self._start(missing) if missing else {})

    def _end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self._follows:
            return {}
        return {each: at.offset for each, at in list_offsets(self._cluster, dict.fromkeys(partitions, LATEST)).items()}

    def _reset_offset(self, error: OffsetOutOfRange) -> None:
        """Restart a partition whose committed offset was deleted by retention or by recreating the topic."""
        out_of_range = TopicPartition(TopicName(error.topic), error.partition)
        for partition, offset in self._start([out_of_range]).items():
            self._fetcher.seek(partition, offset)
            self._processed[partition] = offset
