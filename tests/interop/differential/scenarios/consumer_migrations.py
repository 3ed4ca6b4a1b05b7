"""Consumer-protocol groups with classic parts: offsets, members of both protocols, and protocol changes."""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack

from differential.base_groups import (
    commit,
    delete_groups,
    delete_offsets,
    describe,
    fetch_offsets,
    heartbeat,
    join,
    leave,
    sync,
)
from differential.base_transactions import add_offsets, commit_offsets, end
from differential.scenarios.consumer_groups import FOUR, TWO, Beats
from differential.scenarios.transactions import begun
from differential.steps import BORDERLINE, VALID, WRONG, Scenario, Step, member, producer, request_step


def scenarios() -> list[Scenario]:
    return [
        Scenario("offsets of consumer groups", list(_offsets())),
        Scenario("offsets of consumer groups in transactions", list(_transactional())),
        Scenario("consumer groups and classic members", list(_migrations())),
        Scenario("consumer groups out of classic ones", list(_conversions())),
    ]


def _offsets() -> Iterator[Step]:
    beats = Beats(1, "c-offsets")
    yield beats.joins("joins", "a")
    for version in range(2, 11):
        for member_id, epoch in (("a", 2), ("a", 1), ("a", 3), ("a", -1), ("x", 2), ("", -1), ("", 2)):
            request = commit(version, beats.group, (FOUR, 0, version, "m"), member_id=member_id, generation=epoch)
            yield request_step(f"commit v{version} {member_id!r} {epoch}", WRONG, request, version)
    for version in (1, 7, 8, 9, 10):
        yield request_step(f"fetch v{version}", VALID, fetch_offsets(version, (beats.group, [(FOUR, [0])])), version)
    for version in (9, 10):
        for member_id, epoch in (("a", 2), ("a", 1), ("a", 3), ("a", -1), ("x", 2), ("", 0), ("", -1)):
            request = fetch_offsets(version, (beats.group, [(FOUR, [0])]), member_id=member_id, epoch=epoch)
            yield request_step(f"fetch v{version} {member_id!r} {epoch}", WRONG, request, version)
    yield request_step("deletes", WRONG, delete_offsets(beats.group, (FOUR, [0]), (TWO, [0])), 0)
    yield beats("subscribes to another", "a", 2, names=[TWO], owned=[])
    yield request_step(
        "commits in the last epoch", WRONG, commit(9, beats.group, (FOUR, 1, 5, ""), member_id="a", generation=2), 9
    )
    yield request_step("commits", VALID, commit(9, beats.group, (FOUR, 1, 5, ""), member_id="a", generation=3), 9)
    yield request_step("deletes the one it left", VALID, delete_offsets(beats.group, (FOUR, [0]), (TWO, [0])), 0)
    yield beats("leaves", "a", -1)
    yield request_step(
        "commits after it left", WRONG, commit(9, beats.group, (FOUR, 1, 6, ""), member_id="a", generation=3), 9
    )
    yield request_step("simple", BORDERLINE, commit(9, beats.group, (FOUR, 1, 7, "")), 9)
    yield request_step("simple of old", BORDERLINE, commit(2, beats.group, (FOUR, 1, 8, "")), 2)
    yield request_step("all", VALID, fetch_offsets(9, (beats.group, None)), 9)
    yield request_step("deleted", VALID, delete_groups(beats.group), 2)
    yield request_step("all are gone", VALID, fetch_offsets(9, (beats.group, None)), 9)


def _transactional() -> Iterator[Step]:
    beats = Beats(1, "c-txn")
    me = producer("c-txn")
    yield from begun("c-txn")
    yield beats.joins("joins", "a")
    yield request_step("adds the group", VALID, add_offsets("c-txn", me, 0, beats.group), 4)
    for version in (3, 5):
        for member_id, epoch in (("a", 2), ("a", 1), ("a", 3), ("a", -1), ("x", 2), ("", -1), ("", 2), ("x", -1)):
            commits = (FOUR, 0, version, "m")
            request = commit_offsets("c-txn", me, 0, beats.group, commits, member_id=member_id, generation=epoch)
            yield request_step(f"v{version} {member_id!r} {epoch}", WRONG, request, version)
    yield request_step("aborts", VALID, end("c-txn", me, 0, commit=False), 5)


def subscription(topics: list[str], owned: list[tuple[str, list[int]]]) -> bytes:
    """Return a classic consumer's subscription, version 1."""
    out = pack(">hi", 1, len(topics)) + b"".join(_text(name) for name in topics) + pack(">i", -1)
    return out + pack(">i", len(owned)) + b"".join(_parts(name, parts) for name, parts in owned)


