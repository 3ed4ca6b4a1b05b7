"""A consumer that commits offsets to a replicated coordinator: acknowledged offsets never go back.

An attempt without a response may still be in flight, and arrive after later ones were acknowledged. Therefore a group
whose commits all had a response advances to the next offset, and any other group repeats its offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from sim.simclock import MILLISECOND_US
from sim.simcoordinated import ACCOUNTS

if TYPE_CHECKING:
    from sim.simtransactionclients import TransactionClients

COMMIT, FETCH = 8, 8
PAUSE_US = 300 * MILLISECOND_US
STATE = TopicPartition(CONSUMER_OFFSETS, 0)
RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Group:
    """The commits of one group: the last requested and the last acknowledged offset."""

    def __init__(self, number: int) -> None:
        self.name = f"group-{number}"
        self.requested = 1
        self.acknowledged = 0
        self.is_certain = True  # Every attempt had a response.


class Committer:
    """A client that commits and fetches in turn."""

    def __init__(self, clients: TransactionClients) -> None:
        self._clients = clients
        self._groups = [Group(0)]
        self.fetched = 0
        self._send_later()

    def _send_later(self) -> None:
        self._clients.cluster.clients.after(self._clients.random.randrange(1, PAUSE_US), self._send_next)

    def _send_next(self) -> None:
        random = self._clients.random
        topic_id = self._clients.cluster.assignment(STATE.topic).topic_id
        broker = self._clients.leader(topic_id, STATE)
        if broker is None:
            self._send_later()
        elif random.random() < 0.5 and not self._clients.are_done:
            group = self._groups[-1]
            self._clients.send_request(
                broker, _commit(group), OffsetCommitResponse, COMMIT, lambda one: self._committed(group, one)
            )
        else:
            group = random.choice(self._groups)
            on_fetched = self._on_fetched(group)
            self._clients.send_request(broker, _fetch(group), OffsetFetchResponse, FETCH, on_fetched)

    def _committed(self, group: Group, answer: OffsetCommitResponse | None) -> None:
        error = None if answer is None else ErrorCode(answer.topics[0].partitions[0].error_code)
        assert error is None or error is ErrorCode.NONE or error in RETRIABLE, f"{error}"
        group.is_certain &= error is ErrorCode.NONE  # A refused commit may have been written.
        if error is ErrorCode.NONE:
            group.acknowledged = group.requested
            if group.is_certain:
                group.requested += 1
            else:
                self._groups.append(Group(len(self._groups)))
        self._send_later()

    def _on_fetched(self, group: Group) -> Callable[[OffsetFetchResponse | None], None]:
        """Return the handler of the response to a fetch sent now."""
        committed_min = group.acknowledged

        def on_fetched(answer: OffsetFetchResponse | None) -> None:
            if answer is not None and not answer.groups[0].error_code:
                self._check(group, committed_min, answer)
            self._send_later()

        return on_fetched

    def _check(self, group: Group, committed_min: int, answer: OffsetFetchResponse) -> None:
        (part,) = answer.groups[0].topics[0].partitions
        offset = max(part.committed_offset, 0)
        assert not part.error_code
        assert committed_min <= offset <= group.requested, (
            f"{group.name} has {offset}, {committed_min} was acknowledged before"
        )
        self.fetched += 1


def _commit(group: Group) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=group.requested, committed_metadata="")
    topic = OffsetCommitRequestTopic(name=ACCOUNTS, partitions=[part])
    return OffsetCommitRequest(group_id=group.name, topics=[topic])


def _fetch(group: Group) -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopics(name=ACCOUNTS, partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group.name, topics=[topic])])
