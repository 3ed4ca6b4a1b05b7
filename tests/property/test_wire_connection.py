"""Bytes split in any way and responses in any order: the outcome is the same."""

from __future__ import annotations

from random import Random
from struct import pack

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire.connection import Connection
from odradek.wire.request import Request
from odradek.wire.schema.api_keys import ApiKey, request_header_version
from odradek.wire.schema.malformed import Malformed

BUFFER_BYTES = 64  # Small, so that frames of a test fill it, cross its end and outgrow it.
REQUEST_BYTES_MAX = 400

Outcome = tuple[list[tuple[object, ...]], str | None]


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    key = draw(st.sampled_from([0, 1, 3, 7, 17, 18, 60, 999, -1]))
    version = draw(st.sampled_from([0, 1, 3, 9, 13, 99, -1]))
    client_id = draw(st.one_of(st.none(), st.binary(max_size=20)))
    header = pack(">hhi", key, version, draw(st.integers(-(1 << 31), (1 << 31) - 1)))
    header_version = request_header_version(key, version)
    if header_version >= 1:
        header += pack(">h", -1) if client_id is None else pack(">h", len(client_id)) + client_id
    if header_version >= 2:
        header += draw(st.sampled_from([b"\0", b"\1\0\2ab", b"\x05"]))
    rest = header + draw(st.binary(max_size=200))
    size = draw(st.sampled_from([len(rest)] * 8 + [len(rest) - 1, -1, 3, REQUEST_BYTES_MAX + 1]))
    return pack(">i", size) + rest


streams = st.one_of(st.lists(frames(), max_size=8).map(b"".join), st.binary(max_size=300))
cuts = st.lists(st.integers(1, 90), max_size=30)


def new_connection() -> Connection:
    return Connection(request_bytes_max=REQUEST_BYTES_MAX, buffer_bytes=BUFFER_BYTES)


def seen(request: Request) -> tuple[object, ...]:
    return (
        request.api_key,
        request.api_version,
        request.correlation_id,
        request.client_id,
        bytes(request.body),
        request.size,
        request.sequence,
    )


def parts(data: bytes, sizes: list[int]) -> list[bytes]:
    cut = []
    for size in sizes:
        cut.append(data[:size])
        data = data[size:]
    return [part for part in [*cut, data] if part]


def received(pieces: list[bytes]) -> Outcome:
    connection, requests = new_connection(), list[tuple[object, ...]]()
    try:
        for piece in pieces:
            requests += map(seen, connection.receive_data(piece))
    except Malformed as malformed:
        return requests, str(malformed)
    return requests, str(connection.failure) if connection.failure else None


def received_in_place(data: bytes, sizes: list[int]) -> Outcome:
    connection, requests = new_connection(), list[tuple[object, ...]]()
    try:
        for piece in parts(data, sizes):
            rest = piece
            while rest:
                space = connection.get_buffer()
                size = min(len(space), len(rest))
                space[:size], rest = rest[:size], rest[size:]
                requests += map(seen, connection.buffer_updated(size))
    except Malformed as malformed:
        return requests, str(malformed)
    return requests, str(connection.failure) if connection.failure else None


@settings(max_examples=200, deadline=None)
@given(streams, cuts)
def test_splits_of_the_input_do_not_matter(data: bytes, sizes: list[int]) -> None:
    """Garbage is parsed or refused, and never depends on the split."""
    whole = received([data])
    assert received(parts(data, sizes)) == whole
    assert received([data[i : i + 1] for i in range(len(data))]) == whole
    assert received_in_place(data, sizes) == whole


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.randoms(use_true_random=False))
def test_responses_are_sent_in_order_of_requests(count: int, random: Random) -> None:
    connection = Connection()
    frame = pack(">ihhih", 10, ApiKey.METADATA, 1, 0, -1)
    waiting: list[Request] = []
    sent: list[object] = []
    expected = [None if random.random() < 0.2 else [b"%d" % i] for i in range(count)]
    left = count
    while left or waiting:
        if left and random.random() < 0.5:
            waiting += connection.receive_data(frame)
            left -= 1
        elif waiting:
            request = waiting.pop(random.randrange(len(waiting)))
            connection.answer(request, expected[request.sequence])  # type: ignore[arg-type]  # list is invariant.
        sent += connection.data_to_send()
    assert sent == [chunk for answer in expected for chunk in answer or ()]
    assert connection.in_flight == 0
