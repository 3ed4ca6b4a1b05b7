"""Transactions as requests of our own: Produce with a batch for each partition, then EndTxn, both as in KIP-890.

A partition needs no AddPartitionsToTxn since Produce v12, and EndTxn v5 answers with the next transaction's epoch.  A
broker that is still writing the markers of the transaction before may wait for them, or say CONCURRENT_TRANSACTIONS and
is asked again.
"""

from __future__ import annotations

import time

from control import Control, Producer
from load import LoadFailed
from sequences import of_producer

from odradek.base.errors import ErrorCode
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_config import ClientConfig
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

TIMEOUT_MS = 30_000
PATIENCE_SECONDS = 0.0005  # Java's producer waits 20 ms here.
ACKS_ALL = -1


class Transacting:
    """One producer; `batches` has one for each partition."""

    def __init__(self, port: int, topic: str, transactional_id: str, batches: list[bytes]) -> None:
        control = Control(port)
        self._producer = control.new_producer(transactional_id)
        control.close()
        self._connection = Connection(("127.0.0.1", port), ClientConfig(f"127.0.0.1:{port}", client_id="bench"))
        self._topic = topic
        self._transactional_id = transactional_id
        self._batches = batches

    def transact(self) -> None:
        data = [
            PartitionProduceData(
                index=index,
                records=memoryview(of_producer(batch, self._producer, sequence=0, is_transactional=True)),
            )
            for index, batch in enumerate(self._batches)
        ]
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=ACKS_ALL,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self._topic, partition_data=data)],
        )
        deadline = time.monotonic() + TIMEOUT_MS / 1000
        while request.topic_data[0].partition_data:
            self._produce(request)
            if time.monotonic() > deadline:
                raise LoadFailed("transactions remain concurrent")
        self._commit()

    def _produce(self, request: ProduceRequest) -> None:
        """Leaves in the request what has to be asked again."""
        response = self._connection.call(request, ProduceResponse, version=12)
        codes = {part.index: part.error_code for part in response.responses[0].partition_responses}
        if bad := set(codes.values()) - {ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS}:
            raise LoadFailed(f"a Produce request was answered with errors {bad}")
        parts = request.topic_data[0].partition_data
        parts[:] = [part for part in parts if codes[part.index]]
        if parts:
            time.sleep(PATIENCE_SECONDS)

    def _commit(self) -> None:
        producer = self._producer
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=True,
        )
        response = self._connection.call(request, EndTxnResponse, version=5)
        if response.error_code:
            raise LoadFailed(f"EndTxn was answered with error {response.error_code}")
        self._producer = Producer(response.producer_id, response.producer_epoch)
