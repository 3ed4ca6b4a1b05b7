"""Offsets of groups: committed with and without members, fetched, deleted; and groups listed and deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from differential.base import topic
from differential.base_groups import (
    UNKNOWN_MEMBER,
    Commit,
    beat,
    commit,
    delete_groups,
    delete_offsets,
    describe,
    fetch_offsets,
    join,
    leave,
    listed,
    sync,
)
from differential.scenarios.groups import settled
from differential.steps import BORDERLINE, VALID, WRONG, Scenario, Step, member, request_step
from odradek.base.units import INT64_MAX

COMMITS, FETCHES, DESCRIBES, LISTS, DELETES = range(2, 11), range(1, 11), range(7), range(6), range(3)
HERE, OTHER, NOWHERE = "here", "there", "nowhere-at-all"
METADATA_CHARACTERS_MAX = 4096
STABLE_SINCE, GROUPS_SINCE, MEMBERS_SINCE = 7, 8, 9


def scenarios() -> list[Scenario]:
    return [
        Scenario("topics of offsets", [], [topic(HERE, 3), topic(OTHER, 1)]),
        *(Scenario(f"OffsetCommit v{version} simple", list(_simple(version))) for version in COMMITS),
        *(Scenario(f"OffsetCommit v{version} members", list(_members(version))) for version in COMMITS),
        *(Scenario(f"OffsetFetch v{version} offsets", list(_fetches(version))) for version in FETCHES),
        Scenario("OffsetDelete offsets", list(_deletes_offsets())),
        Scenario("a garbled subscription", list(_garbled())),
        *(Scenario(f"a subscription cut short, version {one}", list(_cut_short(one))) for one in range(1, 5)),
        *(Scenario(f"ListGroups v{version} filters", list(_lists(version))) for version in LISTS),
        *(Scenario(f"DescribeGroups v{version} groups", list(_describes(version))) for version in DESCRIBES),
        *(Scenario(f"DeleteGroups v{version} groups", list(_deletes_groups(version))) for version in DELETES),
    ]


def _all_of(text: str, group: str) -> Step:
    return request_step(text, VALID, fetch_offsets(8, (group, None)), 8)


def _simple(version: int) -> Iterator[Step]:
    """Commit offsets of a group without members."""
    group = f"simple-{version}"

    def commits(text: str, form: str, *commits: Commit, at: str = group, **fields: object) -> Step:
        return request_step(text, form, commit(version, at, *commits, **fields), version)  # type: ignore[arg-type]

    yield commits("two", VALID, (HERE, 0, 10, "m"), (HERE, 1, 11, ""), (OTHER, 0, 12, "n"))
    yield _all_of("all of them", group)
    if version >= 6:
        yield commits("with a leader epoch", VALID, (HERE, 0, 13, "e"), leader_epoch=7)
    yield commits("partitions that are not there", WRONG, (HERE, 0, 14, "m"), (HERE, 99, 1, "m"), (HERE, -1, 1, "m"))
    yield commits("topics that are not there", WRONG, (NOWHERE, 0, 1, "m"), (HERE, 1, 15, "m"), ("", 0, 1, "m"))
    yield commits("nothing", BORDERLINE)
    yield commits("no group", BORDERLINE, (HERE, 0, 1, "m"), at="")
    for offset in (-1, -2, 0, INT64_MAX):
        yield commits(f"offset {offset}", BORDERLINE, (HERE, 2, offset, "m"))
    yield commits("without metadata", VALID, (HERE, 1, 16, None))
    longest = "\u00e9" * METADATA_CHARACTERS_MAX
    yield commits("longest metadata", BORDERLINE, (OTHER, 0, 17, longest))
    yield commits("too long metadata", WRONG, (HERE, 0, 18, longest + "m"), (HERE, 1, 18, "m"))
    yield commits("one twice", BORDERLINE, (HERE, 0, 19, "m"), (HERE, 0, 20, "n"))
    yield _all_of("what is kept", group)
    for generation, member_id in ((0, ""), (1, UNKNOWN_MEMBER), (-1, UNKNOWN_MEMBER), (-2, "")):
        text = f"generation {generation}, member {member_id[:1]!r}"
        yield commits(text, WRONG, (HERE, 0, 21, "m"), generation=generation, member_id=member_id)
        text += " of a new group"
        at = f"{group}-{generation}-{member_id[:1]}"
        yield commits(text, WRONG, (HERE, 0, 21, "m"), at=at, generation=generation, member_id=member_id)
    if version >= 7:
        yield commits("instance", WRONG, (HERE, 0, 22, "m"), instance="i")
    yield request_step("the group", VALID, describe(6, group), 6)


def _members(version: int) -> Iterator[Step]:
    group, name = f"committing-{version}", f"C{version}"
    me = member(name)

    def commits(text: str, form: str, generation: int, member_id: str, at: str = HERE, **fields: object) -> Step:
        committed = (at, 0, 40 + generation, "m")
        request = commit(version, group, committed, generation=generation, member_id=member_id, **fields)  # type: ignore[arg-type]
        return request_step(text, form, request, version)

    yield request_step("asks for an id", VALID, join(9, group), 9, learns=name)
    yield commits("while nobody has joined", BORDERLINE, -1, "")
    yield request_step("joins", VALID, join(9, group, me), 9)
    yield commits("while it completes", WRONG, 1, me)
    yield request_step("syncs", VALID, sync(5, group, me, 1), 5)
    yield commits("good", VALID, 1, me)
    for generation in (0, 2, -1):
        yield commits(f"generation {generation}", WRONG, generation, me)
    yield commits("simple", WRONG, -1, "")
    yield commits("unknown member", WRONG, 1, UNKNOWN_MEMBER)
    yield commits("no member", WRONG, 1, "")
    yield commits("unknown member, unknown topic", WRONG, 1, UNKNOWN_MEMBER, at=NOWHERE)
    if version >= 7:
        yield commits("unknown instance", WRONG, 1, me, instance="i")
    yield request_step("leaves", VALID, leave(5, group, (me, None)), 5)
    yield commits("after it left", WRONG, 1, me)
    yield commits("simple after it left", BORDERLINE, -1, "")
    yield _all_of("what is kept", group)


def _fetches(version: int) -> Iterator[Step]:
    group = f"fetched-{version}"
    every: Sequence[tuple[str, list[int]]] = ((HERE, [2, 0, 99, -1]), (OTHER, [0]), (NOWHERE, [0]))

    def fetches(
        text: str, form: str, *groups: tuple[str, Sequence[tuple[str, list[int]]] | None], **fields: object
    ) -> Step:
        return request_step(text, form, fetch_offsets(version, *groups, **fields), version)  # type: ignore[arg-type]

    yield request_step("commits", VALID, commit(9, group, (HERE, 0, 5, "m"), (HERE, 1, 6, None), leader_epoch=3), 9)
    yield request_step("deletes one group", VALID, delete_groups(f"{group}-gone"), 2)
    yield fetches("some", VALID, (group, every))
    yield fetches("one twice", BORDERLINE, (group, [(HERE, [0, 0]), (HERE, [0])]))
    yield fetches("no partitions", BORDERLINE, (group, [(HERE, [])]))
    yield fetches("no topics", BORDERLINE, (group, []))
    yield fetches("unknown group", BORDERLINE, ("nobody's", every))
    yield fetches("no group", BORDERLINE, ("", [(HERE, [0])]))
    yield fetches("no topic", WRONG, (group, [("", [0])]))
    if version >= 2:
        yield fetches("all", VALID, (group, None))
        yield fetches("all of an unknown group", BORDERLINE, ("nobody's", None))
    if version >= STABLE_SINCE:
        yield fetches("stable ones", VALID, (group, every), stable=True)
    if version >= GROUPS_SINCE:
        yield fetches("no groups", BORDERLINE)
        yield fetches("many groups", VALID, (group, None), ("nobody's", every), (group, every), ("", None))
    if version >= MEMBERS_SINCE:
        for member_id, epoch in ((UNKNOWN_MEMBER, 1), (UNKNOWN_MEMBER, -1), ("", 0), ("", 1)):
            text = f"member {member_id[:1]!r}, epoch {epoch}"
            yield fetches(text, BORDERLINE, (group, every), ("nobody's", every), member_id=member_id, epoch=epoch)
        yield from settled(9, f"{group}-m", f"F{version}")
        yield fetches("of a classic group", BORDERLINE, (f"{group}-m", every), member_id=UNKNOWN_MEMBER, epoch=5)


SUBSCRIBED = b"\0\0" + b"\0\0\0\1" + b"\0\4here" + b"\xff\xff\xff\xff"  # A subscription: version 0, one topic.


def _deletes_offsets() -> Iterator[Step]:
    def deletes(text: str, form: str, group: str, *topics: tuple[str, list[int]]) -> Step:
        return request_step(text, form, delete_offsets(group, *topics), 0)

    yield request_step(
        "commits", VALID, commit(9, "forgets", (HERE, 0, 5, "m"), (HERE, 1, 6, "m"), (OTHER, 0, 7, "m")), 9
    )
    yield deletes("one", VALID, "forgets", (HERE, [0]))
    yield _all_of("what is left", "forgets")
    yield deletes("it again", BORDERLINE, "forgets", (HERE, [0, 0]))
    yield deletes("what is not there", WRONG, "forgets", (HERE, [1, 99, -1]), (NOWHERE, [0]), ("", [0]))
    yield deletes("nothing", BORDERLINE, "forgets")
    yield deletes("no partitions", BORDERLINE, "forgets", (OTHER, []))
    yield deletes("unknown group", WRONG, "nobody's", (HERE, [0]))
    yield deletes("unknown group, nothing", WRONG, "nobody's")
    yield deletes("no group", WRONG, "", (HERE, [0]))
    yield _all_of("what is left then", "forgets")
    for kind, metadata in (("consumer", SUBSCRIBED), ("connect", SUBSCRIBED), ("consumer", b"m")):
        group = f"forgets-{kind}-{len(metadata)}"
        me = member(group)
        joining = join(9, group, kind=kind, protocols=[("range", metadata)])
        yield request_step(f"{group} asks for an id", VALID, joining, 9, learns=group)
        joins = join(9, group, me, kind=kind, protocols=[("range", metadata)])
        yield request_step(f"{group} joins", VALID, joins, 9)
        yield deletes(f"{group} completing", WRONG, group, (HERE, [0]), (OTHER, [0]))
        yield request_step(f"{group} syncs", VALID, sync(5, group, me, 1, kind=kind), 5)
        kept = commit(9, group, (HERE, 0, 5, "m"), (OTHER, 0, 6, "m"), generation=1, member_id=me)
        yield request_step(f"{group} commits", VALID, kept, 9)
        yield deletes(f"{group} stable", WRONG, group, (HERE, [0]), (OTHER, [0]), (NOWHERE, [0]))
        yield _all_of(f"{group} keeps", group)


def _garbled() -> Iterator[Step]:
    """Join with a subscription that declares more topics than it contains."""
    protocols = [("range", b"\0\1\x7f\xff\xff\xff")]
    yield request_step("asks for an id", VALID, join(9, "garbled", protocols=protocols), 9, learns="garbled")
    garbled = join(9, "garbled", member("garbled"), protocols=protocols)
    yield request_step("joins", WRONG, garbled, 9)._replace(seconds_max=2)


def _cut_short(version: int) -> Iterator[Step]:
    """Join with a subscription of a newer version that ends like version 0, as some clients send it."""
    group = f"cut-short-{version}"
    me, protocols = member(group), [("range", bytes([0, version]) + SUBSCRIBED[2:])]
    yield request_step("asks for an id", VALID, join(9, group, protocols=protocols), 9, learns=group)
    yield request_step("joins", VALID, join(9, group, me, protocols=protocols), 9)
    yield request_step("syncs", VALID, sync(5, group, me, 1), 5)
    kept = commit(9, group, (HERE, 0, 5, "m"), (OTHER, 0, 6, "m"), generation=1, member_id=me)
    yield request_step("commits", VALID, kept, 9)
    yield request_step("deletes", VALID, delete_offsets(group, (HERE, [0]), (OTHER, [0])), 0)
    yield _all_of("keeps", group)
    newer = beat(group, "consumer", 0, rebalance_ms=60_000, names=[HERE], owned=[])
    yield request_step("a member of the consumer protocol comes", WRONG, newer, 1)


def _lists(version: int) -> Iterator[Step]:
    """List groups, of which only those with this prefix are compared."""
    group, name = f"listed-{version}", f"listed {version}"

    def lists(text: str, form: str, states: Sequence[str] = (), types: Sequence[str] = ()) -> Step:
        return request_step(text, form, listed(states, types), version)

    yield request_step("a simple one", VALID, commit(9, f"{group}-simple", (HERE, 0, 5, "m")), 9)
    yield request_step("a pending one", VALID, join(9, f"{group}-pending"), 9)
    yield request_step("one of another kind", VALID, join(3, f"{group}-connect", kind="connect"), 3)
    yield from settled(9, group, name)
    yield lists("all", VALID)
    if version >= 4:
        for states in (["Stable"], ["sTABLE"], ["Empty", "CompletingRebalance"], ["nonsense"], ["", "Empty"], ["Dead"]):
            yield lists(f"states {states}", BORDERLINE, states)
    if version >= 5:
        for types in (["classic"], ["CLASSIC"], ["nonsense"], ["share", "streams"], [""], ["consumer", "classic"]):
            yield lists(f"types {types}", BORDERLINE, (), types)
        yield lists("states and types", BORDERLINE, ["Stable"], ["Classic"])
    names = [group, f"{group}-simple", f"{group}-pending", f"{group}-connect"]
    yield request_step("deleted", WRONG, delete_groups(*names), 2)
    yield lists("after that", VALID)


def _describes(version: int) -> Iterator[Step]:
    group = f"described-{version}"

    def describes(text: str, form: str, *groups: str, operations: bool = False) -> Step:
        return request_step(text, form, describe(version, *groups, operations=operations), version)

    yield from settled(9, group, f"described {version}")
    yield request_step("a simple one", VALID, commit(9, f"{group}-simple", (HERE, 0, 5, "m")), 9)
    yield describes("it", VALID, group)
    yield describes("many", WRONG, group, "nobody's", "", f"{group}-simple", "\u00e9")
    yield describes("one twice", BORDERLINE, group, group, "nobody's", "nobody's")
    yield describes("none", BORDERLINE)
    yield describes("with operations", VALID, group, "nobody's", operations=True)


def _deletes_groups(version: int) -> Iterator[Step]:
    group = f"deleted-{version}"

    def deletes(text: str, form: str, *groups: str) -> Step:
        return request_step(text, form, delete_groups(*groups), version)

    yield request_step("a simple one", VALID, commit(9, group, (HERE, 0, 5, "m")), 9)
    yield from settled(9, f"{group}-stable", f"deleted {version}")
    yield request_step("an empty one", VALID, join(9, f"{group}-pending"), 9)
    yield deletes("many", WRONG, group, f"{group}-stable", "nobody's", "no-one's", f"{group}-pending")
    yield deletes("again", WRONG, group)
    yield _all_of("its offsets", group)
    yield request_step("its state", VALID, describe(5, group, f"{group}-pending"), 5)
    yield request_step("it comes again", VALID, commit(9, group, (HERE, 0, 6, "m")), 9)
    yield deletes("named twice", BORDERLINE, group, group)
    yield deletes("none", BORDERLINE)
    yield deletes("no name", WRONG, "")
