"""Produce requests of many connections written together: each is answered as if it were alone.

The loop is blocked while all of them send, so that it finds all of them in the set of net/loop/readers.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from threading import Event

import pytest

from odradek.api.request.outcome import StagedRequest
from odradek.app.serve.building import RunningBroker
from odradek.base.errors import ErrorCode
from odradek.base.limits import RECEIVE_BUFFER_BYTES, RECEIVE_BUFFER_BYTES_MIN
from odradek.base.uuids import ZERO_UUID
from odradek.net.clients import client_connection as connection
from odradek.net.clients.client_connection import READ_BYTES_PER_TURN, ClientConnection
from odradek.net.loop.active_connections import ActiveConnections
from odradek.net.loop.gathering import CONNECTIONS_MAX, REQUESTS_MAX
from odradek.net.loop.readers import DIRECT_MAX
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.produce import ProduceResponse
from support.asking import ALL, DELETE_TOPICS, LEADER, PRODUCE, created, fetch_all, produce_request
from support.large_requests import LocalBroker, local_broker
from support.raw_client import SECONDS_MAX, Closed, RawClient, frame

COUNT = 80
ROUNDS = 5
FRAME_OVERHEAD_MAX = 400


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "here") as running:
        created_one = RawClient(running.port)
        with created_one:
            created(created_one, "t", partitions=COUNT)
        yield running


def read_directly(broker: LocalBroker) -> int:
    """Return the number of connections that the loop watches itself."""
    direct: int = broker.on_loop(lambda running: len(running.listeners[0]._readers._direct))
    return direct


def test_a_connection_with_small_requests_is_read_directly(broker: LocalBroker) -> None:
    """Its total does not matter. The set costs one more system call per request, and sleeps between them."""
    request = frame(produce_request("t", b"x" * 5_000, acks=LEADER), PRODUCE)
    with RawClient(broker.port) as client:
        client.ping()
        assert read_directly(broker) == 1
        for _ in range(2 * READ_BYTES_PER_TURN // len(request)):
            client.send(request)
            client.read_frame()
        assert read_directly(broker) == 1


@pytest.mark.parametrize("is_one", [False, True])
def test_connections_that_share_the_broker_have_shorter_turns(
    broker: LocalBroker, is_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower's fetch must not wait for all that a producer has sent."""
    reads: list[tuple[ClientConnection, int]] = []
    updated = ClientConnection.buffer_updated

    def noted(one: ClientConnection, nbytes: int) -> None:
        reads.append((one, nbytes))
        updated(one, nbytes)

    monkeypatch.setattr(ClientConnection, "buffer_updated", noted)
    monkeypatch.setattr(connection, "SHARED_BYTES_PER_TURN", 8 << 10)  # The socket holds several times that.
    monkeypatch.setattr(ActiveConnections, "is_one", lambda connections, steady: is_one)
    request = frame(produce_request("t", b"x" * 5_000, acks=LEADER), PRODUCE)
    count = 30  # No more than the socket takes while nobody reads it.
    with RawClient(broker.port) as busy, RawClient(broker.port) as other:
        busy.ping()
        other.ping()
        (first, _), (second, _) = reads[0], reads[-1]
        reads.clear()
        with blocked_loop(broker):
            busy.send(request * count)
            other.send(request)
        other.read_frame()
        for _ in range(count):
            busy.read_frame()
    turns = [(one, sum(size for _, size in those)) for one, those in groupby(reads, key=itemgetter(0))]
    assert {one for one, _ in turns} == {first, second}
    longest = max(size for one, size in turns[:2] if one is first)
    assert (longest > 64 << 10) == is_one


def most_together(broker: LocalBroker) -> int:
    """Record the largest number of requests written together."""
    most: int = broker.on_loop(lambda running: running.shell.gathered.most)
    return most


@pytest.fixture
def clients(broker: LocalBroker) -> Iterator[list[RawClient]]:
    with ExitStack() as stack:
        those = [stack.enter_context(RawClient(broker.port)) for _ in range(COUNT)]
        for one in those:
            one.ping()
        yield those


@contextmanager
def blocked_loop(broker: LocalBroker) -> Iterator[None]:
    is_held, may_continue = Event(), Event()

    def hold() -> None:
        is_held.set()
        may_continue.wait(SECONDS_MAX)

    broker.on_loop(lambda running: running.shell.loop.call_later(0.01, hold))
    assert is_held.wait(SECONDS_MAX)
    try:
        yield
    finally:
        may_continue.set()


