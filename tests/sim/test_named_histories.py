"""Histories in which Apache Kafka once lost records or let logs part, and what became of replicas that were cut off.

Each is played as it was, step by step, by real brokers in one process, and each fails if its bug is put in; a delayed
EndTxn (KAFKA-17754) is among the scenarios (txn_delayed_end.txt), as it takes no other broker.
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
    anybody_is_elected,
    fetches_do_not_say_what_they_follow,
    leader_epochs_are_not_compared,
    logs_are_cut_at_the_high_watermark,
    logs_are_not_compared,
    snapshots_have_the_last_batch_alone,
    what_is_proposed_does_not_count,
    where_an_epoch_ends_is_told_alone,
    who_is_damaged_is_cut_at_once,
    who_is_damaged_leads_on,
)
from sim.simidempotent import ALL
from sim.simreplicaclients import LEADER
from sim.simstory import AGES, MOMENT, NEWEST, PARTITION, TOPIC, Story
from sim.test_controller_histories import a_sessions_end_is_overlooked, an_epoch_is_not_compared
from support.asides import stored_offsets

CHECKSUM = 17  # Where a batch has it.
WITHOUT_EPOCHS_IN_FETCH = "2.6"  # A follower asks where logs part when it begins to follow, and never again.


def test_kip_101_what_is_acknowledged_is_not_cut_before_an_election() -> None:
    """A follower has a record, and has not heard that it is committed; it follows anew, and leads before it fetches.

    What makes it follow anew is that another follower is gone; its own restart takes it out of the ISR first.
    """
    story = Story(0, 1, 2, controller=1)
    story.written()
    before = story.end(1)
    outcome = story.write()
    story.wait_for(lambda: story.end(1) > before)
    story.cut(0, 1)  # It still asks for what follows, by which its leader knows that it has the record.
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


def test_kip_101_logs_do_not_part_where_a_leader_had_more_than_its_follower() -> None:
    """A leader has a record that its follower lacks, and dies; the follower leads, and writes another in its place.

    By offsets alone the logs looked alike when the first one came back.
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


def test_kip_279_logs_do_not_part_over_two_fast_changes_of_leaders() -> None:
    """The second leader has written in an epoch that the third knows nothing of, where that one has the first one's.

    Up to where the epoch before that ended at the third, the second's log looked like its own.
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


def test_kip_497_what_is_proposed_counts_before_it_is_known_to_be_written() -> None:
    """A follower is in the ISR, and its leader has not heard that the controller took it in; it falls behind anew.

    As long as the leader can't know, nothing is committed without it: it may be elected.
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
    story.until(story.write())  # Nobody may be told that it stays.
    assert set(story.state.isr) == {0, 1}
    story.member(0).kill()
    story.join()
    story.cluster.run(AGES)
    assert story.leader == 1
    story.member(0).start()
    story.ends()


def a_follower_missed_two_leaders(protocol: str) -> None:
    """A follower has a record that none of the others has any more, and does not know that its leader led twice.

    In between another one led, who had written something else in that place.
    """
    story = Story(0, 1, 2, protocol=protocol, controller=1)
    story.written()
    story.cut(0, 1)
    story.cut(1, 2)  # It hears nothing of the controller.
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
def test_kip_320_who_follows_in_an_older_epoch_does_not_count(protocol: str) -> None:
    a_follower_missed_two_leaders(protocol)


