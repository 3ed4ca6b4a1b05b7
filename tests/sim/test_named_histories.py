"""Known histories in which Apache Kafka lost records or let logs diverge, or in which replicas were isolated.

Real brokers in one process play each step by step, and each fails with its bug injected. A delayed EndTxn (KAFKA-17754)
is among the scenarios (txn_delayed_end.txt), as it needs no other broker.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, BrokerId, Offset, ProducerEpoch, ProducerId
from odradek.log.files.disk_failures import LogDamaged
from odradek.record.builder import encode_batch
from sim.bugs import (
    Bug,
    damaged_leader_does_not_resign,
    damaged_replica_is_truncated_at_once,
    elections_are_always_unclean,
    epoch_end_lacks_its_epoch,
    fetches_lack_last_fetched_epoch,
    leader_epochs_are_not_compared,
    logs_are_cut_at_the_high_watermark,
    logs_are_not_compared,
    proposed_isr_is_ignored,
    snapshots_keep_only_the_last_batch,
)
from sim.simidempotent import ALL
from sim.simreplicaclients import LEADER
from sim.simstory import AGES, MOMENT, NEWEST, PARTITION, TOPIC, Story
from sim.test_controller_histories import a_sessions_end_is_overlooked, an_epoch_is_not_compared
from support.stray_files import stored_offsets

CHECKSUM = 17  # Its position in a batch.
WITHOUT_EPOCHS_IN_FETCH = "2.6"  # A follower asks where logs diverge when it begins to follow, and never again.


def test_kip_101_acknowledged_records_survive_a_following_and_election() -> None:
    """A follower has a record, without knowing that it is committed; it follows anew, and leads before it fetches.

    It follows anew because another follower is lost; its own restart would first remove it from the ISR.
    """
    story = Story(0, 1, 2, controller=1)
    story.written()
    before = story.end(1)
    outcome = story.write()
    story.wait_for(lambda: story.end(1) > before)
    story.cut(0, 1)  # Its next fetch shows its leader that it has the record.
    assert story.until(outcome) is ErrorCode.NONE
    assert story.high_watermark(1) < story.end(1)
    assert story.state.isr == (0, 1, 2)
    epoch = story.state.leader_epoch
    story.cut(0, 2)
    story.member(2).tree.expire()
    story.wait_for(lambda: story.member(1).states[PARTITION].state.leader_epoch > epoch)
    assert story.state.isr == (0, 1)
    story.member(0).kill()
    story.cluster.run(AGES)
    assert story.leader == 1
    story.join()
    story.member(0).start()
    story.ends()


def test_kip_101_logs_do_not_diverge_after_a_leader_was_ahead() -> None:
    """A leader has a record that its follower lacks, and dies; the follower leads, and writes another in its place.

    Compared by offsets alone, the logs looked equal when the first leader returned.
    """
    story = Story(0, 1)
    story.written()
    story.cut(0, 1)
    story.written(acks=LEADER)
    story.member(0).kill()
    story.join()
    story.cluster.run(AGES)
    assert story.leader == 1
    story.written()
    story.member(0).start()
    story.ends()


def test_kip_279_logs_do_not_diverge_over_two_fast_leader_changes() -> None:
    """The second leader writes in an epoch unknown to the third, which has records of the first leader in that place.

    Up to the end of the epoch before it at the third, the second leader's log looked like its own.
    """
    story = Story(0, 1, 2, controller=1)
    story.written()
    story.cut(0, 1)
    story.cut(1, 2)
    for _ in range(4):
        story.written(acks=LEADER)
    story.wait_for(lambda: story.end(2) == story.end(0) > story.end(1))
    story.member(0).kill()
    story.wait_for(lambda: story.leads(1))
    story.written(acks=LEADER)
    story.member(1).kill()
    story.wait_for(lambda: story.leads(2))
    assert story.end(1) < story.end(2)
    story.written(acks=LEADER)
    story.join()
    story.cluster.run(AGES)
    story.member(0).start()
    story.member(1).start()
    story.ends()


def test_kip_497_a_proposed_isr_counts_before_its_confirmation() -> None:
    """A follower is in the ISR, and its leader does not know that the controller added it; it falls behind again.

    Until the leader knows, nothing may be committed without the follower: it may be elected.
    """
    story = Story(0, 1, controller=2)
    story.written()
    story.part(0, 1)
    story.written(acks=LEADER)
    story.wait_for(lambda: story.state.isr == (0,))
    story.written()
    story.join()
    story.cut(2, 0)
    story.wait_for(lambda: set(story.state.isr) == {0, 1})
    story.part(0, 1)
    story.cluster.run(AGES)
    story.until(story.write())  # No broker may learn that it stays.
    assert set(story.state.isr) == {0, 1}
    story.member(0).kill()
    story.join()
    story.cluster.run(AGES)
    assert story.leader == 1
    story.member(0).start()
    story.ends()


def follower_missed_two_leaders(protocol: str) -> None:
    """Play a follower with a record that all others lack, and that does not know that its leader led twice.

    In between another broker led, and wrote a different record in that place.
    """
    story = Story(0, 1, 2, protocol=protocol, controller=1)
    story.written()
    story.cut(0, 1)
    story.cut(1, 2)  # It receives nothing from the controller.
    story.written(acks=LEADER)
    story.wait_for(lambda: story.end(2) == story.end(0) > story.end(1))
    story.member(0).tree.expire()
    story.wait_for(lambda: story.leads(1))
    story.cluster.lines.cuts.remove((BrokerId(0), BrokerId(1)))
    story.wait_for(lambda: set(story.state.isr) == {0, 1})
    while story.end(1) < story.end(2):
        story.written()
    story.cluster.prefer(PARTITION)
    story.wait_for(lambda: story.leads(0))
    story.written()
    story.cluster.run(AGES)
    story.member(0).kill()
    story.member(1).kill()
    story.join()
    story.cluster.run(AGES)
    story.member(0).start()
    story.member(1).start()
    story.cluster.run(AGES)
    story.ends()


@pytest.mark.parametrize("protocol", [NEWEST, WITHOUT_EPOCHS_IN_FETCH])
def test_kip_320_a_follower_in_an_older_epoch_does_not_count(protocol: str) -> None:
    follower_missed_two_leaders(protocol)


def test_kip_595_a_fetch_names_the_epoch_of_the_record_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since Fetch 12 a leader that does not compare leader epochs is still safe.

    Each fetch names the epoch of the record before it, and an epoch has one leader. So a log with the same epoch up to
    the same offset is the same up to there, whatever epoch its follower believes in. A follower can have lost its
    records since the fetch in two ways only: its leader lacked them, whom the counting leader has followed; or a power
    failure, after which it is another process for the controller (KIP-903). With either guard the history above ends
    well, and without both it does not.
    """
    with monkeypatch.context() as patch:
        leader_epochs_are_not_compared(patch)
        follower_missed_two_leaders(NEWEST)
    with monkeypatch.context() as patch:
        fetches_lack_last_fetched_epoch(patch)
        follower_missed_two_leaders(NEWEST)
    leader_epochs_are_not_compared(monkeypatch)
    fetches_lack_last_fetched_epoch(monkeypatch)
    with pytest.raises(AssertionError):
        follower_missed_two_leaders(NEWEST)


