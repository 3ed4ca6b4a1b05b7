"""A member and a transactional producer of kafka-python."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]  # Has no types.
from kafka.coordinator.assignors.cooperative_sticky import (  # type: ignore[import-untyped]
    CooperativeStickyAssignor,
)
from kafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]
from kafka.errors import CommitFailedError, KafkaError, RebalanceInProgressError  # type: ignore[import-untyped]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

from clients.client import SECONDS_MAX, raises_client_error
from clients.members import (
    FETCH_WAIT_MS,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    Joining,
    Place,
    PollingMember,
    Way,
    positions,
)
from clients.transactors import TIMEOUT_MS

ASSIGNORS: dict[Way, type] = {
    "range": RangePartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


# Longer than a rebalance takes: after a poll that ends with SyncGroup in flight, kafka-python 3.0.12 sends no
# heartbeats, and loses its membership when the session expires.
POLL_MS = 1000


as_client_error = partial(raises_client_error, KafkaError)


class KafkaPythonMember(PollingMember):
    def __init__(self, address: str, joining: Joining) -> None:
        super().__init__()
        self._joining = joining
        self._consumer = KafkaConsumer(
            joining.topic,
            bootstrap_servers=address,
            client_id=joining.name,
            group_id=joining.group,
            group_instance_id=joining.instance or None,
            partition_assignment_strategy=(ASSIGNORS[joining.way],),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )
        self.start()

    def work(self) -> None:
        with as_client_error():
            try:
                while self.is_running:
                    found = self._consumer.poll(timeout_ms=POLL_MS)
                    places = [Place(one.partition, one.offset, one.value) for part in found.values() for one in part]
                    self.add(places)
                    self._commit(places)
            finally:
                self._consumer.close()

    def _commit(self, places: Sequence[Place]) -> None:
        topic, metadata = self._joining.topic, self._joining.metadata
        offsets = {
            TopicPartition(topic, number): OffsetAndMetadata(at, metadata, -1)
            for number, at in positions(places).items()
        }
        if not offsets:
            return
        # If the partitions have another owner, it rereads uncommitted records.
        with suppress(CommitFailedError, RebalanceInProgressError):
            self._consumer.commit(offsets)


class KafkaPythonTransactor:
    def __init__(self, address: str, transactional_id: str, group: str, source: str) -> None:
        self._group = group
        self._source = TopicPartition(source, 0)
        self._producer = KafkaProducer(
            bootstrap_servers=address, transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        with as_client_error():
            self._producer.init_transactions()

    def begin(self) -> None:
        with as_client_error():
            self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        with as_client_error():
            for future in [self._producer.send(topic, value, partition=0) for value in values]:
                future.get(SECONDS_MAX)

    def send_offset(self, offset: int) -> None:
        with as_client_error():
            offsets = {self._source: OffsetAndMetadata(offset, "", -1)}
            self._producer.send_offsets_to_transaction(offsets, self._group)

    def commit(self) -> None:
        with as_client_error():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with as_client_error():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)
