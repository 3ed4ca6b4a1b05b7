"""Reading topics as a member of a group: a GroupMember says which partitions, a Fetcher reads them.

    consumer = GroupConsumer(cluster, member, start=lambda partitions: {...})
    while not consumer.is_done:
        for fetched in consumer.poll(1_000):
            if consumer.owns(fetched.partition):
                ...                                          # keep_alive() now and then, if this takes long.
                consumer.processed(fetched.partition, fetched.next_offset)
        consumer.commit()
    consumer.close()

At least once: what was processed and not yet committed when a partition went to another member is read again there.
Between poll() and processed() the group may rebalance; owns() tells whether what poll() brought is still ours.
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
from odradek.client.consumer.group_offsets import NOBODY, Committed, Membership, fetched
from odradek.client.consumer.offset_lookup import LATEST, list_offsets

Start = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]


class GroupConsumer:
    """Not thread-safe.  A context manager: leaving it commits and leaves the group."""

    def __init__(self, cluster: Cluster, member: GroupMember, *, start: Start, follows: bool = True) -> None:
        """start: where to begin in partitions that the group never committed, or whose committed offset is gone.
        Without `follows` each partition is done where it ended when this member got it.
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
        self._taken = NOBODY  # The membership under which this member got the partitions that the fetcher reads.
        self._is_behind = True  # The group has assigned partitions that are not all taken over.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            with suppress(ClientError):  # What went wrong first is what to tell.
                self.close()

    @property
    def is_done(self) -> bool:
        """True if this member's partitions are read to their ends, and none is followed."""
        return not self._is_behind and not self._follows and self._fetcher.is_done

    @property
    def until(self) -> Mapping[TopicPartition, int]:
        """Maps each partition to the offset where it is done; a partition that is followed has none."""
        return self._until

    def owns(self, partition: TopicPartition) -> bool:
        """True if the records that the last poll() brought of the partition are this member's to process."""
        return partition in self._handed_out

    def poll(self, timeout_ms: int) -> list[Fetched]:
        """Returns what arrived; [] when nothing did in time, or while there is nothing to read."""
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
            self._begin_again(error)
            return []
        self._handed_out = {each.partition for each in arrived}
        return arrived

    def keep_alive(self) -> None:
        """Stays in the group or joins it again; takes over the partitions that it assigns."""
        if self._member.keep_alive():
            self._is_behind = True
        if self._is_behind:
            self._take_over()

    def processed(self, partition: TopicPartition, offset: int) -> None:
        """Notes that all records before this offset are processed; ignores a partition that is not ours any more."""
        if self.owns(partition):
            self._processed[partition] = offset

    def commit(self) -> None:
        """Commits what was processed since the last time; does nothing if the group has rebalanced meanwhile."""
        due = {each: offset for each, offset in self._processed.items() if self._committed.get(each) != offset}
        if self._member.commit({each: Committed(offset) for each, offset in due.items()}):
            self._committed |= due

    def close(self) -> None:
        """Commits, and leaves the group."""
        try:
            self.commit()
        finally:
            self._member.leave()
            self._fetcher.close()

    # Rebalances.

    def _take_over(self) -> None:
        """Takes over the assignment.

        A partition that was ours in the generation right before, and is again, goes on where it is, as nobody else had
        it; the others go on where they were committed.
        """
        owned, member = self._member.assignment, Membership(self._member.generation, self._member.member_id)
        is_same = member.member_id == self._taken.member_id
        is_next = is_same and member.generation - self._taken.generation in (0, 1)
        kept = [each for each in owned if is_next and each in self._processed]
        positions = {each: self._fetcher.position(each) for each in kept}
        gained = [each for each in owned if each not in positions]
        # Before anything is asked, which may fail: what went to others must not be committed by us.
        self._committed = {each: offset for each, offset in self._committed.items() if each in kept}
        self._processed = {each: self._processed[each] for each in kept}
        self._handed_out &= set(kept)
        found = self._beginnings(gained)
        self._until = {each: self._until[each] for each in kept if each in self._until} | self._ends(gained)
        self._processed |= found
        self._fetcher.close()
        self._fetcher = Fetcher(self._cluster, positions | found, until=self._until)
        self._taken, self._is_behind = member, False

    def _beginnings(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the committed offsets, and where to begin without one; only the latter are still to be committed."""
        if not partitions:
            return {}
        group = self._member.group

        def ask(connection: Connection) -> dict[TopicPartition, Committed]:
            outcome = fetched(connection, {group: partitions}, True)[group]
            if isinstance(outcome, ClientError):
                raise outcome
            return outcome

        known = {each: at.offset for each, at in self._member.coordinator.call(ask).items()}
        missing = [each for each in partitions if each not in known]
        self._committed |= known
        return known | dict(self._start(missing) if missing else {})

    def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self._follows:
            return {}
        return {each: at.offset for each, at in list_offsets(self._cluster, dict.fromkeys(partitions, LATEST)).items()}

    def _begin_again(self, error: OffsetOutOfRange) -> None:
        """Begins anew in a partition whose committed offset is gone: by retention, or as the topic was made again."""
        gone = TopicPartition(TopicName(error.topic), error.partition)
        for partition, offset in self._start([gone]).items():
            self._fetcher.seek(partition, offset)
            self._processed[partition] = offset