def test_a_returning_leader_recognizes_retried_batches() -> None:
    """A producer with five batches in flight has no response; its leader stops as planned, returns and leads again.

    From a snapshot with only the last batch, four of them were out of order, which is fatal to librdkafka's producer.
    """
    story = Story(0, 1, 2)
    topic_id = story.cluster.assignment(TOPIC).topic_id
    for _ in range(2):
        for sequence in range(5):
            outcome: list[ErrorCode | None] = []
            records = encode_batch(
                [(None, b"%d" % sequence, (), story.clients.time())],
                producer_id=ProducerId(1000),
                producer_epoch=ProducerEpoch(0),
                base_sequence=sequence,
            )
            story.clients.send(topic_id, PARTITION, [b"%d" % sequence], records, ALL, outcome.append)
            assert story.until(outcome) is ErrorCode.NONE
        story.cluster.shut_down(BrokerId(0))
        story.member(0).stop()
        story.member(0).start()
        story.cluster.run(AGES)
        story.cluster.prefer(PARTITION)
        story.cluster.run(AGES)
        assert story.leader == 0
    assert [*story.member(0).contents(PARTITION).values()] == [b"%d" % sequence for sequence in range(5)]
    story.ends()


def test_a_zombie_controller_changes_nothing() -> None:
    """A paused controller has a topic to create; another one is elected, and the first resumes before it creates it.

    Its session is still alive: only the epoch of its election is over.
    """
    story = Story(0, 1, 2)
    (zombie,) = story.cluster.controllers
    story.cluster.create_topic("topic-1", [[0, 1, 2]])
    story.wait_for(lambda: zombie.steps is not None)
    zombie.node.pause()
    story.cluster.depose()
    story.wait_for(lambda: len(story.cluster.controllers) > 1)
    (active,) = [one for one in story.cluster.controllers if one is not zombie]
    active.node.pause()
    zombie.node.resume()
    story.cluster.run(MOMENT)
    assert story.cluster.state("topic-1", 0) is None
    active.node.resume()
    story.cluster.run(AGES)
    assert story.cluster.controllers == [active]
    story.ends()


