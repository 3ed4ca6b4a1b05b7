"""Fetch by a follower: what the leader learns from it, and when it responds."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.request.admission import Admission
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, Offset, TopicPartition
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.kernel.access import ANONYMOUS, NO_CLUSTER_ACTION
from odradek.core.kernel.moment import Moment
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from support.asking import ALL, FETCH, LEADER, fetch_request
from support.controlling import OTHER
from support.fetching_follower import FetchingFollower, is_parked, offsets_of
from support.in_memory import NOW_MS, US
from support.led import ALL_THREE, LAG_MS_MAX, THIRD, Led
from support.rooms import interpreted

WAIT_MS = 500


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return Led(tmp_path)


@pytest.fixture
def other(led: Led) -> FetchingFollower:
    return FetchingFollower(led, OTHER)


@pytest.fixture
def third(led: Led) -> FetchingFollower:
    return FetchingFollower(led, THIRD)


def error_of(follower: FetchingFollower, offset: int, partition: int = 0) -> ErrorCode:
    return ErrorCode(follower.fetch({partition: offset})[partition].error_code)


def test_connection_is_a_followers_while_it_fetches_as_one(led: Led, other: FetchingFollower) -> None:
    peer = led.harness.peer
    assert not peer.is_follower
    other.fetch({0: 0})
    assert peer.is_follower
    other.fetch({})
    assert peer.is_follower
    led.harness.send(fetch_request("t", 0, wait_ms=0), FETCH)
    assert not peer.is_follower


# Content of responses.


@pytest.mark.parametrize("version", [4, 6, 9, 12, 13, 15, 17])
def test_follower_reads_uncommitted_records(led: Led, version: int) -> None:
    follower = FetchingFollower(led, OTHER, version=version, has_session=version >= 7)
    led.produce(acks=LEADER)
    led.produce(acks=LEADER)
    part = follower.fetch({0: 0})[0]
    assert (part.error_code, part.high_watermark, offsets_of(part)) == (ErrorCode.NONE, 0, [0, 1])
    assert led.visible() == 0


def test_response_has_the_high_watermark_advanced_by_the_fetch(
    led: Led, other: FetchingFollower, third: FetchingFollower
) -> None:
    led.produce(acks=LEADER)
    assert other.fetch({0: 1})[0].high_watermark == 0
    part = third.fetch({0: 1})[0]
    assert (part.high_watermark, part.log_start_offset, offsets_of(part)) == (1, 0, [])
    assert led.visible() > 0


def test_last_in_sync_follower_completes_parked_requests(
    led: Led, other: FetchingFollower, third: FetchingFollower
) -> None:
    other.catch_up()
    third.catch_up()
    producer = led.produce(acks=ALL)
    consumer = led.harness.send(fetch_request("t", 0, wait_ms=60_000), FETCH)
    coordinator: list[str] = []
    batch = Batch.checked(memoryview(encode_batch([(None, b"b", (), NOW_MS)])))
    append = led.harness.broker._append_state(led.leading, batch, led.harness.now)
    led.harness.broker._steps.when_safe(
        PendingWrite(append), lambda now: coordinator.append("went on"), led.harness.now
    )
    other.fetch({0: 2})
    assert led.is_waiting(producer) and is_parked(led, consumer) and not coordinator
    third.fetch({0: 2})
    assert not led.is_waiting(producer) and not is_parked(led, consumer) and coordinator
    assert led.produced(producer) == (ErrorCode.NONE, 0)


def test_follower_reads_uncommitted_in_any_isolation_level(led: Led, other: FetchingFollower) -> None:
    led.produce(acks=LEADER)
    request = other.request({0: 0})
    request.isolation_level = 1
    part = other.read_response(led.harness.send(request, other.version))[0]
    assert part.aborted_transactions is None
    assert offsets_of(part) == [0]


# Refusals.


def test_refusal_of_a_non_replica_depends_on_its_leader_epoch(led: Led) -> None:
    stranger = FetchingFollower(led, BrokerId(9))
    assert error_of(stranger, 7) is ErrorCode.UNKNOWN_LEADER_EPOCH, "before its offset is looked at"
    stranger.leader_epoch = -1
    assert error_of(stranger, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_partition_with_one_replica_refuses_followers(led: Led) -> None:
    assert led.controller.send_leader_and_isr("t", epoch=1, replicas=(US,)) == {}
    follower = FetchingFollower(led, OTHER)
    follower.leader_epoch = 1
    assert error_of(follower, 0) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_leader_epoch_is_checked_first(led: Led, other: FetchingFollower) -> None:
    assert led.controller.send_leader_and_isr("t", epoch=3, replicas=ALL_THREE) == {}
    assert error_of(other, 7) is ErrorCode.FENCED_LEADER_EPOCH
    other.leader_epoch = 4
    assert error_of(other, 7) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert led.controller.send_leader_and_isr("t", leader=OTHER, epoch=5, replicas=ALL_THREE) == {}
    other.leader_epoch = 5
    assert error_of(other, 7) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_follower_fetch_requires_cluster_action(led: Led, other: FetchingFollower) -> None:
    led.produce(acks=LEADER)
    led.harness.peer.admission = Admission(ANONYMOUS, NO_CLUSTER_ACTION)
    assert error_of(other, 1) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert led.leading.follower(OTHER).log_end_offset == -1, "nothing is believed of it"


def test_out_of_range_fetch_is_refused_and_does_not_update_the_follower(led: Led, other: FetchingFollower) -> None:
    for _ in range(3):
        led.produce(acks=LEADER)
    assert error_of(other, 4) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert error_of(other, -1) is ErrorCode.OFFSET_OUT_OF_RANGE
    led.fetch_as_follower(OTHER, THIRD)
    led.leading.partition.advance_start(Offset(2))
    assert error_of(other, 1) is ErrorCode.OFFSET_OUT_OF_RANGE
    other.last_fetched_epoch = 0
    assert error_of(other, 1) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert led.leading.follower(OTHER).log_end_offset == 3


def test_diverging_fetch_returns_the_divergence_and_updates_nothing(led: Led, other: FetchingFollower) -> None:
    """Also beyond the leader's end, if the request has the epoch of that offset (KIP-595)."""
    led.produce(acks=LEADER)
    assert led.controller.send_leader_and_isr("t", epoch=4, replicas=ALL_THREE) == {}
    led.produce(acks=LEADER)
    other.leader_epoch, other.last_fetched_epoch = 4, 0
    for offset in (2, 9):
        part = other.fetch({0: offset})[0]
        diverging = part.diverging_epoch
        assert (part.error_code, diverging.epoch, diverging.end_offset) == (ErrorCode.NONE, 0, 1)
    other.last_fetched_epoch = 3
    assert other.fetch({0: 1})[0].diverging_epoch.epoch == 0, "epoch 3 is of another leader that was gone before"
    other.last_fetched_epoch = 5
    assert error_of(other, 1) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert led.leading.follower(OTHER).log_end_offset == -1


