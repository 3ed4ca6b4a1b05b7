"""Answers to the members of a group, in portions.

A thousand answers in one turn would delay all other requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from odradek.core.groups.classic.members import Member
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Timer, Timers

MEMBERS_PER_TURN = 100  # 1 ms, and sending their answers takes 5.
PAUSE_MS = 1

AnswerMember = Callable[[Member, Moment], None]


class AnswerRound:
    """One round of answers at a time; a group change or another round first finishes this one."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.left: deque[Member] = deque()  # Members not yet answered.
        self._portion = 0  # The number of members to answer next.
        self._answer: AnswerMember | None = None
        self._timer: Timer | None = None

    def answer_members(self, members: Iterable[Member], answer: AnswerMember, now: Moment) -> None:
        """Call `answer` with each member, including members that leave during the round."""
        self.finish(now)
        self.left.extend(members)
        self._answer = answer
        if len(self.left) > MEMBERS_PER_TURN:
            self._portion = 1  # A leader's answer may be as large as all others together.
            self._pause(now)  # The work before this round already took some time.
        else:
            self.finish(now)

    def finish(self, now: Moment) -> None:
        self._answer_next(len(self.left), now)
        self.drop()

    def drop(self) -> None:
        """End the round without answering the rest."""
        self.left.clear()
        self._answer = None  # It may refer to the metadata of all members.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pause(self, now: Moment) -> None:
        self._timer = self._timers.at(now.steady + PAUSE_MS, self._continue)

    def _continue(self, now: Moment) -> None:
        assert self.left and self._portion > 0, "the round continues only while members wait"
        self._answer_next(min(len(self.left), self._portion), now)
        self._portion = MEMBERS_PER_TURN
        if self.left:
            self._pause(now)
        else:
            self.drop()

    def _answer_next(self, count: int, now: Moment) -> None:
        for _ in range(count):
            assert self._answer is not None
            self._answer(self.left.popleft(), now)
