"""Fetches of a consumer: incremental fetch sessions (KIP-227), and records in order from the positions on.

The first fetch of a session contains all partitions, later ones those with a changed position and those removed. If the
broker has forgotten the session, or rejects its epoch, a new one starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.record.record_batch import Batch
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from sim.history import NO_ERA, Moved, Value
from sim.simclients import SimClient, batches_in, records_in

FINAL_EPOCH = -1
SINCE_TOPIC_IDS = 13

Read = Callable[[TopicPartition, int, Value], None]
Refused = Callable[[TopicPartition, ErrorCode], None]


@dataclass
class SimSession:
    """The broker's state of a fetch session, as far as the client knows it."""

    id: int = 0
    epoch: int = 0
    known: dict[TopicPartition, int] = field(default_factory=dict)

    def forget(self) -> None:
        self.id = self.epoch = 0
        self.known.clear()


class SimFetcher:
    """The positions of one consumer; `read` receives each record, `refused` each partition with an error."""

    def __init__(self, client: SimClient, read: Read, refused: Refused, *, read_committed: bool = False) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.is_under_way = False
        self._client = client
        self._read = read
        self._refused = refused
        self._session = SimSession()
        self._era = 0  # The era when the fetch was sent.
        self._round = 0  # Changes when positions are assigned: responses to older fetches are then ignored.
        self._is_committed = read_committed
        if read_committed:
            client.history.read_committed_readers[client.name] = None
        self._version = client.random.choice((11, 12, 13, 17))
        self._max_bytes = client.random.choice((300, 5_000, 1_000_000))

    def assign(self, positions: dict[TopicPartition, int]) -> None:
        """Change partitions or positions, and start a new session; pending responses are ignored."""
        self.positions = dict(positions)
        self.high_watermarks.clear()
        self._session.forget()
        self._round += 1
        self._moved(positions)

    def _moved(self, positions: dict[TopicPartition, int]) -> None:
        client, history = self._client, self._client.history
        history.moved.append(Moved(client.name, len(history.seen), client.environment.clock.now_us, dict(positions)))

    @property
    def era(self) -> int:
        """Return the era of the records just read, or NO_ERA if the power failed during the fetch."""
        return self._era if self._era == self._client.history.era else NO_ERA

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Change the position of one partition, which the next fetch contains."""
        self.positions[partition] = offset
        self.high_watermarks.pop(partition, None)
        self._moved({partition: offset})

    def fetch(self, then: Callable[[bool], None], max_wait_ms: int = 500) -> None:
        """Send one fetch; `then` receives False if it gets no response."""
        session, requested = self._session, dict(self.positions)
        if self._version < 7 or session.epoch == 0:
            changed, forgotten = dict(requested), list[TopicPartition]()
        else:
            changed = {name: offset for name, offset in requested.items() if session.known.get(name) != offset}
            forgotten = [name for name in session.known if name not in requested]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes * 3,
            isolation_level=int(self._is_committed),
            session_id=session.id,
            session_epoch=session.epoch,
            topics=self._topics(changed),
            forgotten_topics_data=self._forgotten(forgotten),
        )
        session.known = requested
        self.is_under_way = True
        turn, self._era = self._round, self._client.history.era
        self._client.link.send_request(
            request, self._version, FetchResponse, lambda answer: self._answered(turn, requested, answer, then)
        )

    def _topics(self, partitions: dict[TopicPartition, int]) -> list[FetchTopic]:
        topics: dict[TopicName, FetchTopic] = {}
        for name, offset in partitions.items():
            topic = topics.setdefault(
                name.topic, FetchTopic(topic=name.topic, topic_id=self._client.topic_ids[name.topic], partitions=[])
            )
            topic.partitions.append(
                FetchPartition(partition=name.partition, fetch_offset=offset, partition_max_bytes=self._max_bytes)
            )
        return list(topics.values())

    def _forgotten(self, partitions: Iterable[TopicPartition]) -> list[ForgottenTopic]:
        ids = self._client.topic_ids
        return [
            ForgottenTopic(topic=name.topic, topic_id=ids[name.topic], partitions=[name.partition])
            for name in partitions
        ]

    def _answered(
        self,
        turn: int,
        requested: dict[TopicPartition, int],
        answer: FetchResponse | None,
        then: Callable[[bool], None],
    ) -> None:
        self.is_under_way = False
        session = self._session
        if answer is None or answer.error_code or turn != self._round:
            session.forget()
            if answer is not None and answer.error_code:
                self._client.add_event("session", ErrorCode(answer.error_code).name)
            then(answer is not None)
            return
        session.id = answer.session_id
        session.epoch = session.epoch + 1 if session.id else 0
        names = {bytes(uuid): name for name, uuid in self._client.topic_ids.items()}
        for topic in answer.responses:
            name = TopicName(topic.topic) if topic.topic else names[bytes(topic.topic_id)]
            for data in topic.partitions:
                self._take(TopicPartition(name, data.partition_index), requested, data)
        then(True)

    def _take(self, name: TopicPartition, requested: dict[TopicPartition, int], data: PartitionData) -> None:
        assert name in requested, f"{self._client.name} did not ask for {name}"
        if data.error_code:
            self._refused(name, ErrorCode(data.error_code))
            return
        self.high_watermarks[name] = data.high_watermark  # Read-committed consumers reach it in the end, too.
        aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
        undone: set[int] = set()
        records = data.records
        for batch in batches_in(b"" if records is None else bytes(records)):  # type: ignore[arg-type]
            while aborted and aborted[0][0] <= batch.last_offset:
                undone.add(aborted.pop(0)[1])
            self._take_batch(name, batch, undone)

    def _take_batch(self, name: TopicPartition, batch: Batch, undone: set[int]) -> None:
        """Return the relevant records of one batch, and the position after it."""
        position = self.positions[name]
        assert batch.last_offset >= position, f"{name}: asked for {position}, told of {batch.base_offset}"
        has_gaps = self._client.history.compaction is not None
        assert has_gaps or batch.base_offset <= position, (
            f"{name}: there is a gap from {position} to {batch.base_offset}"
        )
        if batch.is_control:
            undone.discard(batch.producer_id)
        elif not (self._is_committed and batch.is_transactional and batch.producer_id in undone):
            for offset, value in records_in(batch, position):
                self._read(name, offset, value)
        self.positions[name] = batch.next_offset