def test_fetch_with_an_old_broker_epoch_is_refused(led: Led, other: FetchingFollower) -> None:
    outdated = FetchingFollower(led, OTHER)
    other.broker_epoch, outdated.broker_epoch = 7, 6
    other.catch_up()
    led.produce(acks=LEADER)
    assert error_of(outdated, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.leading.follower(OTHER).log_end_offset == 0


# Time of responses.


@pytest.mark.parametrize("has_session", [True, False])
def test_follower_waits_at_the_log_end_and_consumers_at_the_high_watermark(led: Led, *, has_session: bool) -> None:
    follower = FetchingFollower(led, OTHER, has_session=has_session)
    follower.catch_up()
    fetch = follower.send({0: 0}, wait=WAIT_MS)
    consumers = [led.harness.send(fetch_request("t", 0, wait_ms=60_000), FETCH)]
    assert is_parked(led, fetch)
    led.produce(acks=LEADER)
    assert not is_parked(led, fetch)
    assert is_parked(led, consumers[0])
    part = follower.read_response(fetch)[0]
    assert (offsets_of(part), part.high_watermark) == ([0], 0)


@pytest.mark.parametrize("has_session", [True, False])
def test_follower_waits_for_min_bytes(led: Led, *, has_session: bool) -> None:
    follower = FetchingFollower(led, OTHER, has_session=has_session)
    follower.catch_up()
    follower.min_bytes = 100
    fetch = follower.send({0: 0}, wait=WAIT_MS)
    led.produce(acks=LEADER)
    assert is_parked(led, fetch)
    led.produce(b"b" * 50, acks=LEADER)
    assert not is_parked(led, fetch)
    assert offsets_of(follower.read_response(fetch)[0]) == [0, 1]


@pytest.mark.parametrize("has_session", [True, False])
def test_parked_follower_fetch_completes_when_the_leader_epoch_changes(led: Led, *, has_session: bool) -> None:
    follower = FetchingFollower(led, OTHER, has_session=has_session)
    follower.catch_up()
    fetch = follower.send({0: 0}, wait=WAIT_MS)
    assert led.controller.send_leader_and_isr("t", epoch=1, replicas=ALL_THREE) == {}
    assert not is_parked(led, fetch)
    assert follower.read_response(fetch)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_high_watermark_is_sent_with_the_next_records_or_at_the_deadline(
    led: Led, other: FetchingFollower, third: FetchingFollower
) -> None:
    """A new high watermark alone completes no fetch, parked or not (KAFKA-9731, KAFKA-9952)."""
    other.catch_up()
    third.catch_up()
    led.produce(acks=LEADER)
    first, last = other.send({0: 1}, wait=WAIT_MS), third.send({0: 1}, wait=WAIT_MS)
    assert led.high_watermark == 1
    assert is_parked(led, first) and is_parked(led, last)
    led.harness.pass_time(WAIT_MS)
    assert other.read_response(first)[0].high_watermark == third.read_response(last)[0].high_watermark == 1
    assert is_parked(led, other.send({}, wait=WAIT_MS))
    led.produce(acks=LEADER)
    first, last = other.send({0: 2}, wait=WAIT_MS), third.send({0: 2}, wait=WAIT_MS)
    led.produce(acks=LEADER)
    assert not is_parked(led, first) and not is_parked(led, last)
    assert other.read_response(first)[0].high_watermark == third.read_response(last)[0].high_watermark == 2


def test_high_watermark_is_sent_with_records_of_another_partition(tmp_path: Path) -> None:
    led = Led(tmp_path, partitions=2)
    other, third = FetchingFollower(led, OTHER), FetchingFollower(led, THIRD)
    other.catch_up(0, 1)
    third.catch_up(0, 1)
    led.produce(acks=LEADER)
    first, last = other.send({0: 1}, wait=WAIT_MS), third.send({0: 1}, wait=WAIT_MS)
    led.produce(acks=LEADER, partition=1)
    assert not is_parked(led, first) and not is_parked(led, last)
    for parts in (other.read_response(first), third.read_response(last)):
        assert parts.keys() == {0, 1} and parts[0].high_watermark == 1


@interpreted
@pytest.mark.parametrize("has_session", [True, False])
def test_records_written_because_of_a_fetch_are_sent_immediately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_session: bool
) -> None:
    """For example the markers of a transaction, once all replicas have the decision."""
    led = Led(tmp_path, partitions=2)
    broker = led.harness.broker
    other, third = [FetchingFollower(led, one, has_session=has_session) for one in (OTHER, THIRD)]
    for follower in (other, third):
        follower.catch_up(0, 1)
    led.produce(acks=LEADER, partition=1)
    # The first is parked in its session, or is read before the second advances the high watermark.
    offsets = {1: 1} if has_session else {0: 0, 1: 1}
    assert is_parked(led, other.send(offsets, wait=WAIT_MS))
    moved = broker.moved

    def writes(name: TopicPartition, now: Moment) -> None:
        moved(name, now)
        if name.partition:
            led.produce(acks=LEADER)

    monkeypatch.setattr(broker, "moved", writes)
    fetch = third.send(offsets, wait=WAIT_MS)
    assert not is_parked(led, fetch)
    assert offsets_of(third.read_response(fetch)[0]) == [0]


