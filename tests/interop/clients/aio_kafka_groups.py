"""A member and a transactional producer of aiokafka, each with its own event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]  # Has no types.
from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # type: ignore[import-untyped]
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError  # type: ignore[import-untyped]

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

ASSIGNORS: dict[Way, type] = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}

Result = TypeVar("Result")


as_client_error = partial(raises_client_error, KafkaError)


class AioKafkaMember(PollingMember):
    def __init__(self, address: str, joining: Joining) -> None:
        super().__init__()
        self._address = address
        self._joining = joining
        self.start()

    def work(self) -> None:
        with as_client_error():
            asyncio.run(self._read())

    async def _read(self) -> None:
        joining = self._joining
        consumer = AIOKafkaConsumer(
            joining.topic,
            bootstrap_servers=self._address,
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
        await consumer.start()
        try:
            while self.is_running:
                found = await consumer.getmany(timeout_ms=100)
                places = [Place(one.partition, one.offset, one.value) for part in found.values() for one in part]
                self.add(places)
                await self._commit(consumer, places)
        finally:
            await consumer.stop()

    async def _commit(self, consumer: AIOKafkaConsumer, places: Sequence[Place]) -> None:
        topic, metadata = self._joining.topic, self._joining.metadata
        offsets = {TopicPartition(topic, number): (at, metadata) for number, at in positions(places).items()}
        if not offsets:
            return
        # If the partitions have another owner, it rereads uncommitted records.
        with suppress(CommitFailedError, IllegalStateError):
            await consumer.commit(offsets)


class AioKafkaTransactor:
    def __init__(self, address: str, transactional_id: str, group: str, source: str) -> None:
        self._group = group
        self._source = TopicPartition(source, 0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer: AIOKafkaProducer = None
        self._run(self._start(address, transactional_id))

    async def _start(self, address: str, transactional_id: str) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=address, transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        await self._producer.start()

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        async def run() -> None:
            await asyncio.gather(*[await self._producer.send(topic, value, partition=0) for value in values])

        self._run(run())

    def send_offset(self, offset: int) -> None:
        self._run(self._producer.send_offsets_to_transaction({self._source: offset}, self._group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS_MAX)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        with as_client_error():
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS_MAX)
