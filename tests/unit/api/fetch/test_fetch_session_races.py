"""Two fetches in one session at a time, each in slices."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.fetch import fetch
from odradek.api.request.call import Call
from odradek.api.request.sliced_response import whole
from odradek.base.errors import ErrorCode
from odradek.base.units import CorrelationId
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from support.in_memory import Harness
from support.transactional import make_topic

VERSION = 12  # The last version with topic names.


def request(session_id: int, epoch: int, *, isolation: int = 0, forgotten: tuple[int, ...] = ()) -> FetchRequest:
    """Name all partitions in the first request, and none in later ones."""
    parts = (
        [] if epoch else [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(9)]
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=isolation,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=parts)] if parts else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forgotten))] if forgotten else [],
    )


@pytest.mark.parametrize("forgotten", [(8,), tuple(range(9))])
def test_partition_may_be_forgotten_while_all_are_sent_again(tmp_path: Path, forgotten: tuple[int, ...]) -> None:
    """With other rules all partitions of the session are due, and another connection may send the next request."""
    harness = Harness(tmp_path)
    make_topic(harness, "t", partitions=9)
    opened = harness.request(request(0, 0), VERSION, FetchResponse)
    session = harness.broker.sessions.find_session(opened.session_id)
    assert session is not None
    call = Call(harness.broker, harness.peer, VERSION, "c", CorrelationId(1), harness.now)
    begun = fetch._new_context(call, request(session.id, 1, isolation=1))
    for _ in range(3):
        next(begun)
    answer = harness.request(request(session.id, 2, isolation=1, forgotten=forgotten), VERSION, FetchResponse)
    assert answer.error_code == ErrorCode.NONE
    whole(begun)
    assert session.due.keys() <= set(session.partitions.values())