def request(number: int, *values: bytes, acks: int = ALL) -> bytes:
    return frame(produce_request("t", *values, partition=number, acks=acks, timestamp_ms=1), PRODUCE)


def filling(number: int, tag: bytes, size: int) -> tuple[bytes, bytes]:
    """Return a value, and its request of exactly `size` bytes."""
    value = tag.ljust(size - FRAME_OVERHEAD_MAX, b".")
    missing = size - len(request(number, value))
    while missing:
        value = value + b"." * missing if missing > 0 else value[:missing]
        missing = size - len(request(number, value))
    return value, request(number, value)


def offsets(client: RawClient, answers: int) -> list[int]:
    found = []
    for _ in range(answers):
        answer = decode_response(ProduceResponse, PRODUCE, client.read_frame())[1]
        (part,) = answer.responses[0].partition_responses
        assert part.error_code == ErrorCode.NONE
        found.append(part.base_offset)
    return found


def one_small(number: int, tag: bytes) -> tuple[list[bytes], bytes]:
    return [tag], request(number, tag)


def as_many_as_are_gathered(number: int, tag: bytes, more: int = 0) -> tuple[list[bytes], bytes]:
    values = [b"%s/%d" % (tag, at) for at in range(REQUESTS_MAX + more)]
    return values, b"".join(request(number, value) for value in values)


def more_than_are_gathered(number: int, tag: bytes) -> tuple[list[bytes], bytes]:
    return as_many_as_are_gathered(number, tag, more=1)


def what_fills_the_first_buffer(number: int, tag: bytes) -> tuple[list[bytes], bytes]:
    first, its_frame = filling(number, tag, RECEIVE_BUFFER_BYTES_MIN)
    second = tag + b"second" + b"x" * 6000
    return [first, second], its_frame + request(number, second)


def what_fills_a_grown_one(number: int, tag: bytes) -> tuple[list[bytes], bytes]:
    """Return a request after which the next read needs the space of the staged one."""
    size = RECEIVE_BUFFER_BYTES // REQUESTS_MAX
    whole = [filling(number, b"%s/%d" % (tag, at), size) for at in range(2 * REQUESTS_MAX)]
    return [value for value, _ in whole], b"".join(sent for _, sent in whole)


def one_large(number: int, tag: bytes) -> tuple[list[bytes], bytes]:
    """Return a request that a thread receives, placed in the log after the first."""
    value = tag + b"l" * 300_000
    return [tag, value], request(number, tag) + request(number, value)


def one_without_an_answer(number: int, tag: bytes) -> tuple[list[bytes], bytes]:
    return [tag, tag + b"!"], request(number, tag, acks=0) + request(number, tag + b"!", acks=LEADER)


KINDS = (
    one_small,
    as_many_as_are_gathered,
    one_small,
    more_than_are_gathered,
    what_fills_the_first_buffer,
    what_fills_a_grown_one,
    one_large,
    one_without_an_answer,
)


def test_records_are_at_the_returned_offsets(broker: LocalBroker, clients: list[RawClient]) -> None:
    returned: list[list[tuple[int, bytes]]] = [[] for _ in clients]
    for turn in range(ROUNDS):
        expected = []
        with blocked_loop(broker):
            for number, client in enumerate(clients):
                kind = KINDS[number % len(KINDS)]
                values, data = kind(number, b"%d/%d" % (number, turn))
                client.socket.setblocking(False)
                sent = client.socket.send(data)
                client.socket.setblocking(True)
                expected.append((kind, values, data[sent:]))
        for number, (kind, values, rest) in enumerate(expected):
            clients[number].send(rest)
            is_silent = kind is one_without_an_answer
            found = offsets(clients[number], len(values) - is_silent)
            if is_silent:
                found.insert(0, found[0] - 1)
            returned[number] += zip(found, values, strict=True)
    assert most_together(broker) > 1  # Many of these require that the others are written first.
    for number, mine in enumerate(returned):
        assert mine == fetch_all(clients[number], "t", partition=number)


def test_requests_of_one_partition_have_one_order(broker: LocalBroker, clients: list[RawClient]) -> None:
    returned = []
    for turn in range(ROUNDS):
        with blocked_loop(broker):
            for number, client in enumerate(clients):
                client.send(request(0, b"%d/%d" % (number, turn)))
        returned += [(offsets(client, 1)[0], b"%d/%d" % (number, turn)) for number, client in enumerate(clients)]
    assert DIRECT_MAX < most_together(broker) <= CONNECTIONS_MAX
    assert sorted(returned) == fetch_all(clients[0], "t")


