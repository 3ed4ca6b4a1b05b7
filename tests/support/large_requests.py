"""Large Produce requests, sent in parts, and an in-process broker whose movers can be counted or removed by tests."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from odradek.app.config.server_config import settings
from odradek.app.serve.building import RunningBroker
from odradek.base.errors import ErrorCode
from odradek.base.uuids import Uuid
from odradek.net.clients.client_connection import ClientConnection
from odradek.net.clients.large_produce_intake import Intake
from odradek.net.loop import active_connections as heard
from odradek.net.native.movers import Movers
from odradek.testing.configuration import places
from odradek.testing.host import Host
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.messages.produce import ProduceResponse
from support.asking import FETCH, PRODUCE, fetch_all, produce_request, produced
from support.raw_client import RawClient, frame
from support.waiting import until

BIG = 900_000
CONFIGS = {"message.max.bytes": "10000000"}
NEVER_MS = 1 << 40
# For Serving: no client counts as the only one, so a mover receives all large requests.
WITH_COMPANY = (
    "-c",
    f"from odradek.net.loop import active_connections; active_connections.ALONE_MS = {NEVER_MS}\n"
    "from odradek.app.main import main; main()",
)


def can_store() -> bool:
    return Movers(cast(asyncio.AbstractEventLoop, None), 1).can_store


class Ways:
    """Counts of large requests received by a mover, and their outcomes; each client counts separately."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        monkeypatch.setattr(heard, "ALONE_MS", NEVER_MS)
        start = Intake.start_intake.__func__  # type: ignore[attr-defined]
        monkeypatch.setattr(Intake, "start_intake", classmethod(self._counted("begun", start)))
        monkeypatch.setattr(Movers, "send", self._counted("sent", Movers.send))
        for name in ("intake_done", "intake_handed_back", "intake_lost"):
            call = self._counted(name.removeprefix("intake_"), getattr(ClientConnection, name), always=True)
            monkeypatch.setattr(ClientConnection, name, call)

    def _counted(self, way: str, call: Callable[..., Any], *, always: bool = False) -> Callable[..., Any]:
        def counted(*arguments: Any, **keywords: Any) -> Any:
            self.counts[way] += always  # Before the end, since the client may have its response afterwards.
            result = call(*arguments, **keywords)
            self.counts[way] += not always and result is not None
            return result

        return counted

    def __getattr__(self, way: str) -> int:
        return self.counts[way]


class LocalBroker:
    """A broker in this process without inspection of requests, which odradek.testing would do for each."""

    def __init__(self, directory: Path, *, has_movers: bool = True, **configs: str) -> None:
        self.directory = directory
        texts = CONFIGS | {key.replace("_", "."): value for key, value in configs.items()}

        def prepare(running: RunningBroker) -> None:
            self.running = running
            if not has_movers:
                running.shell.movers = Movers(running.shell.loop, 0)

        self._host = Host(settings({**places(directory, 0), **texts}), durable=True, prepare=prepare)
        self.port = self.running.listeners[0].port

    def on_loop(self, do: Callable[[RunningBroker], Any]) -> Any:
        async def done(running: RunningBroker) -> Any:
            return do(running)

        return self._host.run_query(done)

    def topic_id(self, name: str) -> Uuid:
        ids: dict[str, Uuid] = self.on_loop(
            lambda running: {name: topic_id for topic_id, name in running.shell.broker.view.names.items()}
        )
        return ids[name]

    def log(self, topic: str, partition: int = 0) -> bytes:
        """Return every byte of the partition's log, segment after segment."""
        files = sorted((self.directory / f"{topic}-{partition}").glob("*.log"))
        return b"".join(file.name.encode() + file.read_bytes() for file in files)

    def stop(self) -> None:
        self._host.stop()
        self._host.check()


@contextmanager
def local_broker(directory: Path, *, has_movers: bool = True, **configs: str) -> Iterator[LocalBroker]:
    directory.mkdir(parents=True, exist_ok=True)
    broker = LocalBroker(directory, has_movers=has_movers, **configs)
    try:
        yield broker
    finally:
        broker.stop()


def log_file(data: Path, topic: str = "t", partition: int = 0) -> Path:
    """Return the active segment's file."""
    return max((data / f"{topic}-{partition}").glob("*.log"))


def large(topic: str = "t", size: int = BIG, *, partition: int = 0, acks: int = -1, seed: int = 1) -> bytes:
    """Return a request of one record with unmistakable bytes."""
    return frame(produce_request(topic, value(size, seed), partition=partition, acks=acks), PRODUCE)


def value(size: int = BIG, seed: int = 1) -> bytes:
    return Random(seed).randbytes(size)


def fetched(data: bytes) -> bytes:
    """Return the records of the response's only partition."""
    records = decode_response(FetchResponse, FETCH, data)[1].responses[0].partitions[0].records
    assert isinstance(records, bytes | bytearray | memoryview)
    return bytes(records)


class Stalled:
    """A large request whose first part is in the log's file, and whose rest is held back."""

    def __init__(
        self, client: RawClient, data: Path, request: bytes | None = None, *, topic: str = "t", share: float = 0.5
    ) -> None:
        """Send the first part.

        `data` is the broker's data directory; the client's connection has not produced to that topic yet.
        """
        produced(client, topic, b"first")  # The next request of this kind is an ordinary one.
        self.client = client
        self.request = large(topic) if request is None else request
        self.at = int(share * len(self.request))
        self.file = log_file(data, topic)
        before = self.file.stat().st_size
        client.send(self.request[: self.at])
        # Only a mover writes an incomplete request; the last piece comes after its front.
        until(lambda: self.file.stat().st_size >= before + self.at - 4096)
        self.before = before

    def finish(self) -> bytes:
        """Send the rest, and return the response."""
        self.client.send(self.request[self.at :])
        return self.client.read_frame()


def send_in_parts(peer: socket.socket, data: bytes, random: Random) -> None:
    """Send the data in pieces like a network, with a pause now and then."""
    at = 0
    while at < len(data):
        size = random.choice([1, 100, 1500, 16_384, 64_000, 300_000, 2_000_000])
        peer.sendall(data[at : at + size])
        at += size
        if random.random() < 0.1:
            time.sleep(0.002)


def send_all(peer: socket.socket, frames: Sequence[bytes], random: Random) -> None:
    send_in_parts(peer, b"".join(frames), random)


def answer(data: bytes, version: int = PRODUCE) -> tuple[ErrorCode, int]:
    """Return the error of a Produce response's only partition, and the base offset or -1."""
    (part,) = decode_response(ProduceResponse, version, data)[1].responses[0].partition_responses
    return ErrorCode(part.error_code), part.base_offset


def values(client: RawClient, topic: str = "t", partition: int = 0) -> list[bytes]:
    """Return the values of all records; no offset may be missing."""
    found = fetch_all(client, topic, partition=partition)
    assert [offset for offset, _ in found] == list(range(len(found)))
    return [one for _, one in found]
