"""Session of a member: it ends once when it is not extended, and uses one timer for any number of extensions."""

from __future__ import annotations

from hypothesis import given
from hypothesis.strategies import integers, lists, tuples

from odradek.base.units import TimestampMs
from odradek.core.groups.shard.member_session import MemberSession
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Timers


def at(steady: int) -> Moment:
    return Moment(TimestampMs(0), steady)


def test_session_ends_unless_it_is_extended() -> None:
    timers, ended = Timers(), list[int]()
    session = MemberSession(timers, lambda now: ended.append(now.steady))
    session.extend(at(0), 10)
    timers.tick(at(9))
    session.extend(at(9), 10)
    timers.tick(at(10))
    timers.tick(at(18))
    assert ended == []
    timers.tick(at(19))
    timers.tick(at(100))
    assert ended == [19]


def test_session_can_be_shortened() -> None:
    timers, ended = Timers(), list[int]()
    session = MemberSession(timers, lambda now: ended.append(now.steady))
    session.extend(at(0), 1000)
    session.extend(at(0), 10)
    timers.tick(at(10))
    assert ended == [10] and len(timers) == 0


def test_session_can_restart() -> None:
    timers, ended = Timers(), list[int]()
    session = MemberSession(timers, lambda now: ended.append(now.steady))
    for _ in range(2):
        session.extend(at(0), 10)
        timers.tick(at(10))
    session.extend(at(10), 10)
    session.cancel()
    timers.tick(at(100))
    assert ended == [10, 10]


@given(lists(tuples(integers(0, 20), integers(1, 30)), max_size=30))
def test_session_ends_at_its_last_deadline(steps: list[tuple[int, int]]) -> None:
    timers, ended = Timers(), list[int]()
    session = MemberSession(timers, lambda now: ended.append(now.steady))
    now, deadline, expected = 0, None, list[int]()
    for passes, ms in steps:
        for _ in range(passes):
            now += 1
            if now == deadline:
                expected.append(now)
                deadline = None
            timers.tick(at(now))
        session.extend(at(now), ms)
        deadline = now + ms
        assert len(timers) == 1
    assert ended == expected