def test_sessionless_fetch_waits_despite_a_new_high_watermark(led: Led) -> None:
    follower = FetchingFollower(led, OTHER, has_session=False)
    led.produce(acks=LEADER)
    led.fetch_as_follower(THIRD)
    follower.catch_up()
    assert led.high_watermark == 1
    assert is_parked(led, follower.send({0: 1}, wait=WAIT_MS)), "or it would ask again and again"


def test_new_log_start_is_sent_immediately(led: Led, other: FetchingFollower) -> None:
    led.produce(acks=LEADER)
    led.fetch_as_follower(THIRD)
    other.catch_up()
    fetch = other.send({}, wait=WAIT_MS)
    led.leading.partition.advance_start(Offset(1))
    assert not is_parked(led, fetch)
    assert other.read_response(fetch)[0].log_start_offset == 1


# Sessions.


@pytest.mark.slow
def test_fetch_reads_only_changed_partitions(tmp_path: Path) -> None:
    """Each request reads only the partitions that are due."""
    count, active = 5_000, [*range(0, 5_000, 50)]
    led = Led(tmp_path, partitions=count)
    follower = FetchingFollower(led, OTHER)
    follower.catch_up(*range(count))
    session = led.harness.broker.sessions.find_session(follower.session_id)
    assert session is not None and not session.due
    for index in active:
        led.produce(acks=LEADER, partition=index)
    assert [one.key.partition for one in session.due] == active
    assert [*follower.fetch({})] == active
    assert sorted(one.key.partition for one in session.due) == active
    assert follower.fetch(dict.fromkeys(active, 1)) == {}
    assert not session.due, "they are at the end of the log"
    assert is_parked(led, follower.send({}, wait=WAIT_MS))
    assert not session.due


