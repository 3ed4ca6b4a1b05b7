"""Producer ids: allocated in sequence, with blocks requested in time."""

from __future__ import annotations

from odradek.base.units import ProducerId
from odradek.core.transactions.producer_ids import LEFT_TO_ASK, ProducerIdBlock, ProducerIds


def block(first: int, count: int) -> ProducerIdBlock:
    return ProducerIdBlock(ProducerId(first), ProducerId(first + count - 1))


def test_first_allocations_wait_for_a_block() -> None:
    requests, given = [], []
    ids = ProducerIds(lambda: requests.append(1))
    for _ in range(3):
        ids.allocate_id(given.append)
    assert (len(requests), given) == (1, [])
    ids.on_block_allocated(block(5000, 1000))
    assert given == [5000, 5001, 5002]


def test_next_block_is_requested_before_the_last_is_exhausted() -> None:
    requests, given = [], []
    ids = ProducerIds(lambda: requests.append(len(given)))
    ids.prepare()
    ids.on_block_allocated(block(0, 1000))
    for _ in range(1000):
        ids.allocate_id(given.append)
    assert requests == [0, 1001 - LEFT_TO_ASK]
    ids.on_block_allocated(block(7000, 1000))
    ids.allocate_id(given.append)
    assert given == [*range(1000), 7000]


def test_failed_block_request_fails_waiting_allocations() -> None:
    requests, given = [], []
    ids = ProducerIds(lambda: requests.append(1))
    ids.allocate_id(given.append)
    ids.on_block_allocated(None)
    assert given == [None]
    ids.allocate_id(given.append)
    ids.on_block_allocated(block(0, 10))
    assert given == [None, 0]
    assert len(requests) == 3
