"""A broker process that is stopped for a while: clients continue with it, and nothing is lost or spins."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.base.errors import ErrorCode
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.messages.produce import ProduceResponse
from support.asking import ALL, FETCH, LEADER, PRODUCE, created, fetch_request, produce_request
from support.raw_client import RawClient, frame
from support.serving import Serving, serving
from support.workers import TOPIC, Reader, Writer, check_kept, read_all, wait_for_progress, workers

SECONDS_MAX = 300
SECONDS = [pytest.param(5, id="5 s"), pytest.param(30, id="30 s", marks=pytest.mark.soak)]


@contextmanager
def stopped(broker: Serving) -> Iterator[None]:
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.parametrize("seconds", SECONDS)
def test_clients_continue_after_a_stopped_broker_resumes(tmp_path: Path, seconds: int) -> None:
    with serving(tmp_path) as broker:
        with RawClient(broker.port) as client:
            created(client, TOPIC, partitions=3)
        writers = [Writer(broker, 0, ALL), Writer(broker, 1, ALL), Writer(broker, 2, LEADER)]
        readers = [Reader(broker, partition) for partition in range(3)]
        with workers(*writers, *readers):
            wait_for_progress(writers, [0, 0, 0])
            with stopped(broker):
                time.sleep(seconds)
            wait_for_progress(writers, [writer.acknowledged for writer in writers])
            wait_for_progress(writers, [writer.acknowledged for writer in writers])
        with RawClient(broker.port) as client:
            for writer, reader in zip(writers, readers, strict=True):
                kept = read_all(client, writer.partition)
                check_kept(writer, kept)
                assert reader.seen == kept[: len(reader.seen)]
        if seconds < 20:
            assert not any(writer.sent_again for writer in writers), "a connection did not outlive the stop"
        check_rests(broker)
        assert "Traceback" not in broker.errors()


def check_rests(broker: Serving) -> None:
    """Check that no missed timer is repeated again and again."""
    assert broker.is_idle_for(2)


def test_requests_sent_to_a_stopped_broker_are_answered_later(tmp_path: Path) -> None:
    """Deadlines that passed in the stop end long polls only; no connection counts as idle for that time."""
    with serving(tmp_path, connections_max_idle_ms="2000") as broker:
        with RawClient(broker.port) as client:
            created(client, "t")
        poller, writer, idler = (RawClient(broker.port) for _ in range(3))
        for one in (poller, writer, idler):
            one.ping()
        poller.send(frame(fetch_request("t", 0, wait_ms=1000), FETCH))
        with stopped(broker):
            request = produce_request("t", b"sent to a stopped broker")
            writer.send(frame(request, PRODUCE))
            idler.send(frame(fetch_request("t", 1, wait_ms=500), FETCH))
            time.sleep(5)
        _, kept = decode_response(ProduceResponse, PRODUCE, writer.read_frame())
        assert kept.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        for one in (poller, idler):
            _, polled = decode_response(FetchResponse, FETCH, one.read_frame())
            assert polled.responses[0].partitions[0].error_code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)
        for one in (poller, writer, idler):
            one.ping()
            one.close()


@pytest.mark.parametrize("seconds", SECONDS)
def test_librdkafka_continues_after_a_stopped_broker_resumes(tmp_path: Path, seconds: int) -> None:
    with serving(tmp_path) as broker:
        with RawClient(broker.port) as client:
            created(client, "t")
        delivered: list[int] = []

        def on_delivery(error: object, message: object) -> None:
            assert error is None, error
            delivered.append(message.offset())  # type: ignore[attr-defined]  # It is a Message.

        producer = Producer({"bootstrap.servers": broker.address, "acks": "all", "linger.ms": 0})
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition("t", 0, 0)])
        for number in range(100):
            producer.produce("t", b"%d" % number, on_delivery=on_delivery)
        producer.flush(SECONDS_MAX)
        with stopped(broker):
            until = time.monotonic() + seconds
            for number in range(100, 200):
                producer.produce("t", b"%d" % number, on_delivery=on_delivery)
            while time.monotonic() < until:
                producer.poll(0.1)
        assert producer.flush(SECONDS_MAX) == 0
        assert len(delivered) == 200
        values: list[bytes] = []
        deadline = time.monotonic() + SECONDS_MAX
        while len(set(values)) < 200:
            assert time.monotonic() < deadline
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                values.append(message.value())
        firsts = list(dict.fromkeys(values))
        assert firsts == [b"%d" % number for number in range(200)]
        if seconds < 20:
            assert values == firsts
        consumer.close()
