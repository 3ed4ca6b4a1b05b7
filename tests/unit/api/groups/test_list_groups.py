"""ListGroups and DeleteGroups without a socket, in every version."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from support.group_offsets import GroupOffsets, Kept, delete_groups, groups
from support.in_memory import Harness
from support.transactional import Transactional, make_topic

NONE = ErrorCode.NONE
A, B = ("t", 0), ("t", 1)


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path)
    make_topic(harness, "t", 2)
    return harness


def group(harness: Harness, name: str) -> GroupOffsets:
    group = GroupOffsets(harness, name)
    group.commit({A: 1})
    return group


@pytest.mark.parametrize("version", range(6))
def test_list_groups_works_in_every_version(harness: Harness, version: int) -> None:
    assert harness.request(ListGroupsRequest(), version, ListGroupsResponse).groups == []
    group(harness, "g")
    (one,) = harness.request(ListGroupsRequest(), version, ListGroupsResponse).groups
    assert (one.group_id, one.protocol_type) == ("g", "")
    assert one.group_state == ("Empty" if version >= 4 else "")
    assert one.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ([], [], True),
        (["Empty"], [], True),
        (["eMPTY", "Stable"], ["CLASSIC"], True),
        (["Stable"], [], False),
        (["whatever"], [], False),
        ([""], [], False),
        (["Empty"], ["consumer"], False),
        ([], ["whatever", "classic"], True),
        ([], ["whatever"], False),
    ],
)
def test_states_and_types_are_case_insensitive(
    harness: Harness, states: list[str], types: list[str], found: bool
) -> None:
    group(harness, "g")
    answer = harness.request(ListGroupsRequest(states_filter=states, types_filter=types), 5, ListGroupsResponse)
    assert answer.error_code == NONE
    assert [one.group_id for one in answer.groups] == (["g"] if found else [])


@pytest.mark.parametrize("version", range(3))
def test_delete_groups_works_in_every_version(harness: Harness, version: int) -> None:
    kept, _, _ = (group(harness, name) for name in ("kept", "gone", ""))
    expected = {"gone": NONE, "nowhere": ErrorCode.GROUP_ID_NOT_FOUND, "": NONE}
    assert delete_groups(harness, "gone", "nowhere", "gone", "", version=version) == expected
    assert groups(harness) == {"kept"}
    harness.kill()
    assert groups(harness) == {"kept"}
    assert kept.fetch() == {A: Kept(1)}
    assert GroupOffsets(harness, "gone").fetch([A]) == {A: Kept(-1)}
    assert delete_groups(harness, version=version) == {}


def test_deletion_completes_once_it_is_durable(harness: Harness) -> None:
    group(harness, "g")
    waiting = harness.send(DeleteGroupsRequest(groups_names=["g", "nowhere"]), 2)
    assert isinstance(waiting, ParkedRequest)
    harness.settle()
    assert harness.broker.purgatory.take_completed() == [waiting]


def test_deletion_of_a_group_removes_pending_offsets(harness: Harness) -> None:
    deleted = group(harness, "g")
    producer = Transactional(harness, "p")
    producer.begin()
    deleted.commit_in(producer, {A: 2, B: 2})
    assert deleted.delete() == NONE
    assert deleted.fetch([A, B], is_stable=True) == {A: Kept(-1), B: Kept(-1)}
    assert deleted.commit({B: 9}) == {B: NONE}
    assert producer.end(commit=True) == NONE
    assert deleted.fetch() == {B: Kept(9)}
    harness.restart()
    assert deleted.fetch() == {B: Kept(9)}
