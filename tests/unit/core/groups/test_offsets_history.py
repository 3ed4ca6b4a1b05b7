"""Random histories of commits, transactions, deletions and stops of a broker, compared with a naive model.

Replay after a restart or a crash restores the previous state.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.errors import ErrorCode
from support.group_offsets import GroupOffsets, Kept, Name, groups
from support.in_memory import Harness
from support.transactional import Transactional, make_topic

pytestmark = pytest.mark.slow

GROUPS, NAMES, PRODUCERS = ("g", "h"), (("t", 0), ("t", 1), ("u", 0)), ("p", "q")
NONE = ErrorCode.NONE

Place = tuple[str, Name]
Step = tuple[str, str, Name, str]


class History:
    """A broker, and all operations on it in order."""

    def __init__(self, directory: Path) -> None:
        self.harness = Harness(directory, offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
        make_topic(self.harness, "t", 2)
        make_topic(self.harness, "u")
        self.groups = {name: GroupOffsets(self.harness, name) for name in GROUPS}
        self.producers = {name: Transactional(self.harness, name) for name in PRODUCERS}
        for producer in self.producers.values():
            assert producer.begin().error_code == NONE
        self.offset = 0
        self.changes: list[tuple[Place, int | None, object]] = []  # With the producer; True if it has committed.
        self.open: dict[str, list[int]] = {}  # List positions of pending offsets, by producer.

    def commit(self, group: str, name: Name, producer: str) -> None:
        self.offset += 1
        assert self.groups[group].commit({name: self.offset}) == {name: NONE}
        self.changes.append(((group, name), self.offset, True))

    def commit_in(self, group: str, name: Name, producer: str) -> None:
        self.offset += 1
        assert self.groups[group].commit_in(self.producers[producer], {name: self.offset}) == {name: NONE}
        self.open.setdefault(producer, []).append(len(self.changes))
        self.changes.append(((group, name), self.offset, producer))

    def _end(self, producer: str, *, commit: bool) -> None:
        places = self.open.pop(producer, None)
        if places is None:
            return
        assert self.producers[producer].end(commit=commit) == NONE
        for position in places:
            place, offset, _ = self.changes[position]
            self.changes[position] = (place, offset, commit)

    def end(self, group: str, name: Name, producer: str) -> None:
        self._end(producer, commit=True)

    def abort(self, group: str, name: Name, producer: str) -> None:
        self._end(producer, commit=False)

    def forget(self, group: str, name: Name, producer: str) -> None:
        code = self.groups[group].forget(name)
        assert code in ({name: NONE}, ErrorCode.GROUP_ID_NOT_FOUND)
        self.changes.append(((group, name), None, True))

    def delete(self, group: str, name: Name, producer: str) -> None:
        assert self.groups[group].delete() in (NONE, ErrorCode.GROUP_ID_NOT_FOUND)
        self.changes += [((group, one), None, True) for one in NAMES]

    def restart(self, group: str, name: Name, producer: str) -> None:
        self.harness.restart()
        self.harness.settle()

    def crash(self, group: str, name: Name, producer: str) -> None:
        self.harness.kill()
        self.harness.settle()

    def check(self) -> None:
        for group, offsets in self.groups.items():
            kept = {name: offset for name in NAMES if (offset := self._expected((group, name))) is not None}
            assert offsets.fetch() == {name: Kept(offset) for name, offset in kept.items()}
            expected = {
                name: ErrorCode.UNSTABLE_OFFSET_COMMIT if self._is_open((group, name)) else Kept(kept.get(name, -1))
                for name in NAMES
            }
            assert offsets.fetch(NAMES, is_stable=True) == expected
            if kept:
                assert group in groups(self.harness)

    def _expected(self, place: Place) -> int | None:
        counts = (offset for changed, offset, state in reversed(self.changes) if changed == place and state is True)
        return next(counts, None)

    def _is_open(self, place: Place) -> bool:
        """Return whether the offset is pending; a deletion removes pending offsets."""
        for changed, offset, state in reversed(self.changes):
            if changed == place and offset is None:
                return False
            if changed == place and not isinstance(state, bool):
                return True
        return False


STEPS: dict[str, Callable[[History, str, Name, str], None]] = {
    "commit": History.commit,
    "commit in a transaction": History.commit_in,
    "and another": History.commit_in,
    "end": History.end,
    "abort": History.abort,
    "forget": History.forget,
    "delete": History.delete,
    "restart": History.restart,
    "crash": History.crash,
}
steps = st.tuples(*map(st.sampled_from, (list(STEPS), GROUPS, NAMES, PRODUCERS)))


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, min_size=1, max_size=20))
def test_offsets_match_a_naive_model_in_any_history(history: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        broker = History(Path(directory))
        for step, group, name, producer in history:
            STEPS[step](broker, group, name, producer)
            broker.check()
        broker.harness.kill()
        broker.harness.settle()
        broker.check()
