"""A member of KIP-848's protocol: ConsumerGroupHeartbeat, nothing else.

It gives up and takes over at once what it is told to, and says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from load import LoadFailed
from members import REBALANCE_MS, Channel, Group, Member

from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOINING, LEAVING = 0, -1


class ConsumerGroup(Group):
    """Settled when every partition of the topic has an owner, too."""

    def __init__(self, name: str, channels: Sequence[Channel], topic: str, partitions: int) -> None:
        self.topic = topic
        self.owned = 0
        self._partitions = partitions
        super().__init__(name, channels, lambda _, channel: Consumer(self, channel))

    def is_fully_assigned(self) -> bool:
        return self.owned == self._partitions


class Consumer(Member):
    def __init__(self, group: ConsumerGroup, channel: Channel) -> None:
        super().__init__(group, channel)
        self._consumers = group
        self._id = str(uuid.uuid4())
        self._owned: list[TopicPartitions] = []

    def join(self) -> None:
        self._send(JOINING, is_whole=True)

    def heartbeat(self) -> None:
        self._send(self.generation, is_whole=False)

    def leave(self) -> None:
        self._send(LEAVING, is_whole=False)

    def _send(self, epoch: int, *, is_whole: bool) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.name,
            member_id=self._id,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_MS if is_whole else -1,
            subscribed_topic_names=[self._consumers.topic] if is_whole else None,
            topic_partitions=self._owned if is_whole else None,
        )
        self.channel.send(request, 1, ConsumerGroupHeartbeatResponse)

    def on_response(self, response: object) -> None:
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.error_code:
            raise LoadFailed(f"a member got error {response.error_code}, {response.error_message}")
        if response.member_epoch == LEAVING:
            self._own([])
            self.on_left()
            return
        self.settle(response.member_epoch)
        if response.assignment is not None and response.assignment.topic_partitions != self._owned:
            self._own(response.assignment.topic_partitions)
            self._send(self.generation, is_whole=True)
        else:
            self.heartbeat_later()

    def _own(self, shares: list[TopicPartitions]) -> None:
        self._consumers.owned += _count(shares) - _count(self._owned)
        self._owned = shares


def _count(shares: list[TopicPartitions]) -> int:
    return sum(len(share.partitions) for share in shares)
