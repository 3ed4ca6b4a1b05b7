"""A planned stop (SIGTERM) answers all that is written: idempotent producers continue afterwards without an error.

The broker answers in-flight requests before it ends, and the next start knows the last five batches of each producer,
so that a retry returns their offsets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from odradek.base.errors import ErrorCode
from odradek.base.units import ProducerEpoch, ProducerId
from odradek.record.builder import encode_batch
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.create_topics import CreateTopicsResponse
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.asking import ALL, CREATE_TOPICS, FETCH, PRODUCE, create_request, created, fetch_all, fetch_request
from support.faults import Faults
from support.raw_client import Closed, RawClient, frame
from support.serving import Serving

TOPIC = "t"
IN_FLIGHT = 5
ROUNDS = 5
SYNC_SECONDS = 0.2

WAITING_MAX = 200

HURRIED = """
import sys
from odradek.app import main
from odradek.app.serve import server
from odradek.net.shell import shell
shell.FINISH_SECONDS_MAX, server.STOP_SECONDS_MAX = 1, 3
sys.exit(main.main())
"""


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path)


@pytest.fixture
def broker(tmp_path: Path, faults: Faults) -> Iterator[Serving]:
    serving = Serving(tmp_path)
    serving.environment = faults.environment
    with serving as running:
        with RawClient(running.port) as client:
            created(client, TOPIC, "other")
        yield running
    assert "Traceback" not in serving.errors()


class Idempotent:
    """A producer of one partition that numbers its batches, over any connection."""

    def __init__(self, client: RawClient) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        self._id = ProducerId(client.request(request, 4, InitProducerIdResponse).producer_id)

    def request(self, sequence: int) -> ProduceRequest:
        records = encode_batch(
            [(None, b"%d" % sequence, (), time.time_ns() // 1_000_000)],
            producer_id=self._id,
            producer_epoch=ProducerEpoch(0),
            base_sequence=sequence,
        )
        parts = [PartitionProduceData(index=0, records=records)]
        topics = [TopicProduceData(name=TOPIC, partition_data=parts)]
        return ProduceRequest(acks=ALL, timeout_ms=20_000, topic_data=topics)


def outcome(frame_of_answer: bytes) -> tuple[ErrorCode, int]:
    (part,) = decode_response(ProduceResponse, PRODUCE, frame_of_answer)[1].responses[0].partition_responses
    return ErrorCode(part.error_code), part.base_offset


def produce(client: RawClient, request: ProduceRequest) -> tuple[ErrorCode, int]:
    client.send(frame(request, PRODUCE))
    return outcome(client.read_frame())


def stop_in_background(broker: Serving) -> threading.Thread:
    """Send the stop signal; return the thread that waits for the end."""
    thread = threading.Thread(target=broker.stop, daemon=True)
    thread.start()
    return thread


def test_requests_in_flight_are_answered_once_durable(broker: Serving, faults: Faults) -> None:
    with RawClient(broker.port) as client:
        producer = Idempotent(client)
    faults.slow_syncs(SYNC_SECONDS, f"/{TOPIC}-0/")
    for number in range(ROUNDS):
        first = number * IN_FLIGHT
        with RawClient(broker.port) as client:
            for sequence in range(first, first + IN_FLIGHT):
                client.send(frame(producer.request(sequence), PRODUCE))
                # Each round the stop finds another number of syncs under way.
                time.sleep(number * SYNC_SECONDS / 12)
            stopping = stop_in_background(broker)
            answers = [outcome(client.read_frame()) for _ in range(IN_FLIGHT)]
            stopping.join()
        assert answers == [(ErrorCode.NONE, first + index) for index in range(IN_FLIGHT)]
        broker.start()
        with RawClient(broker.port) as client:
            again = produce(client, producer.request(first + IN_FLIGHT - 1))
        assert again == (ErrorCode.NONE, first + IN_FLIGHT - 1), "the next start knows what it has"
    with RawClient(broker.port) as client:
        assert [int(value) for _, value in fetch_all(client, TOPIC)] == list(range(ROUNDS * IN_FLIGHT))


def test_parked_requests_are_answered_at_once(broker: Serving, faults: Faults) -> None:
    """A long poll returns what there is, and a pending topic creation its end; later requests get nothing."""
    with RawClient(broker.port) as client:
        producer = Idempotent(client)
    faults.slow_syncs(SYNC_SECONDS, f"/{TOPIC}-0/")
    poller, writer, maker = (RawClient(broker.port) for _ in range(3))
    poller.send(frame(fetch_request("other", 0, wait_ms=60_000), FETCH))
    writer.send(frame(producer.request(0), PRODUCE))
    maker.send(frame(create_request("new"), CREATE_TOPICS))
    time.sleep(SYNC_SECONDS / 2)
    stopping = stop_in_background(broker)
    while broker.is_listening():
        time.sleep(0.01)
    poller.send(frame(producer.request(1), PRODUCE))  # No client reads it.
    assert outcome(writer.read_frame()) == (ErrorCode.NONE, 0)
    (part,) = decode_response(FetchResponse, FETCH, poller.read_frame())[1].responses[0].partitions
    assert (part.error_code, part.high_watermark, part.records) == (ErrorCode.NONE, 0, b"")
    (topic,) = decode_response(CreateTopicsResponse, CREATE_TOPICS, maker.read_frame())[1].topics
    assert topic.error_code == ErrorCode.NONE
    with pytest.raises(Closed):
        poller.read_frame()
    stopping.join()
    for one in (poller, writer, maker):
        one.close()
    broker.start()
    with RawClient(broker.port) as client:
        assert [value for _, value in fetch_all(client, TOPIC)] == [b"0"]


def test_a_hanging_disk_does_not_block_the_stop_forever(tmp_path: Path, faults: Faults) -> None:
    broker = Serving(tmp_path)
    broker.environment, broker.program = faults.environment, ("-c", HURRIED)
    broker.start()
    with RawClient(broker.port) as client:
        created(client, TOPIC)
        producer = Idempotent(client)
        faults.slow_syncs(3600, f"/{TOPIC}-0/")
        client.send(frame(producer.request(0), PRODUCE))
        time.sleep(SYNC_SECONDS)
        stopping = stop_in_background(broker)
        assert outcome(client.read_frame()) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    stopping.join()
    assert "failed to sync all writes within" in broker.errors()
    assert "shutting down without them" in broker.errors()
    faults.repair()
    broker.start()
    assert broker.stop() == 0


@pytest.mark.nightly
def test_librdkafka_continues_over_planned_restarts(broker: Serving, faults: Faults) -> None:
    """It is idempotent and fast: no record is lost or duplicated, and no error is fatal."""
    faults.slow_syncs(0.02, f"/{TOPIC}-0/")
    fatal: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 3,
            "reconnect.backoff.max.ms": 200,
            "error_cb": lambda error: fatal.append(error) if error.fatal() else None,
        }
    )
    failed: list[KafkaError] = []
    is_over = threading.Event()
    sent = 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    def send() -> None:
        nonlocal sent
        while not is_over.is_set():
            if len(producer) < WAITING_MAX:
                try:
                    producer.produce(TOPIC, b"%d" % sent, partition=0, on_delivery=delivered)
                except KafkaException:  # It has failed for good, and `fatal` has the error.
                    return
                sent += 1
            producer.poll(0.0005)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(ROUNDS):
            time.sleep(0.6)
            broker.stop()
            broker.start()
    finally:
        is_over.set()
        sender.join()
    left = producer.flush(60)
    assert (fatal, failed, left) == ([], [], 0)
    with RawClient(broker.port) as client:
        assert [int(value) for _, value in fetch_all(client, TOPIC)] == list(range(sent))