def test_disconnects_cost_no_other_client_its_response(broker: LocalBroker, clients: list[RawClient]) -> None:
    leaving = clients[DIRECT_MAX::4]
    with blocked_loop(broker):
        for number, client in enumerate(clients):
            client.send(request(number, b"%d" % number))
            if client in leaving:  # It is reset at once.
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
    for client in clients:
        if client not in leaving:
            assert offsets(client, 1) == [0]
    for number, client in enumerate(clients):
        found = fetch_all(clients[0], "t", partition=number)
        assert found in (([(0, b"%d" % number)], []) if client in leaving else ([(0, b"%d" % number)],))


def test_a_request_before_invalid_bytes_is_answered(broker: LocalBroker, clients: list[RawClient]) -> None:
    with blocked_loop(broker):
        for number, client in enumerate(clients):
            client.send(request(number, b"x", acks=LEADER) + (b"\xff" * 64 if number % 3 == 0 else b""))
    for number, client in enumerate(clients):
        assert offsets(client, 1) == [0]
        if number % 3 == 0:
            assert client.is_closed()
        else:
            client.ping()


def test_a_failure_closes_only_its_own_connection(broker: LocalBroker, clients: list[RawClient]) -> None:
    """The injected defect costs one connection."""
    unlucky = COUNT - 3

    class Failing(StagedRequest):
        def finish(self) -> None:
            raise RuntimeError("a defect")

    def put_in(running: RunningBroker) -> None:
        dispatch = running.shell.dispatch

        def failing(*arguments: object) -> object:
            outcome = dispatch(*arguments)  # type: ignore[arg-type]  # As it came.
            return Failing() if getattr(arguments[2], "client_id", "") == "unlucky" else outcome

        running.shell.dispatch = failing  # type: ignore[assignment]  # So that it fails.

    broker.on_loop(put_in)
    with blocked_loop(broker):
        for number, client in enumerate(clients):
            data = request(number, b"x")
            client.send(data if number != unlucky else renamed(data))
    for number, client in enumerate(clients):
        if number == unlucky:
            with pytest.raises(Closed):
                client.read_frame()
        else:
            assert offsets(client, 1) == [0]
            client.ping()


def renamed(data: bytes) -> bytes:
    """Return the same request of another client."""
    (length,) = struct.unpack_from(">h", data, 12)
    rest = data[14 + length :]
    front = data[4:12] + struct.pack(">h", len(b"unlucky")) + b"unlucky"
    return struct.pack(">i", len(front) + len(rest)) + front + rest


def test_other_requests_in_between_are_answered(broker: LocalBroker, clients: list[RawClient]) -> None:
    """Neighbours send other requests, in between and on the same connection."""
    with blocked_loop(broker):
        for number, client in enumerate(clients):
            versions_request = frame(ApiVersionsRequest(), 0)
            mine = request(number, b"x")
            client.send((mine, versions_request, mine + versions_request, versions_request + mine)[number % 4])
    for number, client in enumerate(clients):
        if number % 4 == 0:
            assert offsets(client, 1) == [0]
        elif number % 4 == 1:
            assert client.read_frame()
        elif number % 4 == 2:
            assert offsets(client, 1) == [0] and client.read_frame()
        else:
            assert client.read_frame() and offsets(client, 1) == [0]


def test_a_topic_deleted_in_between_returns_an_error(broker: LocalBroker, clients: list[RawClient]) -> None:
    """One client deletes it after others staged records: they get an error, or were written before."""
    states = [DeleteTopicState(name="t", topic_id=ZERO_UUID)]
    deletion = frame(DeleteTopicsRequest(topics=states, timeout_ms=20_000), DELETE_TOPICS)
    with blocked_loop(broker):
        for number, client in enumerate(clients):
            client.send(deletion if number == COUNT // 2 else request(number, b"x"))
    for number, client in enumerate(clients):
        answer = client.read_frame()
        if number != COUNT // 2:
            (part,) = decode_response(ProduceResponse, PRODUCE, answer)[1].responses[0].partition_responses
            assert part.error_code in (
                ErrorCode.NONE,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,  # It was deleted after the records were staged.
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        client.ping()