def test_kip_595_a_fetch_says_by_itself_what_it_goes_on_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since Fetch 12 a leader that does not compare leader epochs lets nothing wrong count.

    Each fetch names the epoch of the record before it, an epoch has one leader, and so a log that has the same epoch up
    to the same offset is the same up to there, whatever epoch its follower believes in.  What a follower had when it
    asked it may have lost since only if its leader then lacked it, whom the one that counts it has followed, or with
    its power, after which it is another process, that the controller tells apart (KIP-903).  With either guard the
    history above ends well, without both it does not.
    """
    with monkeypatch.context() as patch:
        leader_epochs_are_not_compared(patch)
        a_follower_missed_two_leaders(NEWEST)
    with monkeypatch.context() as patch:
        fetches_do_not_say_what_they_follow(patch)
        a_follower_missed_two_leaders(NEWEST)
    leader_epochs_are_not_compared(monkeypatch)
    fetches_do_not_say_what_they_follow(monkeypatch)
    with pytest.raises(AssertionError):
        a_follower_missed_two_leaders(NEWEST)


def test_a_leader_that_has_come_back_knows_what_is_sent_again() -> None:
    """A producer with five batches in flight has no answer; its leader stops as planned, comes back and leads again.

    From a snapshot with the last batch alone four of them were out of order, which is the end of librdkafka's producer.
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
    """A controller stands still with a topic to make, and another one is elected; it goes on before that one makes it.

    Its session is still there: only the epoch in which it was elected is over.
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
    zombie.node.go_on()
    story.cluster.run(MOMENT)
    assert story.cluster.state("topic-1", 0) is None
    active.node.go_on()
    story.cluster.run(AGES)
    assert story.cluster.controllers == [active]
    story.ends()


def test_a_controller_whose_session_is_over_changes_nothing() -> None:
    """A controller stands still with a topic to make; another one makes it, and has other leaders, when it goes on."""
    story = Story(0, 1, 2)
    (zombie,) = story.cluster.controllers
    story.cluster.create_topic("topic-1", [[0, 1, 2]])
    story.wait_for(lambda: zombie.steps is not None)
    zombie.node.pause()
    story.cluster.run(AGES)
    (active,) = [one for one in story.cluster.controllers if one is not zombie]
    story.written()
    before = story.state
    zombie.node.go_on()
    story.cluster.run(AGES)
    assert story.cluster.controllers == [active]
    assert story.leader == before.leader
    story.ends()


def test_the_isr_shrinks_to_the_broken_one_and_acknowledges_nothing() -> None:
    """A leader whose network fails but for its way to the tree has everybody leave the ISR, and then it dies.

    Nobody is elected in its place, who might lack what it has.
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
    """Flip bits of one batch, which the broker comes upon."""
    member = story.member(broker)
    log = member.broker.partitions[PARTITION].log
    place = log.active.find_batch(Offset(offset))
    assert place is not None
    member.disk.open(log.active.path).write(place.position + CHECKSUM, b"\0\0\0\1")
    log.note_damage(LogDamaged(log.active.path, place.position, "its checksum is wrong"))


def damaged_story(*damaged: int) -> Story:
    """Some replicas are damaged, each at a place of its own, while the others are whole."""
    story = Story(0, 1, 2)
    for _ in range(6):
        story.written()
    story.cluster.run(MOMENT)
    for number in damaged:
        damage(story, number, 1 + 2 * number)
    return story


@pytest.mark.parametrize("controller", [0, 1])
def test_a_damaged_leader_has_a_whole_replica_lead(controller: int) -> None:
    """It leaves the ISR, is truncated to its damage and fetches the rest again; it may be the controller, too."""
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


def a_damaged_leader_leads_no_more() -> None:
    test_a_damaged_leader_has_a_whole_replica_lead(1)


def test_a_damaged_follower_fetches_again() -> None:
    story = damaged_story(1)
    story.wait_for(lambda: set(story.state.isr) == {0, 2})
    story.wait_for(lambda: set(story.state.isr) == {0, 1, 2})
    assert story.leader == 0
    story.ends()


def test_two_damaged_replicas_are_mended_by_the_third() -> None:
    story = damaged_story(0, 1)
    story.wait_for(lambda: set(story.state.isr) == {2})
    story.wait_for(lambda: set(story.state.isr) == {0, 1, 2})
    story.ends()


@pytest.mark.parametrize(("places", "is_mended"), [((2, 4), True), ((4, 2), False)])
def test_two_replicas_damaged_at_different_places_lose_nothing(places: tuple[int, int], is_mended: bool) -> None:
    """A part that one replica sets aside may be the only copy of records that the other one lacks.

    Broker 1 is cut first.  If its damage is behind the other one's, both are mended; else it can't get past that.
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


def who_follows_in_an_older_epoch_counted() -> None:
    a_follower_missed_two_leaders(WITHOUT_EPOCHS_IN_FETCH)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("history", "bug"),
    [
        (test_kip_101_what_is_acknowledged_is_not_cut_before_an_election, logs_are_cut_at_the_high_watermark),
        (test_kip_101_logs_do_not_part_where_a_leader_had_more_than_its_follower, logs_are_not_compared),
        (test_kip_279_logs_do_not_part_over_two_fast_changes_of_leaders, where_an_epoch_ends_is_told_alone),
        (test_kip_497_what_is_proposed_counts_before_it_is_known_to_be_written, what_is_proposed_does_not_count),
        (who_follows_in_an_older_epoch_counted, leader_epochs_are_not_compared),
        (test_a_leader_that_has_come_back_knows_what_is_sent_again, snapshots_have_the_last_batch_alone),
        (test_a_zombie_controller_changes_nothing, an_epoch_is_not_compared),
        (test_a_controller_whose_session_is_over_changes_nothing, a_sessions_end_is_overlooked),
        (test_the_isr_shrinks_to_the_broken_one_and_acknowledges_nothing, anybody_is_elected),
        (a_damaged_leader_leads_no_more, who_is_damaged_leads_on),
        (a_damaged_leader_leads_no_more, who_is_damaged_is_cut_at_once),
    ],
)
def test_a_history_fails_with_its_bug(history: Callable[[], None], bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        history()
