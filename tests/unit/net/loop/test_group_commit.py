"""Gathered requests, completed before the run of turns ends, in arrival order."""

from __future__ import annotations

import pytest

from odradek.base.units import TimestampMs
from odradek.core.kernel.moment import Moment
from odradek.net.loop.group_commit import CONNECTIONS_MAX, GroupCommit

NOW = Moment(TimestampMs(1), 2)


class Staging:
    def __init__(self, answered: list[object], gathered: GroupCommit) -> None:
        self._answered = answered
        self._gathered = gathered

    def commit(self, now: Moment, began: float) -> None:
        assert (now, began) == (NOW, 3.0)
        self._gathered.flush()  # It may want others to be written: they are.
        self._answered.append(self)


@pytest.fixture
def answered() -> list[object]:
    return []


@pytest.fixture
def gathered(answered: list[object]) -> GroupCommit:
    return GroupCommit(lambda: answered.append("settled"))


def test_requests_outside_a_run_do_not_wait(gathered: GroupCommit, answered: list[object]) -> None:
    assert not gathered.try_add(Staging(answered, gathered), NOW, 3.0)
    with gathered:
        pass
    assert not gathered.try_add(Staging(answered, gathered), NOW, 3.0)
    assert not answered and not gathered.has_waiting


def test_gathered_requests_complete_at_the_end_of_the_run(gathered: GroupCommit, answered: list[object]) -> None:
    those = [Staging(answered, gathered) for _ in range(3)]
    with gathered:
        assert all(gathered.try_add(one, NOW, 3.0) for one in those)
        assert gathered.has_waiting
        gathered.flush_if_many()
        assert not answered
    assert answered == [*those, "settled"]
    assert not gathered.has_waiting


def test_gathered_requests_complete_after_an_exception(gathered: GroupCommit, answered: list[object]) -> None:
    with pytest.raises(RuntimeError), gathered:
        gathered.try_add(Staging(answered, gathered), NOW, 3.0)
        raise RuntimeError
    assert answered[-1] == "settled"
    with gathered:
        assert gathered.try_add(Staging(answered, gathered), NOW, 3.0)


def test_many_gathered_requests_do_not_wait_for_the_end(gathered: GroupCommit, answered: list[object]) -> None:
    with gathered:
        for _ in range(CONNECTIONS_MAX):
            assert not answered
            gathered.try_add(Staging(answered, gathered), NOW, 3.0)
            gathered.flush_if_many()
        assert len(answered) == CONNECTIONS_MAX + 1
        assert gathered.try_add(Staging(answered, gathered), NOW, 3.0), "and others after them"


def test_runs_cannot_be_nested(gathered: GroupCommit) -> None:
    with gathered, pytest.raises(AssertionError), gathered:
        raise NotImplementedError
