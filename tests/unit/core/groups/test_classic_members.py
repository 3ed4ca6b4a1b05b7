"""Election of a group's leader and protocol."""

from __future__ import annotations

import sys

import pytest

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TimestampMs
from odradek.core.groups.classic.members import Member, Members, elected
from odradek.core.groups.classic.messages import JoinGroup, JoinGroupResult
from odradek.core.groups.shard.member_session import MemberSession
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import Purgatory
from odradek.core.kernel.timers import Timers

NOW = Moment(TimestampMs(0), 0)


def member(member_id: str, *protocols: str, instance_id: str | None = None) -> Member:
    offered = tuple((name, name.encode()) for name in protocols or ("range",))
    join = JoinGroup("", instance_id, "c", "/h", 10_000, 60_000, "consumer", offered, "", False, False)
    return Member(member_id, join, MemberSession(Timers(), lambda now: None))


def members(*some: Member) -> Members:
    made = Members(Purgatory())
    for one in some:
        made.add(one)
    return made


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        (["range"], "range"),
        (["range sticky", "sticky range", "sticky range"], "sticky"),
        (["range sticky", "sticky range"], "range"),
        (["range sticky", "sticky", "range sticky"], "sticky"),
        (["a b c", "c b a", "b a c", "b c a"], "b"),
        (["new old", "old", "new old"], "old"),
    ],
)
def test_protocol_with_most_votes_is_chosen(offers: list[str], chosen: str) -> None:
    voters = [member(str(number), *offer.split()) for number, offer in enumerate(offers)]
    assert elected(voters) == members(*voters).select_protocol() == chosen


def test_group_works_by_protocols_that_all_members_support() -> None:
    group = members(member("a", "range", "sticky"), member("b", "sticky", "new"))
    assert group.supports_protocols((("other", b""), ("sticky", b"")))
    assert not group.supports_protocols((("range", b""), ("new", b"")))
    group.remove("b")
    assert group.supports_protocols((("range", b""),))
    only = group.get("a")
    assert only is not None
    group.change_protocols(only, (("new", b"n"),))
    assert group.supports_protocols((("new", b""),)) and not group.supports_protocols((("range", b""),))
    assert (only.metadata("new"), only.metadata("range"), only.metadata(None)) == (b"n", b"", b"")


def test_protocols_without_supporters_take_no_memory() -> None:
    group = members(member("a"), member("b", "range", "sticky"))
    before = sys.getsizeof(group._supporters)
    for number in range(1000):
        group.change_protocols(one := next(iter(group)), ((f"protocol-{number}", b""), ("range", b"")))
        assert one.protocols[0][0] == f"protocol-{number}"
    assert sys.getsizeof(group._supporters) < 2 * before
    assert group.select_protocol() == "range"


def test_next_member_leads_after_the_leader_leaves() -> None:
    group = members(member("a"), member("b"), member("c"))
    assert group.leader == "a"
    group.remove("a")
    assert group.leader == "b"
    group.remove("c")
    group.remove("b")
    assert group.leader is None and len(group) == 0


def test_waiting_member_is_elected_leader() -> None:
    group = members(member("a"), member("b"), member("c"))
    assert not group.elect()
    third = group.get("c")
    assert third is not None
    group.await_join(third)
    assert group.elect() and group.leader == "c"
    first = group.get("a")
    assert first is not None
    group.await_join(first)
    assert group.elect() and group.leader == "c", "it waits too, so it stays"


def test_static_successor_inherits_leadership() -> None:
    old, new = member("i-1", instance_id="i"), member("i-2", instance_id="i")
    group = members(old, member("b"))
    waiting = group.await_join(old)
    group.replace(old, new)
    assert group.leader == "i-2" and group.static("i") is new and "i-1" not in group
    assert waiting.value == JoinGroupResult(ErrorCode.FENCED_INSTANCE_ID, "i-1")
    assert group.waiting == 0


def test_member_lookup_checks_member_and_instance_ids() -> None:
    group = members(member("i-1", instance_id="i"), member("b"))
    assert group.known("i-1", "i") is group.known("i-1", None) is group.static("i")
    for member_id, instance_id, code in (
        ("b", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("x", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("i-1", "j", ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(Refused) as refused:
            group.known(member_id, instance_id)
        assert refused.value.code == code


def test_two_joins_of_one_member_share_one_response() -> None:
    group = members(member("a"))
    first = group.get("a")
    assert first is not None
    assert group.await_join(first) is group.await_join(first)
    assert group.waiting == 1 and group.have_all_joined
    group.answer_join(first, JoinGroupResult(ErrorCode.NONE, "a"))
    group.answer_join(first, JoinGroupResult(ErrorCode.NONE, "a"))
    assert group.waiting == 0


def test_group_waits_for_pending_members() -> None:
    group = members()
    assert group.have_all_joined
    session = group.pending["p"] = MemberSession(Timers(), lambda now: None)
    session.extend(NOW, 10)
    assert not group.have_all_joined
    group.add(member("p"))
    assert not group.pending