def test_a_controller_with_an_ended_session_changes_nothing() -> None:
    """A paused controller has a topic to create; another creates it, and elects other leaders, before it resumes."""
    story = Story(0, 1, 2)
    (zombie,) = story.cluster.controllers
    story.cluster.create_topic("topic-1", [[0, 1, 2]])
    story.wait_for(lambda: zombie.steps is not None)
    zombie.node.pause()
    story.cluster.run(AGES)
    (active,) = [one for one in story.cluster.controllers if one is not zombie]
    story.written()
    before = story.state
    zombie.node.resume()
    story.cluster.run(AGES)
    assert story.cluster.controllers == [active]
    assert story.leader == before.leader
    story.ends()


def test_an_isr_shrunk_to_an_isolated_leader_acknowledges_nothing() -> None:
    """A leader that reaches only the tree removes all others from the ISR, and then it dies.

    No other broker is elected in its place, as it might lack records.
    """
    story = Story(0, 1, 2, min_isr=2)
    story.written()
    story.part(0, 1, 2)
    refused = story.write()
    story.cluster.run(AGES)
    assert story.state.isr == (0,)
    assert refused[0] is not ErrorCode.NONE
    assert story.until(story.write()) is ErrorCode.NOT_ENOUGH_REPLICAS
    story.member(0).kill()
    story.join()
    story.cluster.run(AGES)
    assert story.leader == NO_BROKER
    story.member(0).start()
    story.cluster.run(AGES)
    story.written()
    story.ends()


def damage(story: Story, broker: int, offset: int) -> None:
    """Flip bits of one batch, which the broker then finds."""
    member = story.member(broker)
    log = member.broker.partitions[PARTITION].log
    place = log.active.find_batch(Offset(offset))
    assert place is not None
    member.disk.open(log.active.path).write(place.position + CHECKSUM, b"\0\0\0\1")
    log.note_damage(LogDamaged(log.active.path, place.position, "its checksum is wrong"))


def damaged_story(*damaged: int) -> Story:
    """Play a story in which some replicas are damaged, each at a different place, and the others are not."""
    story = Story(0, 1, 2)
    for _ in range(6):
        story.written()
    story.cluster.run(MOMENT)
    for number in damaged:
        damage(story, number, 1 + 2 * number)
    return story


