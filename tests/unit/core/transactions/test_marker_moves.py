"""Markers for partitions that other brokers lead, while leaders, brokers, topics and the coordinator come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, LeaderEpoch
from odradek.core.controller.broker_request_batch import LEADER_DURING_DELETE, PartitionMetadata, UpdateMetadata
from odradek.core.disks.flushes import Sync
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.kernel.parked import Parked
from odradek.core.transactions.transaction_markers import WriteMarkers
from odradek.core.transactions.transaction_shard import Completion
from odradek.core.transactions.transaction_states import TransactionState
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.controlling import name_of
from support.in_memory import US
from support.markers_elsewhere import LOST, THREE, TWO, Elsewhere, first_of_four_here, is_complete, names
from support.transactional import EPOCHS, Transactional, committed

T0, T1, T2, T3 = (name_of("t", index) for index in range(4))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    return first_of_four_here(tmp_path)


# Leaders that are not known, topics that are gone.


@pytest.mark.parametrize("is_down", [True, False])
def test_a_partition_without_a_leader_waits_and_the_others_go_on(elsewhere: Elsewhere, is_down: bool) -> None:
    if is_down:  # Its broker is dead, and the controller has not said so of its partitions yet.
        elsewhere.lives(US, TWO)
    else:
        elsewhere.tells("t", US, TWO, NO_BROKER, TWO)
    producer = elsewhere.begun()
    assert producer.write("t", b"a") == ErrorCode.NONE
    elsewhere.decided(producer, T0, T1, T2)
    elsewhere.answers(elsewhere.asked_alone())
    assert committed(elsewhere.harness, "t") == [b"a"]
    for _ in range(3):
        elsewhere.passes()
        assert elsewhere.asked() == []
    assert not is_complete(producer)
    elsewhere.tells("t", US, TWO, TWO, TWO)
    elsewhere.passes()
    effect = elsewhere.asked_alone()
    assert names(effect) == [T2]
    elsewhere.answers(effect)
    assert is_complete(producer)


def test_a_partition_that_moves_here_is_marked_here(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begun()
    elsewhere.decided(producer, T1)
    elsewhere.answers(elsewhere.asked_alone(), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert elsewhere.controller.leads("t", 1, epoch=9, is_new=True) == {}
    elsewhere.tells("t", US, US, THREE, TWO)
    elsewhere.passes()
    assert elsewhere.asked() == []
    assert is_complete(producer)


def test_a_partition_that_moves_away_is_asked_for(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begun()
    assert elsewhere.controller.leads("t", 0, leader=NO_BROKER, epoch=9) == {}
    elsewhere.decided(producer, T0)  # The view still says that it is led here.
    assert not is_complete(producer)
    elsewhere.tells("t", TWO, TWO, THREE, TWO)
    elsewhere.passes()
    assert names(elsewhere.asked_alone()) == [T0]


def delete(elsewhere: Elsewhere, topic: str, partitions: int) -> None:
    told = PartitionMetadata(LeaderAndIsr(LEADER_DURING_DELETE, LeaderEpoch(0), (), controller_epoch=1), (TWO,), ())
    states = {name_of(topic, index): told for index in range(partitions)}
    brokers = tuple(elsewhere.harness.broker.view.brokers.values())
    assert elsewhere.controller.says(UpdateMetadata(states, {}, brokers, False)) == {}


def test_a_topic_that_is_deleted_needs_no_marker_but_one_that_a_broker_does_not_know_does(elsewhere: Elsewhere) -> None:
    elsewhere.tells("u", TWO, TWO)
    producer = elsewhere.begun()
    elsewhere.decided(producer, T1, name_of("u", 0), name_of("u", 1))
    for _ in range(3):
        elsewhere.answers(elsewhere.asked_alone(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elsewhere.passes()
    effect = elsewhere.asked_alone()
    assert len(names(effect)) == 3
    delete(elsewhere, "u", 2)
    elsewhere.answers(effect, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elsewhere.passes()
    effect = elsewhere.asked_alone()
    assert names(effect) == [T1]
    elsewhere.answers(effect)
    assert is_complete(producer)


def test_partitions_that_a_topic_made_anew_has_not_need_no_marker(elsewhere: Elsewhere) -> None:
    elsewhere.tells("u", TWO, TWO)
    producer = elsewhere.begun()
    elsewhere.decided(producer, name_of("u", 0), name_of("u", 1))
    elsewhere.answers(elsewhere.asked_alone(), LOST)
    delete(elsewhere, "u", 2)
    elsewhere.tells("u", THREE)
    elsewhere.passes()
    effect = elsewhere.asked_alone()
    assert names(effect) == [name_of("u", 0)]
    elsewhere.answers(effect, ErrorCode.NONE)
    assert is_complete(producer)


# Brokers that are gone.


def test_what_waits_for_a_broker_that_is_gone_is_asked_of_who_leads_now(elsewhere: Elsewhere) -> None:
    first, second = elsewhere.begun("first"), elsewhere.begun("second")
    elsewhere.decided(first, T1)
    in_flight = elsewhere.asked_alone()
    elsewhere.decided(second, T1)
    elsewhere.lives(US, THREE)
    elsewhere.tells("t", US, THREE, THREE, THREE)
    elsewhere.passes()
    elsewhere.passes()
    effect = elsewhere.asked_alone()
    assert effect.broker == THREE, "though the request before it has had no answer"
    assert [marker.producer.id for marker, _ in effect.markers] == [second.producer.id]
    elsewhere.answers(effect)
    assert is_complete(second)
    elsewhere.answers(in_flight, LOST)
    elsewhere.passes()
    elsewhere.answers(elsewhere.asked_alone())
    assert is_complete(first)


def test_nothing_is_asked_of_a_broker_that_went_before_it_was_asked(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begun()
    elsewhere.decided(producer, T1)
    elsewhere.lives(US, THREE)
    assert elsewhere.asked() == []
    elsewhere.lives(US, TWO, THREE)
    elsewhere.passes()
    elsewhere.answers(elsewhere.asked_alone())
    assert is_complete(producer)


# The coordinator moves.


def in_flight_as_the_coordinator_moves(elsewhere: Elsewhere) -> tuple[Transactional, WriteMarkers, WriteMarkers]:
    """A producer, what its first coordinator has asked, and what the next one asks."""
    producer = elsewhere.begun()
    elsewhere.decided(producer, T1)
    old = elsewhere.asked_alone()
    elsewhere.resigns()
    elsewhere.coordinates_again()
    assert elsewhere.asked() == [], "one request at a time"
    elsewhere.answers(old, LOST)
    return producer, old, elsewhere.asked_alone()


def test_the_next_coordinator_writes_all_markers_again_with_a_higher_epoch(elsewhere: Elsewhere) -> None:
    producer, old, new = in_flight_as_the_coordinator_moves(elsewhere)
    ((before, _),), ((after, _),) = old.markers, new.markers
    assert before._replace(coordinator_epoch=0) == after._replace(coordinator_epoch=0)
    assert after.coordinator_epoch > before.coordinator_epoch
    elsewhere.answers(new)
    assert is_complete(producer)


def test_an_answer_for_a_coordinator_that_is_none_any_more_does_nothing(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begun()
    elsewhere.decided(producer, T1)
    old = elsewhere.asked_alone()
    elsewhere.resigns()
    elsewhere.coordinates_again()
    elsewhere.answers(old)
    assert not is_complete(producer)
    new = elsewhere.asked_alone()
    elsewhere.answers(old)
    assert not is_complete(producer)
    elsewhere.answers(new)
    assert is_complete(producer)


def test_nothing_that_waits_for_a_shard_that_has_ended_is_sent(elsewhere: Elsewhere) -> None:
    waiting, failed, unled = (elsewhere.begun(name) for name in ("waiting", "failed", "unled"))
    elsewhere.tells("t", US, TWO, THREE, NO_BROKER)
    elsewhere.decided(failed, T2)
    elsewhere.answers(elsewhere.asked_alone(), LOST)
    elsewhere.decided(waiting, T1)
    elsewhere.decided(unled, T3)
    elsewhere.resigns()
    assert elsewhere.asked() == []
    elsewhere.tells("t", US, TWO, THREE, TWO)
    for _ in range(3):
        elsewhere.passes()
        assert elsewhere.asked() == []
    assert elsewhere.harness.broker.timers.next_due() is None, "nothing is left of it"


def test_what_waits_for_the_old_coordinator_does_not_take_the_place_of_the_next_ones(elsewhere: Elsewhere) -> None:
    first, second = elsewhere.begun("first"), elsewhere.begun("second")
    elsewhere.decided(first, T1)
    in_flight = elsewhere.asked_alone()
    elsewhere.decided(second, T1)
    before = elsewhere.harness.broker.transactions.states.find_transaction(second.id)[0].coordinator_epoch
    elsewhere.resigns()
    elsewhere.coordinates_again()
    elsewhere.answers(in_flight)
    effect = elsewhere.asked_alone()
    assert all(marker.coordinator_epoch > before for marker, _ in effect.markers)
    assert {marker.producer.id for marker, _ in effect.markers} == {first.producer.id, second.producer.id}
    elsewhere.answers(effect)
    assert is_complete(first)
    assert is_complete(second)


def test_a_shard_that_has_ended_marks_nothing_here(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begun()
    assert elsewhere.controller.leads("t", 0, leader=NO_BROKER, epoch=9) == {}
    elsewhere.decided(producer, T0)
    elsewhere.resigns()
    assert elsewhere.controller.leads("t", 0, epoch=10) == {}
    elsewhere.passes()
    assert elsewhere.harness.broker.partitions[T0].log.end_offset == 0


def test_a_shard_that_ends_before_its_last_marker_is_safe_completes_nothing(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begun()
    assert producer.write("t", b"a") == ErrorCode.NONE
    elsewhere.harness.send(producer.end_request(commit=True), EPOCHS)
    broker = elsewhere.harness.broker
    (sync,) = broker.take_effects()
    assert isinstance(sync, Sync)
    broker.on_event(sync.run(), elsewhere.harness.now)
    assert producer.state.state is TransactionState.PREPARE_COMMIT, "its marker is written and not synced"
    elsewhere.resigns()
    elsewhere.passes()
    assert broker.timers.next_due() is None


def test_the_next_coordinator_carries_out_no_decision_that_others_in_sync_lack(elsewhere: Elsewhere) -> None:
    """Were it gone before they have it, the transaction would be aborted in what it had not asked for yet."""
    producer = elsewhere.begun()
    elsewhere.touch(producer, T1)
    elsewhere.coordinates_again(TWO)
    elsewhere.harness.send(producer.end_request(commit=True), EPOCHS)
    elsewhere.resigns()
    elsewhere.coordinates_again(TWO)
    assert producer.state.state is TransactionState.PREPARE_COMMIT
    elsewhere.passes()
    assert elsewhere.asked() == []
    elsewhere.coordinates_again()
    assert names(elsewhere.asked_alone()) == [T1]


def test_a_producer_that_comes_anew_waits_for_the_markers_of_its_last_transaction(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begun()
    elsewhere.decided(producer, T1)
    request = InitProducerIdRequest(
        transactional_id=producer.id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    outcome = elsewhere.harness.send(request, 4)
    assert isinstance(outcome, Parked)
    elsewhere.answers(elsewhere.asked_alone())
    answer = elsewhere.harness.decoded(elsewhere.harness.finished(outcome), 4, InitProducerIdResponse)
    assert answer.error_code == ErrorCode.NONE
    assert answer.producer_epoch == producer.producer.epoch + 2


def test_who_waits_at_the_old_coordinator_is_not_answered_by_the_next_ones_decision(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begun()
    elsewhere.decided(producer, T1)
    old = elsewhere.asked_alone()
    shard, _ = elsewhere.harness.broker.transactions.states.find_transaction(producer.id)
    called: list[str] = []
    shard.after_completion(producer.id, Completion(lambda now: called.append("old"), lambda: called.append("lost")))
    elsewhere.resigns()
    assert called == ["lost"]
    elsewhere.coordinates_again()
    elsewhere.answers(old)
    elsewhere.answers(elsewhere.asked_alone())
    assert is_complete(producer)
    assert called == ["lost"]
