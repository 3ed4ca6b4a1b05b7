"""Which replica a leader has consumers read from (KIP-392): by their rack, and by what followers have."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.fetch import plain_fetch
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId
from odradek.core.fetch.fetch_sessions import FINAL_EPOCH
from odradek.core.kernel.cluster_view import BrokerInfo, Endpoint
from odradek.core.kernel.parked import Parked
from odradek.core.partition.replica_selector import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from support.asking import LEADER
from support.controlling import OTHER
from support.fetching_follower import offsets_of
from support.in_memory import US
from support.led import LAG_MS_MAX, THIRD, Led

VERSION = 12
NOBODY = -1
WAIT_MS = 60_000


class Racks:
    """A partition led here in rack a, whose followers have racks of their own and all records."""

    def __init__(self, directory: Path, *, selector: str = RACK_AWARE_SELECTOR, **racks: str) -> None:
        self.led = Led(directory, selector=selector)
        self.set_racks(**racks)
        self.led.produce(acks=LEADER)
        self.led.produce(acks=LEADER)
        self.led.fetches(OTHER, THIRD)

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

    def told(self, outcome: object, version: int = VERSION) -> PartitionData:
        harness = self.led.harness
        answer = harness.decoded(harness.finished(outcome), version, FetchResponse)  # type: ignore[arg-type]
        return answer.responses[0].partitions[0]

    def preferred(self, rack: str, offset: int = 0) -> int:
        """Whom the leader names; who is to read from it gets its records."""
        told = self.told(self.send(rack, offset))
        assert (told.error_code, told.high_watermark) == (ErrorCode.NONE, 2)
        if told.preferred_read_replica != NOBODY:
            assert not offsets_of(told)
            assert told.log_start_offset == 0
        else:
            assert offsets_of(told) == [*range(offset, 2)]
        return told.preferred_read_replica


def _endpoint(broker: BrokerId, listener: str = "PLAINTEXT") -> Endpoint:
    return Endpoint(listener, "127.0.0.1", 9091 + broker)


@pytest.mark.parametrize(
    ("rack", "expected"),
    [("a", NOBODY), ("b", OTHER), ("c", THIRD), ("d", NOBODY), ("", NOBODY)],
)
def test_a_rack_is_served_by_whom_it_has(tmp_path: Path, rack: str, expected: int) -> None:
    racks = Racks(tmp_path, other="b", third="c")
    assert racks.preferred(rack) == expected


def test_who_shares_the_leaders_rack_reads_from_it(tmp_path: Path) -> None:
    assert Racks(tmp_path, us="b").preferred("b") == NOBODY


@pytest.mark.parametrize("selector", ["", LEADER_SELECTOR])
def test_without_the_selector_everybody_reads_from_the_leader(tmp_path: Path, selector: str) -> None:
    assert Racks(tmp_path, selector=selector).preferred("b") == NOBODY


def test_before_version_11_the_leader_answers(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    assert offsets_of(racks.told(racks.send("b", version=10), 10)) == [0, 1]


def test_of_several_it_is_the_one_that_has_most(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    racks.led.produce(acks=LEADER)
    racks.led.fetches(OTHER)
    assert racks.preferred("b") == OTHER


def test_of_those_that_have_as_much_it_is_the_one_that_had_it_last(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    racks.led.harness.pass_time(100)
    racks.led.fetches(OTHER)
    assert racks.preferred("b") == OTHER
    racks.led.fetches(THIRD)
    assert racks.preferred("b") == THIRD, "of equals the one with the greater id, as in Kafka"


def test_it_has_the_offset(tmp_path: Path) -> None:
    racks = Racks(tmp_path, third="c")
    racks.led.produce(acks=LEADER)
    assert [racks.preferred("b", offset) for offset in (0, 1)] == [OTHER, OTHER]
    assert racks.told(racks.send("b", 2)).preferred_read_replica == OTHER
    assert racks.told(racks.send("b", 3)).preferred_read_replica == NOBODY, "it has not got there"
    assert racks.told(racks.send("b", 9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_it_is_alive_can_be_reached_and_is_in_sync(tmp_path: Path) -> None:
    racks = Racks(tmp_path, third="c")
    view = racks.led.harness.broker.view
    assert racks.preferred("b") == OTHER
    alive = view.brokers
    view.brokers = {**alive, OTHER: BrokerInfo(OTHER, (_endpoint(OTHER, "INTERNAL"),), "b")}
    assert racks.preferred("b") == NOBODY, "its listener is another one"
    view.brokers = {one: info for one, info in alive.items() if one != OTHER}
    assert racks.preferred("b") == NOBODY
    view.brokers = alive
    racks.led.produce(acks=LEADER)
    racks.led.fetches(THIRD)
    racks.led.time_passes(2 * LAG_MS_MAX, THIRD)
    assert racks.preferred("b") == OTHER, "the controller has not answered yet"
    racks.led.answers(racks.led.proposed())
    assert racks.told(racks.send("b")).preferred_read_replica == NOBODY


def test_its_leader_epoch_comes_first(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    assert racks.told(racks.send("b", epoch=1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_who_is_sent_elsewhere_does_not_wait(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    outcome = racks.send("b", 2, wait_ms=WAIT_MS)
    assert not isinstance(outcome, Parked)
    assert racks.told(outcome).preferred_read_replica == THIRD


@pytest.mark.parametrize("is_plain", [False, True])
def test_who_waits_at_the_leader_is_sent_elsewhere_with_the_next_record(tmp_path: Path, is_plain: bool) -> None:
    racks = Racks(tmp_path, other="c", third="c")
    if is_plain:
        racks.told(racks.send("b", 2, wait_ms=WAIT_MS))
    waiting = racks.send("b", 2, wait_ms=WAIT_MS)
    assert isinstance(waiting, Parked)
    assert isinstance(waiting.condition, plain_fetch._Waiting) == is_plain
    racks.set_racks()
    racks.led.produce(acks=LEADER)
    racks.led.fetches(OTHER, THIRD)
    assert racks.told(waiting).preferred_read_replica == THIRD


def test_a_plain_fetch_is_sent_elsewhere_too(tmp_path: Path) -> None:
    racks = Racks(tmp_path, other="c", third="c")
    first, second = racks.told(racks.send("b")), racks.told(racks.send("b"))
    assert offsets_of(first) == offsets_of(second) == [0, 1]
    assert len(racks.led.harness.peer.fetch_templates) == 1
    racks.set_racks()
    assert racks.preferred("b") == THIRD


def test_in_a_session_it_is_told_at_once(tmp_path: Path) -> None:
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
    session = harness.ask(request, VERSION, FetchResponse).session_id
    assert session
    racks.set_racks()
    request.session_id, request.session_epoch = session, 1
    told = harness.ask(request, VERSION, FetchResponse).responses[0].partitions[0]
    assert told.preferred_read_replica == THIRD
