"""Clients that write and read while their broker is killed and restarted, and record acknowledgments."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.base.errors import ErrorCode
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.produce import ProduceResponse
from support.asking import PRODUCE, fetch, produce_request
from support.raw_client import Closed, RawClient, frame
from support.serving import Serving

TOPIC = "t"
PIPELINE = 8
SECONDS_MAX = 300


def read(client: RawClient, partition: int, offset: int, wait_ms: int = 0, topic: str = TOPIC) -> list[tuple[int, int]]:
    """Return offset and number of some records from that offset on."""
    error, records = fetch(client, topic, offset, partition=partition, wait_ms=wait_ms, bytes_max=1 << 20)
    assert error == ErrorCode.NONE, f"{error.name} at {offset} of {partition}"
    return [(offset, int(value)) for offset, value in records]


def read_all(client: RawClient, partition: int, topic: str = TOPIC) -> list[int]:
    found: list[int] = []
    while some := read(client, partition, len(found), topic=topic):
        assert [offset for offset, _ in some] == list(range(len(found), len(found) + len(some)))
        found += [number for _, number in some]
    return found


class Worker(threading.Thread):
    """A worker on one connection, and on a new one when that breaks. `check` raises fatal errors."""

    def __init__(self, broker: Serving, partition: int, topic: str = TOPIC) -> None:
        super().__init__(daemon=True)
        self.broker = broker
        self.partition = partition
        self.topic = topic
        self.is_over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                try:
                    with RawClient(self.broker.port) as client:
                        self.work(client)
                except (Closed, OSError):
                    time.sleep(0.01)
        except BaseException as error:
            self._error = error

    def work(self, client: RawClient) -> None:
        raise NotImplementedError

    def check(self) -> None:
        self.is_over.set()
        self.join(SECONDS_MAX)
        if self._error is not None:
            raise self._error


class Writer(Worker):
    """A writer that counts into one partition, with some requests in flight; it retries unacknowledged ones."""

    def __init__(self, broker: Serving, partition: int, acks: int, topic: str = TOPIC) -> None:
        super().__init__(broker, partition, topic)
        self.acks = acks
        self.acknowledged = 0  # Every number below it.
        self.sent_again: set[int] = set()
        self._sent_up_to = 0

    def work(self, client: RawClient) -> None:
        sent = self.acknowledged
        self.sent_again.update(range(sent, self._sent_up_to))
        while not self.is_over.is_set():
            while sent < self.acknowledged + PIPELINE:
                request = produce_request(self.topic, b"%d" % sent, partition=self.partition, acks=self.acks)
                client.send(frame(request, PRODUCE))
                sent += 1
                self._sent_up_to = max(self._sent_up_to, sent)
            _, answer = decode_response(ProduceResponse, PRODUCE, client.read_frame())
            (part,) = answer.responses[0].partition_responses
            assert part.error_code == ErrorCode.NONE, ErrorCode(part.error_code).name
            self.acknowledged += 1


class Reader(Worker):
    """A reader that records the value of every offset."""

    def __init__(self, broker: Serving, partition: int, topic: str = TOPIC) -> None:
        super().__init__(broker, partition, topic)
        self.seen: list[int] = []

    def work(self, client: RawClient) -> None:
        while not self.is_over.is_set():
            self.seen += [number for _, number in read(client, self.partition, len(self.seen), 100, self.topic)]


@contextmanager
def workers(*all_of_them: Worker) -> Iterator[None]:
    for worker in all_of_them:
        worker.start()
    try:
        yield
    finally:
        for worker in all_of_them:
            worker.check()


def wait_for_progress(writers: list[Writer], before: list[int]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while any(writer.acknowledged <= count for writer, count in zip(writers, before, strict=True)):
        assert time.monotonic() < deadline, "no writer gets on"
        assert all(writer.is_alive() for writer in writers)
        time.sleep(0.01)


def check_kept(writer: Writer, kept: list[int]) -> None:
    """Check that every acknowledged number is present; only those in flight at a kill may be duplicated."""
    assert set(range(writer.acknowledged)) <= set(kept), "acknowledged and gone"
    firsts = list(dict.fromkeys(kept))
    assert firsts == sorted(firsts), "out of order"
    times: dict[int, int] = {}
    for number in kept:
        times[number] = times.get(number, 0) + 1
    assert {number for number, count in times.items() if count > 1} <= writer.sent_again