@pytest.mark.parametrize("controller", [0, 1])
def test_an_undamaged_replica_replaces_a_damaged_leader(controller: int) -> None:
    """The leader leaves the ISR, truncates at its damage and fetches the rest again; it may be the controller, too."""
    story = Story(0, 1, 2, controller=controller)
    for _ in range(6):
        story.written()
    story.cluster.run(MOMENT)
    damage(story, 0, 2)
    story.wait_for(lambda: story.leader in {1, 2} and 0 not in story.state.isr)
    story.written()
    story.wait_for(lambda: set(story.state.isr) == {0, 1, 2})
    story.ends()
    assert not story.member(0).broker.partitions[PARTITION].log.damaged_places


def damaged_leader_resigns() -> None:
    test_an_undamaged_replica_replaces_a_damaged_leader(1)


def test_a_damaged_follower_fetches_again() -> None:
    story = damaged_story(1)
    story.wait_for(lambda: set(story.state.isr) == {0, 2})
    story.wait_for(lambda: set(story.state.isr) == {0, 1, 2})
    assert story.leader == 0
    story.ends()


def test_two_damaged_replicas_are_repaired_from_the_third() -> None:
    story = damaged_story(0, 1)
    story.wait_for(lambda: set(story.state.isr) == {2})
    story.wait_for(lambda: set(story.state.isr) == {0, 1, 2})
    story.ends()


@pytest.mark.parametrize(("places", "is_mended"), [((2, 4), True), ((4, 2), False)])
def test_two_replicas_damaged_at_different_places_lose_nothing(places: tuple[int, int], is_mended: bool) -> None:
    """The part that one replica sets aside may be the only copy of records that the other one lacks.

    Broker 1 truncates first. If its damage is behind the other's, both are repaired; otherwise it cannot get past that.
    """
    story = Story(0, 1)
    for _ in range(6):
        story.written()
    story.cluster.run(MOMENT)
    for number, place in enumerate(places):
        damage(story, number, place)
    story.wait_for(lambda: len(story.state.isr) == 1)
    story.cluster.run(3 * AGES)
    assert any(stored(story, 1)[1]), "it has set something aside"
    kept = {offset for number in (0, 1) for some in stored(story, number) for offset in some}
    assert kept >= {*range(6)}
    if is_mended:
        assert set(story.state.isr) == {0, 1}
        assert all(stored(story, number)[0] == [*range(6)] for number in (0, 1))
        story.ends()


def stored(story: Story, broker: int) -> tuple[list[int], list[int]]:
    """Return the offsets that a broker has in its log, and set aside."""
    return stored_offsets(story.member(broker).disk, f"/data/{PARTITION}")


def test_the_only_replica_is_damaged_and_serves_the_rest() -> None:
    story = Story(0)
    for _ in range(6):
        story.written()
    damage(story, 0, 2)
    story.cluster.run(AGES)
    assert (story.leader, story.end(0)) == (0, 6)
    story.written()


def follower_missed_two_leaders_without_epochs() -> None:
    follower_missed_two_leaders(WITHOUT_EPOCHS_IN_FETCH)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("history", "bug"),
    [
        (test_kip_101_acknowledged_records_survive_a_following_and_election, logs_are_cut_at_the_high_watermark),
        (test_kip_101_logs_do_not_diverge_after_a_leader_was_ahead, logs_are_not_compared),
        (test_kip_279_logs_do_not_diverge_over_two_fast_leader_changes, epoch_end_lacks_its_epoch),
        (test_kip_497_a_proposed_isr_counts_before_its_confirmation, proposed_isr_is_ignored),
        (follower_missed_two_leaders_without_epochs, leader_epochs_are_not_compared),
        (test_a_returning_leader_recognizes_retried_batches, snapshots_keep_only_the_last_batch),
        (test_a_zombie_controller_changes_nothing, an_epoch_is_not_compared),
        (test_a_controller_with_an_ended_session_changes_nothing, a_sessions_end_is_overlooked),
        (test_an_isr_shrunk_to_an_isolated_leader_acknowledges_nothing, elections_are_always_unclean),
        (damaged_leader_resigns, damaged_leader_does_not_resign),
        (damaged_leader_resigns, damaged_replica_is_truncated_at_once),
    ],
)
def test_a_named_history_fails_with_its_bug(
    history: Callable[[], None], bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        history()