def test_unnamed_session_partitions_stay_in_sync(tmp_path: Path) -> None:
    """After a long time without writes, the followers of a partition do not lag at the next write."""
    led = Led(tmp_path, partitions=2)
    followers = [FetchingFollower(led, one) for one in (OTHER, THIRD)]
    for follower in followers:
        follower.catch_up(0, 1)
    for _ in range(3 * LAG_MS_MAX // 1000):
        waiting = [follower.send({}, wait=WAIT_MS) for follower in followers]
        led.harness.pass_time(1000)
        assert [follower.read_response(one) for follower, one in zip(followers, waiting, strict=True)] == [{}, {}]
    led.produce(acks=LEADER)
    led.harness.run_housekeeping()
    assert led.harness.broker.alter_partition.take_proposals() == []
    led.harness.pass_time(LAG_MS_MAX + 1000)
    led.harness.run_housekeeping()
    assert led.take_proposal().proposal.isr == (US,), "but those that do not come any more"


def test_change_without_a_record_causes_no_lag(tmp_path: Path) -> None:
    led = Led(tmp_path)
    followers = [FetchingFollower(led, one) for one in (OTHER, THIRD)]
    led.produce(acks=LEADER)
    for follower in followers:
        follower.catch_up()
    followers[0].catch_up()
    for _ in range(3 * LAG_MS_MAX // 1000):
        led.harness.pass_time(1000)
        for follower in followers:
            follower.fetch({})
    led.leading.partition.advance_start(Offset(1))
    led.produce(acks=LEADER)
    led.harness.run_housekeeping()
    assert led.harness.broker.alter_partition.take_proposals() == []


def test_caught_up_follower_is_checked_until_it_is_in_the_isr(led: Led, other: FetchingFollower) -> None:
    """The follower has all records and waits for the controller: no fetch names the partition any more."""
    assert led.controller.send_leader_and_isr("t", epoch=1, replicas=ALL_THREE) == {}
    led.produce(acks=LEADER)
    led.pass_time(LAG_MS_MAX + 2000)
    led.answer_proposal(led.take_proposal())
    other.leader_epoch = 1
    other.catch_up()
    led.answer_proposal(led.take_proposal(), ErrorCode.INELIGIBLE_REPLICA)
    assert other.fetch({}) == {}
    pending = led.take_proposal()
    assert pending.proposal.isr == (US, OTHER)
    led.answer_proposal(pending)
    other.fetch({})
    session = led.harness.broker.sessions.find_session(other.session_id)
    assert session is not None and not session.due


def test_impersonated_follower_is_corrected_by_its_own_session(led: Led, other: FetchingFollower) -> None:
    """Without authentication any client may pretend to be the follower, whose own session is checked again."""
    led.produce(acks=LEADER)
    third = FetchingFollower(led, THIRD)
    for one in (other, third, other):
        one.catch_up()
    session = led.harness.broker.sessions.find_session(other.session_id)
    assert session is not None and not session.due
    in_sync = led.leading.in_sync
    assert in_sync is not None
    impostor = FetchingFollower(led, OTHER, has_session=False)
    impostor.fetch({0: 0})
    assert in_sync.replica(OTHER).log_end_offset == 0
    other.fetch({})
    assert in_sync.replica(OTHER).log_end_offset == led.end()


def test_follower_removed_by_an_impersonator_rejoins(led: Led, other: FetchingFollower) -> None:
    led.produce(acks=LEADER)
    third = FetchingFollower(led, THIRD)
    for one in (other, third, other):
        one.catch_up()
    session = led.harness.broker.sessions.find_session(other.session_id)
    assert session is not None and not session.due
    impostor = FetchingFollower(led, OTHER, has_session=False)
    for _ in range(LAG_MS_MAX // 1000 + 2):
        led.harness.pass_time(1000)
        impostor.fetch({0: 0})
        led.harness.run_housekeeping()
    pending = led.take_proposal()
    assert pending.proposal.isr == (US, THIRD)
    led.answer_proposal(pending)
    other.fetch({})
    assert led.take_proposal().proposal.isr == (US, THIRD, OTHER)


def test_follower_session_evicts_a_consumer_session(tmp_path: Path) -> None:
    led = Led(tmp_path)
    sessions = led.harness.broker.sessions
    sessions._sessions_max = 2
    consumers = [FetchingFollower(led, BrokerId(-1)) for _ in range(3)]
    for consumer in consumers:
        consumer.fetch({0: 0})
    assert [one.session_id != 0 for one in consumers] == [True, True, False]
    followers = [FetchingFollower(led, one) for one in (OTHER, THIRD, OTHER)]
    for follower in followers:
        follower.fetch({0: 0})
    assert [one.session_id != 0 for one in followers] == [True, True, False]
    assert (
        sessions.find_session(consumers[0].session_id) is None
        and sessions.find_session(consumers[1].session_id) is None
    )


def test_unauthorized_follower_session_evicts_no_consumer_session(led: Led) -> None:
    sessions = led.harness.broker.sessions
    sessions._sessions_max = 1
    consumer = FetchingFollower(led, BrokerId(-1))
    consumer.fetch({0: 0})
    led.harness.peer.admission = Admission(ANONYMOUS, NO_CLUSTER_ACTION)
    follower = FetchingFollower(led, OTHER)
    follower.fetch({0: 0})
    assert (follower.session_id, len(sessions)) == (0, 1)
