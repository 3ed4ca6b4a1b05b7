"""Busy polling: time awake after a response, and back-off when it is useless."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.app.config.server_config import load
from odradek.app.serve.broker_startup import start
from odradek.net.native.busy_poll import AWAKE_NS, MISSES_MAX, REST_ANSWERS_MAX, REST_ANSWERS_MIN, BusyPoll
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.raw_client import frame

STEP_NS = 1000


class Loop:
    """A loop whose turns take a microsecond; call_soon callbacks run in the next turn."""

    def __init__(self) -> None:
        self.now = 0
        self.waiting: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def turns_until(self, end: int) -> int:
        """Return the number of turns without sleep."""
        turns = 0
        while self.waiting and self.now < end:
            for _ in range(len(self.waiting)):
                self.waiting.popleft()()
            self.now += STEP_NS
            turns += 1
        self.now = max(self.now, end)
        return turns


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def poll(loop: Loop) -> BusyPoll:
    return BusyPoll(loop, lambda: loop.now)


def miss(loop: Loop, poll: BusyPoll) -> int:
    """Send a response without a following request."""
    poll.on_answered()
    return loop.turns_until(loop.now + 10 * AWAKE_NS)


def test_loop_polls_for_a_while_and_then_sleeps(loop: Loop, poll: BusyPoll) -> None:
    poll.on_answered()
    assert loop.turns_until(1_000_000_000) == AWAKE_NS // STEP_NS + 1
    assert not loop.waiting


def test_request_in_time_keeps_the_loop_polling(loop: Loop, poll: BusyPoll) -> None:
    for _ in range(10_000):
        poll.on_answered()
        assert len(loop.waiting) == 1
        assert loop.turns_until(loop.now + AWAKE_NS // 2) == AWAKE_NS // 2 // STEP_NS


def test_useless_polls_lead_to_longer_and_longer_rests(loop: Loop, poll: BusyPoll) -> None:
    for _ in range(MISSES_MAX):
        assert miss(loop, poll)
    rest = REST_ANSWERS_MIN
    for _ in range(10):
        for _ in range(rest):
            assert not miss(loop, poll)
        assert miss(loop, poll)
        rest = min(2 * rest, REST_ANSWERS_MAX)


def test_useful_poll_resets_the_rests(loop: Loop, poll: BusyPoll) -> None:
    for _ in range(MISSES_MAX + REST_ANSWERS_MIN):
        miss(loop, poll)
    poll.on_answered()
    loop.turns_until(loop.now + AWAKE_NS // 2)
    for _ in range(MISSES_MAX):
        assert miss(loop, poll)
    for _ in range(REST_ANSWERS_MIN):
        assert not miss(loop, poll)
    assert miss(loop, poll)


class Counting(BusyPoll):
    count = 0

    def on_answered(self) -> None:
        self.count += 1


API_VERSIONS = frame(ApiVersionsRequest(), 0)
WAIT = frame(
    FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])],
    ),
    4,
)


@pytest.mark.waits
def test_polling_starts_only_after_the_last_response(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = load(None, [f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0"], insecure=False)
        running = await start(settings, asyncio.get_running_loop())
        poll = running.shell.busy_poll = Counting(asyncio.get_running_loop())
        reader, writer = await asyncio.open_connection("127.0.0.1", running.listeners[0].port)

        async def count_calls(frames: bytes, answers: int) -> int:
            """Return the number of calls."""
            before = poll.count
            writer.write(frames)
            for _ in range(answers):
                await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            return poll.count - before

        await count_calls(frame(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 4), 1)
        while not running.shell.broker.partitions:
            await asyncio.sleep(0.01)
        assert await count_calls(API_VERSIONS, 1) == 1
        assert await count_calls(API_VERSIONS * 3, 3) == 0, "who asks for three at once has more to ask"
        assert await count_calls(WAIT, 1) == 0, "it waits for the log"
        assert await count_calls(API_VERSIONS, 1) == 1
        writer.close()
        await running.stop()

    asyncio.run(scenario())
