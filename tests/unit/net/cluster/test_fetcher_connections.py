"""Fetch requests and connections of a follower, by its configuration; its leader is a real socket."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.core.kernel.cluster_view import BrokerInfo
from odradek.core.kernel.moment import Moment
from odradek.core.replication.replica_fetcher_manager import fetcher_id
from odradek.net.channels.channel_connection import ChannelConnection
from odradek.net.cluster.fetcher_connections import FetcherConnections
from odradek.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from odradek.wire.schema.compile import decode, encode
from support.channel_peer import Peer, ReceivedRequest, Writer, framed, run, until
from support.controlling import OTHER, Controlling, topic_id
from support.followed import batch
from support.in_memory import US, Harness

pytestmark = pytest.mark.waits

FETCH, PARTITIONS = 1, 6


class Following:
    """A broker that follows the partitions of t, and its connections; only `pass_time` advances its clock."""

    def __init__(self, folder: Path, peer: Peer, **configs: str) -> None:
        self.harness = Harness(folder, **configs)
        self.broker = self.harness.broker
        view = self.broker.view
        view.brokers = {**view.brokers, OTHER: BrokerInfo(OTHER, (peer.endpoint,))}
        self.loop = asyncio.get_running_loop()
        self.lines = FetcherConnections(self, self.broker, "PLAINTEXT", None)  # type: ignore[arg-type]  # A Shell.
        both = (OTHER, US)
        errors = Controlling(self.harness).send_leader_and_isr(
            "t", *range(PARTITIONS), leader=OTHER, replicas=both, is_new=True
        )
        assert errors == {}
        self.lines.send_due_requests()

    def now(self) -> Moment:
        return self.harness.now

    def settle(self) -> None:
        self.lines.send_due_requests()

    def pass_time(self, ms: int) -> None:
        self.harness.pass_time(ms)
        self.settle()

    def resize(self, count: int) -> None:
        for _ in self.broker.fetchers.resize(count, self.now()):
            pass
        self.settle()

    def end(self, index: int) -> int:
        return self.broker.partitions[TopicPartition(TopicName("t"), index)].log.end_offset


def request_of(received: ReceivedRequest) -> FetchRequest:
    assert received.api_key == FETCH
    return decode(FetchRequest, received.version, received._rest, 1)  # After the header's tags.


def indexes(request: FetchRequest) -> list[int]:
    return sorted(part.partition for topic in request.topics for part in topic.partitions)


async def silence(received: ReceivedRequest, writer: Writer) -> None:
    """Send no response."""


class Leader:
    """A leader that serves each fetcher in its own session, with the records put for it."""

    def __init__(self) -> None:
        self.sessions: dict[int, set[int]] = {}  # The named partitions, by connection.
        self.records: dict[int, bytes] = {}

    async def __call__(self, received: ReceivedRequest, writer: Writer) -> None:
        request = request_of(received)
        known = self.sessions.setdefault(received.connection, set())
        if request.session_epoch == 0:
            known.clear()
        known |= set(indexes(request))
        known -= {index for topic in request.forgotten_topics_data for index in topic.partitions}
        offsets = {part.partition: part.fetch_offset for topic in request.topics for part in topic.partitions}
        parts = [
            PartitionData(
                partition_index=index, error_code=0, high_watermark=1, log_start_offset=0, records=self.records[index]
            )
            for index in known
            if index in self.records and offsets.get(index, -1) == 0
        ]
        if not parts:
            await asyncio.sleep(0.01)  # Like a leader without new records.
        topics = [FetchableTopicResponse(topic_id=topic_id("t"), partitions=parts)] if parts else []
        response = FetchResponse(session_id=received.connection + 1, responses=topics)
        writer.write(framed(received.correlation_id, b"\0" + encode(response, received.version)))
        await writer.drain()


def test_fetch_request_has_the_configured_values(tmp_path: Path) -> None:
    async def work() -> None:
        async with Peer(silence) as peer:
            following = Following(
                tmp_path,
                peer,
                replica_fetch_wait_max_ms="123",
                replica_fetch_min_bytes="7",
                replica_fetch_max_bytes="1001",
                replica_fetch_response_max_bytes="2002",
            )
            await until(lambda: bool(peer.requests))
            request = request_of(peer.requests[0])
            assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (123, 7, 2002)
            assert {part.partition_max_bytes for topic in request.topics for part in topic.partitions} == {1001}
            assert request.replica_state.replica_id == US
            assert peer.requests[0].client_id == "broker-1-fetcher-0"
            following.lines.close()

    run(work)


def test_each_fetcher_has_a_connection_and_a_session(tmp_path: Path) -> None:
    async def work() -> None:
        async with Peer(silence) as peer:
            following = Following(tmp_path, peer, num_replica_fetchers="3")
            await until(lambda: len(peer.requests) == 3)
            named = {received.client_id: indexes(request_of(received)) for received in peer.requests}
            spread: dict[str, list[int]] = {}
            for index in range(PARTITIONS):
                number = fetcher_id(TopicPartition(TopicName("t"), index), 3)
                spread.setdefault(f"broker-1-fetcher-{number}", []).append(index)
            assert named == spread
            assert peer.connections == 3
            following.lines.close()

    run(work)


def test_partitions_move_between_fetchers_without_duplicates(tmp_path: Path) -> None:
    async def work() -> None:
        leader = Leader()
        async with Peer(leader) as peer:
            following = Following(tmp_path, peer)
            await until(lambda: len(peer.requests) > 2)
            for number, count in enumerate((3, 2, 5, 1)):
                leader.records[number] = batch(0)
                following.resize(count)
                await until(lambda: following.end(number) == 1)  # noqa: B023  # It is called here alone.
                used = {fetcher_id(TopicPartition(TopicName("t"), index), count) for index in range(PARTITIONS)}
                await until(lambda: peer.open == len(used))  # noqa: B023
            assert [following.end(index) for index in range(PARTITIONS)] == [1, 1, 1, 1, 0, 0]
            following.lines.close()

    run(work)


def test_silent_leader_is_retried_over_another_connection(tmp_path: Path) -> None:
    async def work() -> None:
        async with Peer(silence) as peer:
            following = Following(
                tmp_path,
                peer,
                replica_socket_timeout_ms="50",
                replica_fetch_wait_max_ms="10",
                replica_fetch_backoff_ms="700",
            )
            await until(lambda: peer.connections == 1 and not peer.open)
            following.pass_time(699)
            await asyncio.sleep(0)
            assert len(peer.requests) == 1, "the backoff is not over"
            following.pass_time(1)
            await until(lambda: peer.connections == 2)
            following.lines.close()

    run(work)


@pytest.mark.parametrize("size", [-1, 20_000])
def test_receive_buffer_has_the_configured_size(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    open_ = ChannelConnection._open

    def opened(connection: ChannelConnection) -> None:
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        made.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
        open_(connection)

    monkeypatch.setattr(ChannelConnection, "_open", opened)

    async def work() -> None:
        async with Peer(silence) as peer:
            following = Following(tmp_path, peer, replica_socket_receive_buffer_bytes=str(size))
            await until(lambda: bool(peer.requests))
            assert (made[0] == 2 * size) == (size > 0), "Linux counts what it needs itself, as much again"
            following.lines.close()

    run(work)


def test_session_error_starts_another_session(tmp_path: Path) -> None:
    async def refuses(received: ReceivedRequest, writer: Writer) -> None:
        known = request_of(received).session_epoch > 0
        error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND if known else ErrorCode.NONE
        response = FetchResponse(error_code=error, session_id=0 if known else 9, responses=[])
        writer.write(framed(received.correlation_id, b"\0" + encode(response, received.version)))
        await writer.drain()

    async def work() -> None:
        async with Peer(refuses) as peer:
            following = Following(tmp_path, peer)
            await until(lambda: len(peer.requests) >= 4)
            requests = [request_of(received) for received in peer.requests[:4]]
            assert [one.session_epoch for one in requests] == [0, 1, 0, 1]
            assert [len(indexes(one)) for one in requests] == [PARTITIONS, 0, PARTITIONS, 0]
            following.lines.close()

    run(work)
