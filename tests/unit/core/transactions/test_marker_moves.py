"""Markers for partitions on other brokers, while leaders, brokers, topics and the coordinator change."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, LeaderEpoch
from odradek.core.controller.broker_request_batch import LEADER_DURING_DELETE, PartitionMetadata, UpdateMetadata
from odradek.core.disks.flushes import Sync
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.transactions.transaction_markers import WriteMarkers
from odradek.core.transactions.transaction_shard import Completion
from odradek.core.transactions.transaction_states import TransactionState
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.controlling import name_of
from support.in_memory import US
from support.remote_partitions import LOST, THREE, TWO, Elsewhere, first_of_four_here, is_complete, names
from support.transactional import EPOCHS, Transactional, committed

T0, T1, T2, T3 = (name_of("t", index) for index in range(4))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    return first_of_four_here(tmp_path)


# Unknown leaders and deleted topics.


@pytest.mark.parametrize("is_down", [True, False])
def test_partition_without_a_leader_does_not_delay_others(elsewhere: Elsewhere, is_down: bool) -> None:
    if is_down:  # Its broker is dead, and the controller has not updated its partitions yet.
        elsewhere.set_live_brokers(US, TWO)
    else:
        elsewhere.update_metadata("t", US, TWO, NO_BROKER, TWO)
    producer = elsewhere.begin_producer()
    assert producer.write("t", b"a") == ErrorCode.NONE
    elsewhere.send_end(producer, T0, T1, T2)
    elsewhere.respond(elsewhere.take_only_request())
    assert committed(elsewhere.harness, "t") == [b"a"]
    for _ in range(3):
        elsewhere.pass_time()
        assert elsewhere.take_requests() == []
    assert not is_complete(producer)
    elsewhere.update_metadata("t", US, TWO, TWO, TWO)
    elsewhere.pass_time()
    effect = elsewhere.take_only_request()
    assert names(effect) == [T2]
    elsewhere.respond(effect)
    assert is_complete(producer)


def test_partition_moved_to_this_broker_is_marked_locally(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1)
    elsewhere.respond(elsewhere.take_only_request(), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert elsewhere.controller.send_leader_and_isr("t", 1, epoch=9, is_new=True) == {}
    elsewhere.update_metadata("t", US, US, THREE, TWO)
    elsewhere.pass_time()
    assert elsewhere.take_requests() == []
    assert is_complete(producer)


def test_partition_moved_to_another_broker_is_marked_there(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    assert elsewhere.controller.send_leader_and_isr("t", 0, leader=NO_BROKER, epoch=9) == {}
    elsewhere.send_end(producer, T0)  # The view still has this broker as the leader.
    assert not is_complete(producer)
    elsewhere.update_metadata("t", TWO, TWO, THREE, TWO)
    elsewhere.pass_time()
    assert names(elsewhere.take_only_request()) == [T0]


def delete(elsewhere: Elsewhere, topic: str, partitions: int) -> None:
    metadata = PartitionMetadata(LeaderAndIsr(LEADER_DURING_DELETE, LeaderEpoch(0), (), controller_epoch=1), (TWO,), ())
    states = {name_of(topic, index): metadata for index in range(partitions)}
    brokers = tuple(elsewhere.harness.broker.view.brokers.values())
    assert elsewhere.controller.send(UpdateMetadata(states, {}, brokers, False)) == {}


def test_deleted_topic_needs_no_marker_but_an_unknown_one_does(elsewhere: Elsewhere) -> None:
    elsewhere.update_metadata("u", TWO, TWO)
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1, name_of("u", 0), name_of("u", 1))
    for _ in range(3):
        elsewhere.respond(elsewhere.take_only_request(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elsewhere.pass_time()
    effect = elsewhere.take_only_request()
    assert len(names(effect)) == 3
    delete(elsewhere, "u", 2)
    elsewhere.respond(effect, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elsewhere.pass_time()
    effect = elsewhere.take_only_request()
    assert names(effect) == [T1]
    elsewhere.respond(effect)
    assert is_complete(producer)


def test_partitions_missing_in_a_recreated_topic_need_no_marker(elsewhere: Elsewhere) -> None:
    elsewhere.update_metadata("u", TWO, TWO)
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, name_of("u", 0), name_of("u", 1))
    elsewhere.respond(elsewhere.take_only_request(), LOST)
    delete(elsewhere, "u", 2)
    elsewhere.update_metadata("u", THREE)
    elsewhere.pass_time()
    effect = elsewhere.take_only_request()
    assert names(effect) == [name_of("u", 0)]
    elsewhere.respond(effect, ErrorCode.NONE)
    assert is_complete(producer)


# Dead brokers.


def test_markers_queued_for_a_dead_broker_go_to_the_new_leader(elsewhere: Elsewhere) -> None:
    first, second = elsewhere.begin_producer("first"), elsewhere.begin_producer("second")
    elsewhere.send_end(first, T1)
    in_flight = elsewhere.take_only_request()
    elsewhere.send_end(second, T1)
    elsewhere.set_live_brokers(US, THREE)
    elsewhere.update_metadata("t", US, THREE, THREE, THREE)
    elsewhere.pass_time()
    elsewhere.pass_time()
    effect = elsewhere.take_only_request()
    assert effect.broker == THREE, "though the request before it has had no answer"
    assert [marker.producer.id for marker, _ in effect.markers] == [second.producer.id]
    elsewhere.respond(effect)
    assert is_complete(second)
    elsewhere.respond(in_flight, LOST)
    elsewhere.pass_time()
    elsewhere.respond(elsewhere.take_only_request())
    assert is_complete(first)


def test_dead_broker_gets_no_markers_until_it_returns(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1)
    elsewhere.set_live_brokers(US, THREE)
    assert elsewhere.take_requests() == []
    elsewhere.set_live_brokers(US, TWO, THREE)
    elsewhere.pass_time()
    elsewhere.respond(elsewhere.take_only_request())
    assert is_complete(producer)


# The coordinator moves.


def in_flight_as_the_coordinator_moves(elsewhere: Elsewhere) -> tuple[Transactional, WriteMarkers, WriteMarkers]:
    """Return a producer, the request of its first coordinator, and the request of the next one."""
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1)
    old = elsewhere.take_only_request()
    elsewhere.resign()
    elsewhere.coordinate_again()
    assert elsewhere.take_requests() == [], "one request at a time"
    elsewhere.respond(old, LOST)
    return producer, old, elsewhere.take_only_request()


def test_next_coordinator_resends_all_markers_with_a_higher_epoch(elsewhere: Elsewhere) -> None:
    producer, old, new = in_flight_as_the_coordinator_moves(elsewhere)
    ((before, _),), ((after, _),) = old.markers, new.markers
    assert before._replace(coordinator_epoch=0) == after._replace(coordinator_epoch=0)
    assert after.coordinator_epoch > before.coordinator_epoch
    elsewhere.respond(new)
    assert is_complete(producer)


def test_response_to_a_former_coordinator_does_nothing(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1)
    old = elsewhere.take_only_request()
    elsewhere.resign()
    elsewhere.coordinate_again()
    elsewhere.respond(old)
    assert not is_complete(producer)
    new = elsewhere.take_only_request()
    elsewhere.respond(old)
    assert not is_complete(producer)
    elsewhere.respond(new)
    assert is_complete(producer)


def test_markers_queued_for_a_resigned_shard_are_not_sent(elsewhere: Elsewhere) -> None:
    waiting, failed, unled = (elsewhere.begin_producer(name) for name in ("waiting", "failed", "unled"))
    elsewhere.update_metadata("t", US, TWO, THREE, NO_BROKER)
    elsewhere.send_end(failed, T2)
    elsewhere.respond(elsewhere.take_only_request(), LOST)
    elsewhere.send_end(waiting, T1)
    elsewhere.send_end(unled, T3)
    elsewhere.resign()
    assert elsewhere.take_requests() == []
    elsewhere.update_metadata("t", US, TWO, THREE, TWO)
    for _ in range(3):
        elsewhere.pass_time()
        assert elsewhere.take_requests() == []
    assert elsewhere.harness.broker.timers.next_due() is None, "nothing is left of it"


def test_markers_of_the_old_coordinator_do_not_replace_new_ones(elsewhere: Elsewhere) -> None:
    first, second = elsewhere.begin_producer("first"), elsewhere.begin_producer("second")
    elsewhere.send_end(first, T1)
    in_flight = elsewhere.take_only_request()
    elsewhere.send_end(second, T1)
    before = elsewhere.harness.broker.transactions.states.find_transaction(second.id)[0].coordinator_epoch
    elsewhere.resign()
    elsewhere.coordinate_again()
    elsewhere.respond(in_flight)
    effect = elsewhere.take_only_request()
    assert all(marker.coordinator_epoch > before for marker, _ in effect.markers)
    assert {marker.producer.id for marker, _ in effect.markers} == {first.producer.id, second.producer.id}
    elsewhere.respond(effect)
    assert is_complete(first)
    assert is_complete(second)


def test_resigned_shard_writes_no_local_markers(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    assert elsewhere.controller.send_leader_and_isr("t", 0, leader=NO_BROKER, epoch=9) == {}
    elsewhere.send_end(producer, T0)
    elsewhere.resign()
    assert elsewhere.controller.send_leader_and_isr("t", 0, epoch=10) == {}
    elsewhere.pass_time()
    assert elsewhere.harness.broker.partitions[T0].log.end_offset == 0


def test_shard_resigned_before_its_last_marker_sync_completes_nothing(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    assert producer.write("t", b"a") == ErrorCode.NONE
    elsewhere.harness.send(producer.end_request(commit=True), EPOCHS)
    broker = elsewhere.harness.broker
    (sync,) = broker.take_effects()
    assert isinstance(sync, Sync)
    broker.on_event(sync.run(), elsewhere.harness.now)
    assert producer.state.state is TransactionState.PREPARE_COMMIT, "its marker is written and not synced"
    elsewhere.resign()
    elsewhere.pass_time()
    assert broker.timers.next_due() is None


def test_next_coordinator_waits_until_the_isr_has_the_decision(elsewhere: Elsewhere) -> None:
    """If it died before, its successor would abort the partitions without a marker request."""
    producer = elsewhere.begin_producer()
    elsewhere.add_partitions(producer, T1)
    elsewhere.coordinate_again(TWO)
    elsewhere.harness.send(producer.end_request(commit=True), EPOCHS)
    elsewhere.resign()
    elsewhere.coordinate_again(TWO)
    assert producer.state.state is TransactionState.PREPARE_COMMIT
    elsewhere.pass_time()
    assert elsewhere.take_requests() == []
    elsewhere.coordinate_again()
    assert names(elsewhere.take_only_request()) == [T1]


def test_restarted_producer_waits_for_markers_of_its_last_transaction(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1)
    request = InitProducerIdRequest(
        transactional_id=producer.id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    outcome = elsewhere.harness.send(request, 4)
    assert isinstance(outcome, ParkedRequest)
    elsewhere.respond(elsewhere.take_only_request())
    answer = elsewhere.harness.decoded(elsewhere.harness.finished(outcome), 4, InitProducerIdResponse)
    assert answer.error_code == ErrorCode.NONE
    assert answer.producer_epoch == producer.producer.epoch + 2


def test_completions_at_the_old_coordinator_are_not_called_by_the_next(elsewhere: Elsewhere) -> None:
    producer = elsewhere.begin_producer()
    elsewhere.send_end(producer, T1)
    old = elsewhere.take_only_request()
    shard, _ = elsewhere.harness.broker.transactions.states.find_transaction(producer.id)
    called: list[str] = []
    shard.after_completion(producer.id, Completion(lambda now: called.append("old"), lambda: called.append("lost")))
    elsewhere.resign()
    assert called == ["lost"]
    elsewhere.coordinate_again()
    elsewhere.respond(old)
    elsewhere.respond(elsewhere.take_only_request())
    assert is_complete(producer)
    assert called == ["lost"]
