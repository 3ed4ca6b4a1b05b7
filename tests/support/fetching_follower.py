"""A follower as seen by its leader, with or without a fetch session."""

from __future__ import annotations

from odradek.api.conversation import Conversation
from odradek.api.request.outcome import Encoded
from odradek.base.units import BrokerId
from odradek.base.uuids import ZERO_UUID
from odradek.core.fetch.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.record.record_batch import iter_batches
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from support.controlling import topic_id
from support.led import Led

BY_ID, WITH_STATE = 13, 15
Responses = dict[int, PartitionData]


class FetchingFollower:
    """One follower of the topic t; each request names partitions by their fetch offsets."""

    def __init__(self, led: Led, broker: BrokerId, *, version: int = 17, has_session: bool = True) -> None:
        self.led = led
        self.broker = broker
        self.version = version
        self.broker_epoch = -1
        self.leader_epoch = 0
        self.last_fetched_epoch = -1
        self.log_start = 0
        self.min_bytes = 1
        self.session_id = 0
        self.epoch = INITIAL_EPOCH if has_session else FINAL_EPOCH
        self.error = 0  # Of the last answer.

    def request(self, offsets: dict[int, int], *, wait: int = 0) -> FetchRequest:
        parts = [
            FetchPartition(
                partition=index,
                current_leader_epoch=self.leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=self.last_fetched_epoch,
                log_start_offset=self.log_start,
                partition_max_bytes=1 << 20,
            )
            for index, offset in offsets.items()
        ]
        by_id, has_state = self.version >= BY_ID, self.version >= WITH_STATE
        topic = FetchTopic(topic="" if by_id else "t", topic_id=topic_id("t") if by_id else ZERO_UUID, partitions=parts)
        state = ReplicaState(replica_id=self.broker, replica_epoch=self.broker_epoch)
        return FetchRequest(
            replica_id=-1 if has_state else self.broker,
            replica_state=state if has_state else ReplicaState(),
            max_wait_ms=wait,
            min_bytes=self.min_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[topic] if parts else [],
        )

    def send(self, offsets: dict[int, int], *, wait: int = 0) -> Encoded | ParkedRequest[Encoded]:
        outcome = self.led.harness.send(self.request(offsets, wait=wait), self.version)
        if self.epoch != FINAL_EPOCH:
            self.epoch += 1
        return outcome

    def fetch(self, offsets: dict[int, int], *, wait: int = 0) -> Responses:
        return self.read_response(self.send(offsets, wait=wait))

    def read_response(self, outcome: Encoded | ParkedRequest[Encoded]) -> Responses:
        """Return the response for each partition; a parked fetch waits until its deadline."""
        harness = self.led.harness
        answer = harness.decoded(harness.finished(outcome), self.version, FetchResponse)
        self.error, self.session_id = answer.error_code, answer.session_id
        return {part.partition_index: part for topic in answer.responses for part in topic.partitions}

    def catch_up(self, *partitions: int) -> None:
        """Fetch up to the ends of the logs, until responses contain nothing new."""
        ends = {one: self.led.end(one) for one in partitions or (0,)}
        self.fetch(ends)
        if self.epoch != FINAL_EPOCH:
            while self.fetch({}):
                pass


def offsets_of(partition: PartitionData) -> list[int]:
    """Return the base offsets of the batches in a response."""
    return [batch.base_offset for batch in iter_batches(memoryview(partition.records or b""))]  # type: ignore[arg-type]


def is_parked(led: Led, outcome: Encoded | ParkedRequest[Encoded]) -> bool:
    """Return whether a fetch is parked and was not woken."""
    if not isinstance(outcome, ParkedRequest):
        return False
    assert isinstance(outcome.owner, Conversation)
    return led.is_waiting(outcome)
