"""A player of scenarios on one broker over raw sockets, which returns the responses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import cast

from differential.masks import Names, Tree
from differential.steps import CLIENT_ID, CLUSTER, CORRELATION_ID, Ready, Scenario, Step, Taken, key_of
from differential.waits import POLL_SECONDS, SECONDS_MAX, Wait
from odradek.base.errors import ErrorCode
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.malformed import Malformed
from support.raw_client import Closed, RawClient, raw_frame

CLOSED, SILENCE, NOTHING = "the connection is closed", "no answer", "neither an answer nor a closed connection"
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS.name
PROBE_ID = 7  # As raw_frame has it.
READY_SECONDS_MAX = 150


class Player:
    """One broker on which scenarios are played."""

    def __init__(self, port: int, connect: Callable[[str], RawClient] | None = None) -> None:
        """Create a player.

        `connect` opens the connection with a name in a scenario, "" being the first one; without it,
        connections go to `port`.
        """
        self._connect = connect or (lambda name: RawClient(port))
        self.names = Names(port)
        self.outcomes: dict[str, dict[str, Tree]] = {}  # By scenario and step.
        self.overdue: list[str] = []  # Waits that timed out.
        self._clients = {"": self._connect("")}
        self._known = self._connect("")  # For requests outside of scenarios.
        cluster = self._known.request(
            DescribeClusterRequest(include_cluster_authorized_operations=False), 0, DescribeClusterResponse
        )
        assert len(cluster.cluster_id) == len(CLUSTER)
        self.names.cluster_id = cluster.cluster_id

    def play_all(self, scenarios: Iterable[Scenario]) -> None:
        for scenario in scenarios:
            self.outcomes[scenario.name] = self.play(scenario)

    def play(self, scenario: Scenario) -> dict[str, Tree]:
        self._prepare(scenario)
        outcomes: dict[str, Tree] = {}
        waiting: dict[str, Step] = {}
        for step in scenario.steps:
            if isinstance(step, Ready):
                self._wait_until(step)
            elif isinstance(step, Taken):
                outcomes[step.step] = self._answer(waiting.pop(step.step))
            elif not isinstance(step, Step):
                self._wait_for(step, scenario.name)
            elif step.waits:
                self._send(step)
                waiting[step.name] = step
            else:
                outcomes[step.name] = self._outcome(step)
        assert not waiting, f"{scenario.name}: nobody takes the answers to {list(waiting)}"
        self._close_others()
        self.names.forget()
        return outcomes

    def close(self) -> None:
        self._close_others()
        self._clients[""].close()
        self._known.close()

    def _close_others(self) -> None:
        for connection in [name for name in self._clients if name]:
            self._clients.pop(connection).close()

    def _client(self, step: Step) -> RawClient:
        if step.connection not in self._clients:
            self._clients[step.connection] = self._connect(step.connection)
        return self._clients[step.connection]

    def _send(self, step: Step) -> None:
        self._client(step).send(self.names.put_into(step.frame))

    def _outcome(self, step: Step) -> Tree:
        try:
            self._send(step)
            if step.is_silent:
                self._client(step).send(raw_frame(18, 0, b""))
        except ConnectionError:
            self._reopen(step)
            return CLOSED
        answer = self._answer(step)
        if step.is_patient and isinstance(answer, dict) and answer.get("error_code") == CONCURRENT:
            time.sleep(POLL_SECONDS)
            return self._outcome(step)
        return answer

    def _answer(self, step: Step) -> Tree:
        client = self._client(step)
        client.socket.settimeout(step.seconds_max)
        try:
            return self._read(step, client.read_frame())
        except (Closed, ConnectionError):
            self._reopen(step)
            return CLOSED
        except TimeoutError:
            self._reopen(step)
            return NOTHING

    def _reopen(self, step: Step) -> None:
        self._clients.pop(step.connection).close()
        self._client(step)

    def _read(self, step: Step, frame: bytes) -> Tree:
        if step.is_silent:
            return SILENCE  # The probe was answered.
        if step.answer is None:
            return f"{len(frame)} bytes"
        cls, version = step.answer
        try:
            return self._tree(cls, version, frame, step.learns)
        except Malformed:
            if step.api_key == ApiKey.API_VERSIONS:
                return {"version 0": self._tree(cls, 0, frame)}
            return {"malformed": frame.hex()}

    def _tree(self, cls: type, version: int, frame: bytes, learns: str = "") -> Tree:
        """Return the decoded response as a tree; raise Malformed."""
        correlation_id, message = decode_response(cast("type[object]", cls), version, frame)
        assert correlation_id == CORRELATION_ID
        self._learn(message)
        if learns:
            self.names.learn_from(learns, message)
        tree = self.names.tree(message, version)
        if _encoded(message, version) != frame:
            tree["bytes"] = "are not those that the fields make"
        return tree

    def _learn(self, message: object) -> None:
        """Note the topic ids that a response contains with their names."""
        for topic in getattr(message, "topics", None) or ():
            name, topic_id = getattr(topic, "name", None), getattr(topic, "topic_id", b"")
            if name and any(topic_id) and not topic.error_code:
                self.names.learn(name, bytes(topic_id))

    def _prepare(self, scenario: Scenario) -> None:
        for topic in scenario.topics:
            self._create(topic)
        for name, partition, records in scenario.records:
            data = [TopicProduceData(name=name, partition_data=[_data(partition, records)])]
            answer = self._known.request(ProduceRequest(acks=-1, timeout_ms=9000, topic_data=data), 9, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE, answer

    def _create(self, topic: CreatableTopic) -> None:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=9000)
        answer = self._known.request(request, 7, CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        self._learn(answer)
        self._wait_until(Ready(topic.name, len(topic.assignments) or topic.num_partitions))

    def _wait_until(self, ready: Ready) -> None:
        """Wait for a condition, since Kafka's controller learns of a change before its broker does."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self._is(ready):
            assert time.monotonic() < deadline, ready
            time.sleep(POLL_SECONDS)

    def _wait_for(self, wait: Wait, scenario: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not wait.is_over(self._known):
            if time.monotonic() > deadline:
                self.overdue.append(f"{scenario}: {wait}")
                return
            time.sleep(POLL_SECONDS)

    def _is(self, ready: Ready) -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=ready.topic)], allow_auto_topic_creation=False)
        answer = self._known.request(request, 12, MetadataResponse)
        self._learn(answer)
        if ready.partitions == 0:
            return answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(answer.topics[0].partitions) != ready.partitions:
            return False
        partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(ready.partitions)]
        ends = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=ready.topic, partitions=partitions)])
        found = self._known.request(ends, 7, ListOffsetsResponse)
        return all(part.error_code == ErrorCode.NONE for part in found.topics[0].partitions)


def _data(partition: int, records: bytes) -> PartitionProduceData:
    return PartitionProduceData(index=partition, records=records)


def _encoded(message: object, version: int) -> bytes:
    """Return the frame that our writer makes of a decoded response, without its length."""
    # Two responses can have equal fields and different bytes: null or empty, an unknown tag, bytes at the end.
    request = Request(key_of(type(message)), version, CORRELATION_ID, CLIENT_ID, memoryview(b""), 0, 0)
    chunks = encode_response(request, message)
    return b"".join(bytes(chunk) for chunk in chunks)[4:]  # type: ignore[arg-type]
