"""Notifications of the controller about ISRs that leaders wrote: Kafka's rule, in any order of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.base.units import TimestampMs, TopicName, TopicPartition
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Timers
from odradek.core.partition.isr_notifications import CHECK_MS, DELAY_MS_MAX, LINGER_MS, IsrNotifications

PARTITIONS = [TopicPartition(TopicName("t"), index) for index in range(4)]
BEGIN = 1_000_000


def at(steady: int) -> Moment:
    return Moment(TimestampMs(0), steady)


class Story:
    """A record of sent notifications and their times; time passes in steps of 100 ms."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.now = BEGIN
        self.notifications = IsrNotifications(self.timers, at(self.now))
        self.sent: list[tuple[int, list[TopicPartition]]] = []

    def change(self, *partitions: TopicPartition) -> None:
        self.notifications.changed(partitions, at(self.now))

    def pass_time(self, ms: int) -> None:
        for _ in range(0, ms, 100):
            self.now += 100
            self.timers.tick(at(self.now))
            if self.notifications.are_due:
                self.sent.append((self.now - BEGIN, self.notifications.take_changed_partitions(at(self.now))))


def test_changes_are_collected_until_a_quiet_period() -> None:
    story = Story()
    story.pass_time(1000)
    story.change(PARTITIONS[0])
    story.pass_time(3000)
    story.change(PARTITIONS[1], PARTITIONS[0])
    story.pass_time(30_000)
    assert story.sent == [(10_000, PARTITIONS[:2])]
    assert story.timers.next_due() is None, "nobody looks while nothing changes"


def test_first_change_after_a_quiet_minute_is_sent_immediately() -> None:
    story = Story()
    story.pass_time(DELAY_MS_MAX + 1000)
    story.change(PARTITIONS[0])
    story.pass_time(CHECK_MS)
    assert story.sent == [(62_500, PARTITIONS[:1])]


def test_permanent_changes_are_sent_every_minute() -> None:
    story = Story()
    for _ in range(150):
        story.change(PARTITIONS[0])
        story.pass_time(1000)
    assert [when for when, _ in story.sent] == [62_500, 125_000]


def test_failed_notification_is_sent_at_the_next_check() -> None:
    story = Story()
    story.change(PARTITIONS[0])
    story.pass_time(7500)
    ((when, taken),) = story.sent
    story.change(PARTITIONS[1])
    story.notifications.put_back(taken, at(story.now))
    story.pass_time(CHECK_MS)
    assert story.sent[1:] == [(when + CHECK_MS, PARTITIONS[:2])]


STEPS = st.lists(
    st.one_of(st.sampled_from(PARTITIONS), st.integers(1, 200).map(lambda count: count * 100)), max_size=40
)


@given(STEPS)
def test_notifications_follow_kafkas_rule(steps: list[TopicPartition | int]) -> None:
    """Kafka checks at fixed times, with or without changes."""
    story, expected = Story(), []
    now = last_change = last_sent = BEGIN
    changed: dict[TopicPartition, None] = {}
    for step in steps:
        if isinstance(step, TopicPartition):
            story.change(step)
            changed[step] = None
            last_change = now
            continue
        story.pass_time(step)
        for _ in range(0, step, 100):
            now += 100
            is_due = last_change + LINGER_MS < now or last_sent + DELAY_MS_MAX < now
            if now % CHECK_MS == 0 and changed and is_due:
                expected.append((now - BEGIN, list(changed)))
                changed.clear()
                last_sent = now
    assert story.sent == expected