def share(*topics: tuple[str, list[int]]) -> bytes:
    """Return a classic leader's assignment, version 1."""
    return pack(">hi", 1, len(topics)) + b"".join(_parts(name, parts) for name, parts in topics) + pack(">i", -1)


def _parts(name: str, parts: list[int]) -> bytes:
    return _text(name) + pack(f">i{len(parts)}i", len(parts), *parts)


def _text(text: str) -> bytes:
    return pack(">h", len(text)) + text.encode()


def _migrations() -> Iterator[Step]:
    """Convert a running classic group to the consumer protocol, and back."""
    group, me = "c-migrates", member("classic")
    beats = Beats(1, group)

    def classic(
        text: str, member_id: str, owned: list[tuple[str, list[int]]], form: str = VALID, **fields: str
    ) -> Step:
        request = join(9, group, member_id, protocols=[("range", subscription([FOUR], owned))], **fields)
        return request_step(text, form, request, 9, learns="classic" if not member_id else "")

    yield classic("asks for an id", "", [])
    yield classic("joins", me, [])
    yield request_step("syncs", VALID, sync(5, group, me, 1, (me, share((FOUR, [0, 1, 2, 3])))), 5)
    yield beats.joins("a consumer comes", "new")
    yield beats.described("both")
    yield request_step("as a classic group", WRONG, describe(6, group), 6)
    yield request_step("beats", VALID, heartbeat(group, me, 1), 4)
    yield request_step("beats ahead", WRONG, heartbeat(group, me, 2), 4)
    yield request_step("syncs before it joins", WRONG, sync(5, group, me, 1), 5)
    for version in (8, 9):
        request = commit(version, group, (FOUR, 0, 5, ""), generation=1, member_id=me)
        yield request_step(f"commits v{version}", VALID, request, version)
    yield classic("joins again", me, [(FOUR, [0, 1])])
    yield request_step("syncs again", VALID, sync(5, group, me, 2), 5)
    yield beats("the new one gets its share", "new", 2)
    yield request_step("beats in peace", VALID, heartbeat(group, me, 2), 4)
    yield beats.described("in peace")
    yield request_step("of another protocol", WRONG, join(9, group, protocols=[("other", subscription([FOUR], []))]), 9)
    yield request_step("of another kind", WRONG, join(9, group, kind="connect"), 9)
    yield beats("the new one leaves", "new", -1)
    yield beats.described("not a consumer group")
    yield request_step("a classic group again", VALID, describe(6, group), 6)
    yield request_step("beats as before", VALID, heartbeat(group, me, 2), 4)
    yield classic("joins as before", me, [(FOUR, [0, 1])])
    yield request_step("syncs as before", VALID, sync(5, group, me, 3, (me, share((FOUR, [0, 1, 2, 3])))), 5)
    yield request_step("leaves", VALID, leave(5, group, (me, None)), 5)
    yield beats.joins("a consumer comes to the empty one", "new")
    yield beats.described("of consumers")


def _conversions() -> Iterator[Step]:
    """Try conversions to the consumer protocol, some of which are impossible."""
    for kind in ("connect", "consumer"):
        group = f"c-{kind}"
        yield request_step(f"{kind}: asks for an id", VALID, join(9, group, kind=kind), 9, learns=kind)
        yield request_step(f"{kind}: joins", VALID, join(9, group, member(kind), kind=kind), 9)
        yield Beats(1, group).joins(f"{kind}: a consumer comes", "a", WRONG)
        yield request_step(f"{kind}: as it was", VALID, describe(6, group), 6)
        yield request_step(f"{kind}: leaves", VALID, leave(5, group, (member(kind), None)), 5)
        yield Beats(1, group).joins(f"{kind}: a consumer comes to the empty one", "a", BORDERLINE)
        yield Beats(1, group)(f"{kind}: it leaves", "a", -1)
        yield request_step(f"{kind}: asks for an id again", VALID, join(9, group, kind=kind), 9, learns=f"{kind} again")
        yield request_step(f"{kind}: joins again", VALID, join(9, group, member(f"{kind} again"), kind=kind), 9)
        yield Beats(1, group).described(f"{kind}: a classic one again")
    simple = Beats(1, "c-simple")
    yield request_step("simple: commits", VALID, commit(9, simple.group, (FOUR, 0, 5, "m")), 9)
    yield simple.joins("simple: a consumer comes", "a")
    yield request_step("simple: all", VALID, fetch_offsets(9, (simple.group, None), member_id="a", epoch=2), 9)
    yield simple.described("simple: described")
