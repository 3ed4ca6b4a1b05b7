"""Common parts of all simulated clients: their world, topic ids, batches of values.

A client is a state machine: `pump` does all that is possible now, and each response calls it again. It speaks the wire
protocol over the simulated network, and records its view in the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from odradek.base.units import Offset, ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch, iter_batches
from odradek.record.records import Record, iter_records
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sim.history import History, Value
from sim.simclock import MILLISECOND_US, SimClock, SimNode
from sim.simkeys import SimKeys, record_of, value_of
from sim.simlink import SimLink
from sim.simnet import SimNetwork

RETRY_US = (10 * MILLISECOND_US, 300 * MILLISECOND_US)


@dataclass
class Environment:
    """The context of a client."""

    clock: SimClock
    network: SimNetwork
    history: History
    address: tuple[str, int]
    topics: dict[TopicName, int]  # The number of partitions of each.
    topic_configs: dict[str, str]
    keys: SimKeys

    def partitions(self, topic: TopicName) -> list[TopicPartition]:
        return [TopicPartition(topic, index) for index in range(self.topics[topic])]


class SimClient:
    """One client process on one node."""

    writes = False  # Producers finish before consumers.

    def __init__(self, name: str, node: SimNode, environment: Environment) -> None:
        self.name = name
        self.node = node
        self.environment = environment
        self.history = environment.history
        self.random = Random(f"{name} {node.random.random()}")
        self.topic_ids: dict[TopicName, Uuid] = {}
        self.link = self.new_link()
        self.is_draining = False  # No new operation is started.

    def new_link(self, suffix: str = "") -> SimLink:
        environment = self.environment
        return SimLink(self.node, environment.network, self.random, environment.address, f"{self.name}{suffix}")

    def begin(self) -> None:
        self.node.soon(self.pump)

    def pump(self) -> None:
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        """Return True once the client waits for nothing any more."""
        raise NotImplementedError

    def drain(self) -> None:
        self.is_draining = True
        self.node.soon(self.pump)

    def add_event(self, event: str, detail: str = "") -> None:
        self.history.add(self.name, event, detail)

    def again(self) -> None:
        """Call `pump` after a pause."""
        self.node.after(self.random.randrange(*RETRY_US), self.pump)

    def find_topics(self, names: Sequence[TopicName], then: Callable[[bool], None]) -> None:
        """Look up the ids of the topics; `then` receives False if some do not exist."""
        topics = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

        def answered(answer: MetadataResponse | None) -> None:
            for topic in answer.topics if answer is not None else ():
                if not topic.error_code and topic.name is not None:
                    self.topic_ids[TopicName(topic.name)] = Uuid(bytes(topic.topic_id))
            then(all(name in self.topic_ids for name in names))

        self.link.send_request(request, 12, MetadataResponse, answered)


def batch_of(
    values: Sequence[Value],
    timestamp_ms: int,
    codec: Codec,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    return bytes(
        encode_batch(
            [record_of(value, timestamp_ms) for value in values],
            codec,
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(epoch),
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
    )


def batches_in(data: bytes) -> Iterator[Batch]:
    """Return the whole batches; the size limit of the fetch may truncate the last one."""
    return iter_batches(memoryview(data))


def records_in(batch: Batch, position: int) -> Iterator[tuple[Offset, Value]]:
    """Return the records of a batch from the position on; a control batch has none for a consumer."""
    if batch.is_control:
        return
    record: Record
    for record in iter_records(batch):
        if record.offset >= position:
            yield record.offset, value_of(record)
