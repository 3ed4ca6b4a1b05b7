"""Odd requests of every API and version, cut and pipelined at random, against a live broker.

Every request is answered or its connection closed, and other clients do not notice.
"""

from __future__ import annotations

import itertools
import os
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from odradek.api.table import BY_KEY
from odradek.base.units import INT32_MAX
from odradek.wire.catalog import APIS
from odradek.wire.connection import Connection
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.compile import decode
from odradek.wire.schema.malformed import Malformed
from support.asking import ALL, created
from support.hostile import CASES, forge_for, frame_of, mutated
from support.raw_client import RawClient, frame
from support.serving import Serving, serving
from support.workers import Reader, Writer, check_kept, read_all, wait_for_progress, workers

WITNESS = "witness"
FUZZERS = 3
PIPELINE_MAX = 20
WAIT_MS_MAX = 1_000
MIB_MAX = 256
SENTINEL = INT32_MAX
_CORRELATION_AT = 8


class Fuzzer(threading.Thread):
    """A sender of random requests until time and count are reached.

    `error` is the finding; `seed` and `sent` reproduce it.
    """

    def __init__(self, broker: Serving, seed: str, seconds: float) -> None:
        super().__init__(daemon=True)
        self._random = Random(seed)
        self._port = broker.port
        self._until = time.monotonic() + seconds
        self._requests_min = max(int(100 * seconds / FUZZERS), len(CASES))
        self._topics: dict[str, bytes] = {}
        self.seed = seed
        self.sent: set[tuple[ApiKey, int]] = set()
        self.requests = self.closed = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        cases = itertools.cycle(self._random.sample(CASES, len(CASES)))
        try:
            while time.monotonic() < self._until or self.requests < self._requests_min:
                with RawClient(self._port) as client:
                    self._learn(client)
                    try:
                        for _ in range(50):
                            self._pipeline(client, [next(cases) for _ in range(self._random.randint(1, PIPELINE_MAX))])
                    except ConnectionError:
                        self.closed += 1
        except BaseException as error:
            self.error = error

    def _learn(self, client: RawClient) -> None:
        """Collect existing names and ids, so that some requests hit them."""
        found = client.request(MetadataRequest(topics=None), 12, MetadataResponse).topics
        self._topics = {
            topic.name: topic.topic_id for topic in found if topic.name is not None and topic.name != WITNESS
        }

    def _pipeline(self, client: RawClient, cases: list[tuple[ApiKey, int]]) -> None:
        """Send some requests and a plain one at the end, whose response ends the exchange."""
        random, due, data = self._random, list[int](), bytearray()
        for number, (key, version) in enumerate(cases):
            request = self._request(key, version, number)
            if request is None:
                continue
            self.sent.add((key, version))
            self.requests += 1
            data += request
            if is_answered(request):
                due.append(int.from_bytes(request[_CORRELATION_AT : _CORRELATION_AT + 4], "big"))
        data += frame(ApiVersionsRequest(), 0, SENTINEL)
        if random.random() < 0.05:
            self._ruin(client, data)
            return
        send_in_pieces(random, client, bytes(data))
        answered: list[int] = []
        while (number := int.from_bytes(client.read_frame()[:4], "big")) != SENTINEL:
            answered.append(number)
        assert answered == due

    def _request(self, key: ApiKey, version: int, number: int) -> bytes | None:
        random = self._random
        message = forge_for(random, self._topics).message(APIS[key][0], version)
        request = frame_of(message, version, number)
        if random.random() < 0.4:
            request = mutated(random, request)
        return request if is_impatient(request) else None

    def _ruin(self, client: RawClient, data: bytearray) -> None:
        """Replace a length, key or version; the rest may then mean anything, so end the sending."""
        at = self._random.randrange(8)
        data[at] ^= 1 << self._random.randrange(8)
        send_in_pieces(self._random, client, bytes(data))
        with suppress(OSError):  # It is closed already.
            client.end_of_sending()
        while True:
            client.read_frame()  # Until it is closed.


def is_impatient(request: bytes) -> bool:
    """Return whether the request does not ask the broker to wait for weeks."""
    message = decoded(request)
    return getattr(message, "max_wait_ms", 0) <= WAIT_MS_MAX


def is_answered(request: bytes) -> bool:
    return getattr(decoded(request), "acks", ALL) != 0


def decoded(request: bytes) -> object:
    """Return the decoded request, or None if it is invalid."""
    try:
        (one,) = Connection().receive_data(request)
        api = BY_KEY[one.api_key]  # type: ignore[index]  # An int is as good.
        message: object = decode(api.request, one.api_version, one.body)
    except (Malformed, ValueError, KeyError, struct.error):
        return None
    return message


def send_in_pieces(random: Random, client: RawClient, data: bytes) -> None:
    at = 0
    while at < len(data):
        size = random.choice((1, 3, 50, 500, len(data), len(data)))
        client.send(data[at : at + size])
        at += size


def fuzz(directory: Path, seed: str, seconds: float) -> None:
    with serving(directory, log_segment_bytes=str(1 << 20), log_segment_delete_delay_ms="1000") as broker:
        with RawClient(broker.port) as client:
            created(client, WITNESS)
        writer, reader = Writer(broker, 0, ALL, WITNESS), Reader(broker, 0, WITNESS)
        fuzzers = [Fuzzer(broker, f"{seed} {number}", seconds) for number in range(FUZZERS)]
        with workers(writer, reader):
            for fuzzer in fuzzers:
                fuzzer.start()
            for fuzzer in fuzzers:
                fuzzer.join()
            wait_for_progress([writer], [int(10 * seconds)])
        for fuzzer in fuzzers:
            if fuzzer.error is not None:
                raise AssertionError(f"seed {fuzzer.seed!r}, request {fuzzer.requests}") from fuzzer.error
        assert set().union(*(fuzzer.sent for fuzzer in fuzzers)) == set(CASES)
        # No other client noticed.
        kept = read_all_of(broker)
        check_kept(writer, kept)
        assert not writer.sent_again
        assert reader.seen == kept[: len(reader.seen)]
        assert broker.memory_kib() < MIB_MAX * 1024
        errors = broker.errors()
        for sign in (" ERROR ", " CRITICAL ", "Traceback"):
            assert sign not in errors, errors[errors.index(sign) - 200 :][:5000]


def read_all_of(broker: Serving) -> list[int]:
    with RawClient(broker.port) as client:
        return read_all(client, 0, WITNESS)


def test_odd_requests_are_answered_or_disconnected(tmp_path: Path) -> None:
    fuzz(tmp_path, "always the same", 8)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_odd_requests_for_long_are_answered_or_disconnected(tmp_path: Path) -> None:
    fuzz(tmp_path, os.urandom(4).hex(), 600)
