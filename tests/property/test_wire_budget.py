"""Requests of all sizes within the receive budget: memory stays within it plus one request, and each is received."""

from __future__ import annotations

from random import Random
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.limits import RECEIVE_BYTES_PER_CHECK_MIN, REQUEST_BYTES_MAX
from odradek.wire.budget import ReceiveBudget
from odradek.wire.connection import Connection

KIB = 1024
BUFFER_BYTES = 1 * KIB
LARGEST = 64 * KIB
BUDGET_BYTES = 150 * KIB


def frame(size: int) -> bytes:
    body = pack(">hhih", 3, 1, 7, -1) + bytes(size)
    return pack(">i", len(body)) + body


class Peer:
    """One connection and its unsent data. `receive` does what a shell does with a readable socket."""

    def __init__(self, budget: ReceiveBudget, sizes: list[int]) -> None:
        self.share = budget.join(self.resume, self.evict)
        self.wire = Connection(REQUEST_BYTES_MAX, BUFFER_BYTES, self.share)
        self.data = b"".join(map(frame, sizes))
        self.expected = len(sizes)
        self.received = 0
        self.is_paused = False
        self.is_evicted = False

    def resume(self) -> None:
        self.is_paused = False

    def evict(self) -> None:
        self.is_evicted = True

    @property
    def is_done(self) -> bool:
        return self.received == self.expected

    def receive(self, bytes_max: int) -> None:
        if self.is_paused or not self.data:
            return
        space = self.wire.get_buffer()
        size = min(len(space), len(self.data), bytes_max)
        space[:size], self.data = self.data[:size], self.data[size:]
        self.received += len(self.wire.buffer_updated(size))
        self.wire.mark_requests_handled()
        self.is_paused = self.wire.is_starved


sizes = st.lists(st.one_of(st.integers(0, 200), st.integers(0, LARGEST)), max_size=4)


@settings(max_examples=60)
@given(st.lists(sizes, min_size=1, max_size=12), st.integers(0, 1000))
def test_every_request_is_received_within_the_budget(all_sizes: list[list[int]], seed: int) -> None:
    random = Random(seed)
    budget = ReceiveBudget(BUDGET_BYTES)
    peers = [Peer(budget, some) for some in all_sizes]
    turns = 0
    while not all(peer.is_done for peer in peers):
        random.choice(peers).receive(random.choice((50, KIB, 10 * KIB)))
        assert budget.held == sum(peer.share.held for peer in peers)
        assert budget.held <= BUDGET_BYTES + 2 * LARGEST
        turns += 1
        assert turns < 100_000, "nobody gets on"
    for peer in peers:
        peer.wire.leave()
    assert budget.held == 0


def fill_budget(budget: ReceiveBudget) -> list[Peer]:
    """Return peers that sent half a request each; the first uses the whole budget, and the others wait."""
    peers = [Peer(budget, [LARGEST]) for _ in range(4)]
    for peer in peers:
        peer.data = peer.data[: LARGEST // 2 + 10]
        for _ in range(1000):
            peer.receive(LARGEST)
    assert any(peer.is_paused for peer in peers)
    return peers


def test_an_idle_buffer_is_reclaimed_when_a_connection_waits() -> None:
    budget = ReceiveBudget(BUDGET_BYTES)
    resting = Peer(budget, [LARGEST])
    while not resting.is_done:
        resting.receive(LARGEST)
    assert resting.share.held > LARGEST // 2, "it keeps its buffer for the next one"
    other = Peer(budget, [LARGEST])
    while not other.is_done:
        other.receive(LARGEST)
    assert not resting.share.held
    resting.data, resting.expected = frame(LARGEST), 2
    while not resting.is_done:
        resting.receive(LARGEST)


def test_an_idle_buffer_is_reclaimed_after_a_while() -> None:
    budget = ReceiveBudget(BUDGET_BYTES)
    peer = Peer(budget, [LARGEST])
    while not peer.is_done:
        peer.receive(LARGEST)
    budget.reclaim_buffers()
    assert peer.share.held, "it was used since the last look"
    budget.reclaim_buffers()
    assert not peer.share.held
    assert not peer.is_evicted


def test_a_slow_connection_that_blocks_others_is_evicted() -> None:
    budget = ReceiveBudget(BUDGET_BYTES)
    peers = fill_budget(budget)
    budget.reclaim_buffers()
    assert not any(peer.is_evicted for peer in peers), "nobody knows yet how fast they are"
    for _ in range(10):
        budget.reclaim_buffers()
        for peer in peers:
            peer.receive(LARGEST)
    assert any(peer.is_evicted for peer in peers)
    honest = Peer(budget, [LARGEST])
    for _ in range(20):
        for _ in range(20):
            honest.receive(LARGEST)
        budget.reclaim_buffers()
    assert honest.is_done


def test_no_connection_is_evicted_while_the_loop_was_blocked() -> None:
    budget = ReceiveBudget(BUDGET_BYTES)
    peers = fill_budget(budget)
    for _ in range(10):
        budget.reclaim_buffers(drops_slow_peers=False)
    assert not any(peer.is_evicted for peer in peers)


def test_no_connection_is_evicted_when_none_waits() -> None:
    budget = ReceiveBudget(BUDGET_BYTES)
    peer = Peer(budget, [LARGEST])
    peer.receive(BUFFER_BYTES * 4)
    for _ in range(10):
        peer.receive(1)
        budget.reclaim_buffers()
    assert not peer.is_evicted


def test_a_fast_connection_is_not_evicted() -> None:
    budget = ReceiveBudget(BUDGET_BYTES)
    large = 20 * RECEIVE_BYTES_PER_CHECK_MIN
    fast, waiting = Peer(budget, [large]), Peer(budget, [LARGEST])
    while fast.wire.is_starved is False and len(fast.data) > large - BUDGET_BYTES:
        fast.receive(KIB)
    while not waiting.is_paused and not waiting.is_done:
        waiting.receive(LARGEST)
    for _ in range(25):
        remaining = len(fast.data)
        while remaining - len(fast.data) < RECEIVE_BYTES_PER_CHECK_MIN and fast.data:
            fast.receive(RECEIVE_BYTES_PER_CHECK_MIN)
        budget.reclaim_buffers()
    assert fast.is_done and not fast.is_evicted
    while not waiting.is_done:
        waiting.receive(LARGEST)


@pytest.mark.parametrize("size", [LARGEST, 3 * BUDGET_BYTES])
def test_one_request_may_exceed_the_budget(size: int) -> None:
    budget = ReceiveBudget(KIB)
    peer = Peer(budget, [size])
    while not peer.is_done:
        peer.receive(LARGEST)
    assert not peer.is_paused
