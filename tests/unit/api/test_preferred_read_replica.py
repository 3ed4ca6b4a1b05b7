"""Preferred read replica of a consumer (KIP-392), chosen by rack and by the followers' positions."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.fetch import plain_fetch
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId
from odradek.core.fetch.fetch_sessions import FINAL_EPOCH
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.replica_selector import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from support.asking import LEADER
from support.controlling import OTHER
from support.fetching_follower import offsets_of
from support.in_memory import US
from support.led import LAG_MS_MAX, THIRD, Led

VERSION = 12
NO_REPLICA = -1
WAIT_MS = 60_000


class Racks:
    """A partition led in rack a, whose followers have other racks and all records."""

    def __init__(self, directory: Path, *, selector: str = RACK_AWARE_SELECTOR, **racks: str) -> None:
        self.led = Led(directory, selector=selector)
        self.set_racks(**racks)
        self.led.produce(acks=LEADER)
        self.led.produce(acks=LEADER)
        self.led.fetch_as_follower(OTHER, THIRD)

    def set_racks(self, us: str = "a", other: str = "b", third: str = "b") -> None:
        view = self.led.harness.broker.view
        racks = {US: us, OTHER: other, THIRD: third}
        view.brokers = {one: BrokerInfo(one, (_endpoint(one),), rack) for one, rack in racks.items()}

    def send(self, rack: str, offset: int = 0, *, version: int = VERSION, wait_ms: int = 0, epoch: int = -1) -> object:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_epoch=FINAL_EPOCH,
            topics=[FetchTopic(topic="t", partitions=[part])],
            rack_id=rack if version >= 11 else "",
        )
        return self.led.harness.send(request, version)

    def response_of(self, outcome: object, version: int = VERSION) -> PartitionData:
        harness = self.led.harness
        answer = harness.decoded(harness.finished(outcome), version, FetchResponse)  # type: ignore[arg-type]
        return answer.responses[0].partitions[0]

    def preferred(self, rack: str, offset: int = 0) -> int:
        """Return the replica named by the leader; a consumer of the leader gets its records."""
        response = self.response_of(self.send(rack, offset))
        assert (response.error_code, response.high_watermark) == (ErrorCode.NONE, 2)
        if response.preferred_read_replica != NO_REPLICA:
            assert not offsets_of(response)
            assert response.log_start_offset == 0
        else:
            assert offsets_of(response) == [*range(offset, 2)]
        return response.preferred_read_replica


def _endpoint(broker: BrokerId, listener: str = "PLAINTEXT") -> Endpoint:
    return Endpoint(listener, "127.0.0.1", 9091 + broker)


@pytest.mark.parametrize(
    ("rack", "expected"),
    [("a", NO_REPLICA), ("b", OTHER), ("c", THIRD), ("d", NO_REPLICA), ("", NO_REPLICA)],
)
def test_consumer_reads_from_a_replica_in_its_rack(tmp_path: Path, rack: str, expected: int) -> None:
    racks = Racks(tmp_path, other="b", third="c")
    assert racks.preferred(rack) == expected


def test_consumer_in_the_leaders_rack_reads_from_the_leader(tmp_path: Path) -> None:
    assert Racks(tmp_path, us="b").preferred("b") == NO_REPLICA


@pytest.mark.parametrize("selector", ["", LEADER_SELECTOR])
def test_consumers_read_from_the_leader_without_the_selector(tmp_path: Path, selector: str) -> None:
    assert Racks(tmp_path, selector=selector).preferred("b") == NO_REPLICA


def test_requests_before_version_11_are_served_by_the_leader(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    assert offsets_of(racks.response_of(racks.send("b", version=10), 10)) == [0, 1]


def test_replica_with_the_highest_offset_is_preferred(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    racks.led.produce(acks=LEADER)
    racks.led.fetch_as_follower(OTHER)
    assert racks.preferred("b") == OTHER


def test_most_recently_caught_up_replica_is_preferred(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    racks.led.harness.pass_time(100)
    racks.led.fetch_as_follower(OTHER)
    assert racks.preferred("b") == OTHER
    racks.led.fetch_as_follower(THIRD)
    assert racks.preferred("b") == THIRD, "of equals the one with the greater id, as in Kafka"


def test_preferred_replica_has_the_requested_offset(tmp_path: Path) -> None:
    racks = Racks(tmp_path, third="c")
    racks.led.produce(acks=LEADER)
    assert [racks.preferred("b", offset) for offset in (0, 1)] == [OTHER, OTHER]
    assert racks.response_of(racks.send("b", 2)).preferred_read_replica == OTHER
    assert racks.response_of(racks.send("b", 3)).preferred_read_replica == NO_REPLICA, "it has not got there"
    assert racks.response_of(racks.send("b", 9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_preferred_replica_is_alive_reachable_and_in_sync(tmp_path: Path) -> None:
    racks = Racks(tmp_path, third="c")
    view = racks.led.harness.broker.view
    assert racks.preferred("b") == OTHER
    alive = view.brokers
    view.brokers = {**alive, OTHER: BrokerInfo(OTHER, (_endpoint(OTHER, "INTERNAL"),), "b")}
    assert racks.preferred("b") == NO_REPLICA, "its listener is another one"
    view.brokers = {one: info for one, info in alive.items() if one != OTHER}
    assert racks.preferred("b") == NO_REPLICA
    view.brokers = alive
    racks.led.produce(acks=LEADER)
    racks.led.fetch_as_follower(THIRD)
    racks.led.pass_time(2 * LAG_MS_MAX, THIRD)
    assert racks.preferred("b") == OTHER, "the controller has not answered yet"
    racks.led.answer_proposal(racks.led.take_proposal())
    assert racks.response_of(racks.send("b")).preferred_read_replica == NO_REPLICA


def test_leader_epoch_is_checked_first(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    assert racks.response_of(racks.send("b", epoch=1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_redirected_fetch_does_not_wait(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    outcome = racks.send("b", 2, wait_ms=WAIT_MS)
    assert not isinstance(outcome, ParkedRequest)
    assert racks.response_of(outcome).preferred_read_replica == THIRD


@pytest.mark.parametrize("is_plain", [False, True])
def test_parked_fetch_is_redirected_with_the_next_record(tmp_path: Path, is_plain: bool) -> None:
    racks = Racks(tmp_path, other="c", third="c")
    if is_plain:
        racks.response_of(racks.send("b", 2, wait_ms=WAIT_MS))
    waiting = racks.send("b", 2, wait_ms=WAIT_MS)
    assert isinstance(waiting, ParkedRequest)
    assert isinstance(waiting.condition, plain_fetch._DelayedPlainFetch) == is_plain
    racks.set_racks()
    racks.led.produce(acks=LEADER)
    racks.led.fetch_as_follower(OTHER, THIRD)
    assert racks.response_of(waiting).preferred_read_replica == THIRD


def test_templated_fetch_is_redirected(tmp_path: Path) -> None:
    racks = Racks(tmp_path, other="c", third="c")
    first, second = racks.response_of(racks.send("b")), racks.response_of(racks.send("b"))
    assert offsets_of(first) == offsets_of(second) == [0, 1]
    assert len(racks.led.harness.peer.fetch_templates) == 1
    racks.set_racks()
    assert racks.preferred("b") == THIRD


def test_session_fetch_is_redirected_immediately(tmp_path: Path) -> None:
    racks = Racks(tmp_path, other="c", third="c")
    part = FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_epoch=0,
        topics=[FetchTopic(topic="t", partitions=[part])],
        rack_id="b",
    )
    harness = racks.led.harness
    session = harness.request(request, VERSION, FetchResponse).session_id
    assert session
    racks.set_racks()
    request.session_id, request.session_epoch = session, 1
    redirected = harness.request(request, VERSION, FetchResponse).responses[0].partitions[0]
    assert redirected.preferred_read_replica == THIRD
