"""Classic groups with several members on separate connections: requests of one while others wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from differential.base_groups import commit, describe, heartbeat, join, leave, sync
from differential.scenarios.groups import INSTANCES_SINCE, REQUIRED_SINCE, SYNC_MAX, settled
from differential.steps import BORDERLINE, VALID, WRONG, Ready, Scenario, Step, Taken, member, request_step
from differential.waits import GroupIs, Wait

VERSIONS = range(10)
PREPARING, COMPLETING, STABLE, EMPTY = "PreparingRebalance", "CompletingRebalance", "Stable", "Empty"
SHORT_MS, SHORTER_MS = 800, 400
Steps = Iterator[Step | Taken | Ready | Wait]
BOTH: Sequence[tuple[str, bytes]] = (("range", b"1"), ("rr", b"2"))


def scenarios() -> list[Scenario]:
    return [
        *(Scenario(f"JoinGroup v{version} two", list(_two(version))) for version in VERSIONS),
        *(Scenario(f"JoinGroup v{version} static", list(_static(version))) for version in range(INSTANCES_SINCE, 10)),
        Scenario("groups that lose members", list(_lost())),
        Scenario("groups that are full", list(_full())),
        Scenario("groups that choose a protocol", [step for steps in map(_chosen, range(4)) for step in steps]),
        *(Scenario(f"groups of who is late, JoinGroup v{version}", list(_late(version))) for version in (0, 9)),
    ]


def _enters(version: int, group: str, name: str, members: int, **fields: object) -> Steps:
    """Add a member that waits for the others, on a connection with its name."""
    if version >= REQUIRED_SINCE:
        first = join(version, group, **fields)  # type: ignore[arg-type]
        yield request_step(f"{name} asks for an id", VALID, first, version, on=name, learns=name)
        again = join(version, group, member(name), **fields)  # type: ignore[arg-type]
        yield request_step(f"{name} joins", VALID, again, version, on=name, waits=True)
    else:
        first = join(version, group, **fields)  # type: ignore[arg-type]
        yield request_step(f"{name} joins", VALID, first, version, on=name, waits=True, learns=name)
    yield GroupIs(group, PREPARING, members)


def _two(version: int) -> Steps:
    group, low = f"two-{version}", min(version, SYNC_MAX)
    a, b, c = member(f"A{version}"), member(f"B{version}"), member(f"C{version}")

    def described(text: str) -> Step:
        return request_step(text, VALID, describe(5, group), 5)

    yield from settled(version, group, f"A{version}")
    yield from _enters(version, group, f"B{version}", 2)
    yield described("preparing")
    yield request_step("A beats while B joins", VALID, heartbeat(group, a, 1), min(version, 4))
    yield request_step("A syncs while B joins", WRONG, sync(low, group, a, 1), low)
    yield request_step(
        "A commits while B joins", VALID, commit(9, group, ("base", 0, 3, ""), member_id=a, generation=1), 9
    )
    yield request_step("A joins again", VALID, join(version, group, a), version)
    yield Taken(f"B{version} joins")
    yield request_step("A beats", VALID, heartbeat(group, a, 2), min(version, 4))
    yield request_step("A commits", WRONG, commit(9, group, ("base", 0, 3, ""), member_id=a, generation=2), 9)
    yield request_step("B syncs", VALID, sync(low, group, b, 2), low, on="B", waits=True)
    yield request_step("A syncs", VALID, sync(low, group, a, 2, (a, b"of A"), (b, b"of B")), low)
    yield Taken("B syncs")
    yield described("stable")
    yield request_step("B joins again unchanged", VALID, join(version, group, b), version, on="B")
    yield request_step(
        "B joins again changed",
        VALID,
        join(version, group, b, protocols=[("range", b"new")]),
        version,
        on="B",
        waits=True,
    )
    yield GroupIs(group, PREPARING, 2)
    yield request_step("A leaves while B waits", VALID, leave(low, group, (a, None)), low)
    yield Taken("B joins again changed")
    yield from _enters(version, group, f"C{version}", 2)
    yield request_step("B joins for C", VALID, join(version, group, b), version, on="B")
    yield Taken(f"C{version} joins")
    yield request_step("C syncs before B", VALID, sync(low, group, c, 4), low, on="C", waits=True)
    yield request_step("B joins unchanged instead", BORDERLINE, join(version, group, b), version, on="B")
    yield request_step("B leaves instead", BORDERLINE, leave(low, group, (b, None)), low, on="B")
    yield Taken("C syncs before B")
    yield request_step("C joins again", VALID, join(version, group, c), version, on="C")
    yield request_step("C gives itself nothing", BORDERLINE, sync(low, group, c, 5), low, on="C")
    yield described("the last")


def _static(version: int) -> Steps:
    group, low = f"static-{version}", min(version, SYNC_MAX)
    one, two, three, four = (member(f"S{number} of {version}", "i") for number in (1, 2, 3, 4))
    dynamic = member(f"D{version}")

    def joins(
        text: str, number: int, form: str = VALID, protocols: Sequence[tuple[str, bytes]] = (("range", b"m"),)
    ) -> Step:
        request = join(version, group, instance="i", protocols=protocols)
        return request_step(text, form, request, version, learns=f"S{number} of {version}")

    yield joins("joins without an id", 1)
    yield request_step("syncs", VALID, sync(low, group, one, 1, (one, b"share"), instance="i"), low)
    yield request_step("beats", VALID, heartbeat(group, one, 1, "i"), 4)
    yield request_step("beats without its name", BORDERLINE, heartbeat(group, one, 1), 4)
    yield request_step("beats with another name", WRONG, heartbeat(group, one, 1, "j"), 4)
    yield joins("joins anew", 2)
    yield request_step("the old one beats", WRONG, heartbeat(group, one, 1, "i"), 4)
    yield request_step("the old one beats without its name", WRONG, heartbeat(group, one, 1), 4)
    yield request_step("the old one syncs", WRONG, sync(low, group, one, 1, instance="i"), low)
    yield request_step("the old one joins", WRONG, join(version, group, one, instance="i"), version)
    old = commit(9, group, ("base", 0, 3, ""), member_id=one, generation=1, instance="i")
    yield request_step("the old one commits", WRONG, old, 9)
    yield request_step("the old one leaves", WRONG, leave(low, group, (one, "i")), low)
    yield request_step("the old one leaves without its name", WRONG, leave(low, group, (one, None)), low)
    yield request_step("the new one syncs", VALID, sync(low, group, two, 1, instance="i"), low)
    yield joins("joins anew with other metadata", 3, protocols=[("range", b"other")])
    yield request_step("described", VALID, describe(5, group), 5)
    yield request_step("the leader joins with its id", VALID, join(version, group, three, instance="i"), version)
    yield request_step("syncs again", VALID, sync(low, group, three, 2, (three, b"2"), instance="i"), low)
    yield from _enters(version, group, f"D{version}", 2)
    yield joins("joins anew while another waits", 4)
    yield Taken(f"D{version} joins")
    yield request_step("both described", VALID, describe(5, group), 5)
    yield request_step("the other syncs first", VALID, sync(low, group, dynamic, 3), low, on="D", waits=True)
    yield request_step(
        "the leader syncs", VALID, sync(low, group, four, 3, (four, b"4"), (dynamic, b"d"), instance="i"), low
    )
    yield Taken("the other syncs first")
    yield request_step("leaves by its name", VALID, leave(low, group, ("", "i")), low)
    yield request_step("leaves by its name again", WRONG, leave(low, group, ("", "i"), (dynamic, "i")), low)
    yield from _parked_static(version, f"parked-{version}")


def _parked_static(version: int, group: str) -> Steps:
    """Join twice as a static member while a leader keeps it waiting; then a third time, in the next phase."""
    leader = member(f"leader {version}")
    low = min(version, SYNC_MAX)
    yield from settled(version, group, f"leader {version}")
    request = join(version, group, instance="q")
    yield request_step("the first waits", VALID, request, version, on="first", waits=True)
    yield GroupIs(group, PREPARING, 2)
    yield request_step("the second waits", VALID, request, version, on="second", waits=True, learns=f"Q2 of {version}")
    yield Taken("the first waits")
    yield request_step("the leader comes", VALID, join(version, group, leader), version)
    yield Taken("the second waits")
    yield request_step("the leader waits for nobody", VALID, sync(low, group, leader, 2), low)
    again = join(version, group, instance="q", protocols=BOTH)
    yield request_step("the third, with other protocols", VALID, again, version, on="third", learns=f"Q3 of {version}")
    yield request_step("what became of it", VALID, describe(5, group), 5)


def _lost() -> Steps:
    """Let sessions expire, and a join and a sync never arrive. Other versions do not differ."""
    me = member("alone")
    yield request_step("asks for an id", VALID, join(9, "lost", session_ms=SHORTER_MS), 9, learns="alone")
    yield request_step("joins for a short time", VALID, join(9, "lost", me, session_ms=SHORTER_MS), 9)
    yield GroupIs("lost", EMPTY, 0)
    yield request_step("beats when its session is over", WRONG, heartbeat("lost", me, 1), 4)
    yield request_step("its group", VALID, describe(6, "lost"), 6)
    yield from _enters_short("slow", "slow leader", SHORT_MS)
    yield request_step("slow leader syncs", VALID, sync(5, "slow", member("slow leader"), 1), 5)
    yield from _enters(9, "slow", "quick", 2, rebalance_ms=SHORTER_MS)
    yield Taken("quick joins")  # After the slow member's timeout.
    yield request_step("slow leader beats", WRONG, heartbeat("slow", member("slow leader"), 1), 4)
    yield request_step("the group of the quick one", VALID, describe(6, "slow"), 6)
    yield from _enters_short("mute", "mute leader", SHORT_MS)
    yield from _enters(9, "mute", "listener", 2, rebalance_ms=SHORTER_MS)
    yield request_step(
        "mute leader joins again", VALID, join(9, "mute", member("mute leader"), rebalance_ms=SHORT_MS), 9
    )
    yield Taken("listener joins")
    yield request_step("listener syncs", VALID, sync(5, "mute", member("listener"), 2), 5, on="listener")
    yield request_step("mute leader beats", WRONG, heartbeat("mute", member("mute leader"), 2), 4)
    yield request_step("the group of the listener", VALID, describe(6, "mute"), 6)
    yield from settled(9, "kept", "keeper")
    yield request_step("a slacker asks for an id", VALID, join(9, "kept", session_ms=SHORTER_MS), 9, learns="slacker")
    yield request_step("keeper waits for the slacker", VALID, join(9, "kept", member("keeper")), 9)
    yield request_step("the slacker is too late", WRONG, join(9, "kept", member("slacker"), session_ms=SHORTER_MS), 9)


def _enters_short(group: str, name: str, rebalance_ms: int) -> Iterator[Step]:
    yield request_step(f"{name} asks for an id", VALID, join(9, group, rebalance_ms=rebalance_ms), 9, learns=name)
    yield request_step(f"{name} joins", VALID, join(9, group, member(name), rebalance_ms=rebalance_ms), 9)


def _full() -> Steps:
    """Fill a group, whose size is limited to four by the settings; during a rebalance, joined members count."""
    yield from settled(9, "full", "the first")
    numbers = range(2, 6)
    for number in numbers:
        yield from _enters(9, "full", f"number {number}", number)
    late = join(9, "full")
    yield request_step("a sixth asks for an id", WRONG, late, 9)
    yield request_step("a sixth of before ids", WRONG, join(3, "full"), 3)
    yield request_step("a static one", WRONG, join(9, "full", instance="i"), 9)
    yield request_step("described", VALID, describe(5, "full"), 5)
    yield request_step("number 5 leaves", VALID, leave(5, "full", (member("number 5"), None)), 5)
    yield Taken("number 5 joins")
    yield request_step("the first joins after all", VALID, join(9, "full", member("the first")), 9)
    yield from (Taken(f"number {number} joins") for number in (2, 3, 4))
    yield request_step("a sixth asks again", WRONG, late, 9)
    yield request_step("a static one again", WRONG, join(9, "full", instance="i"), 9)


CHOICES: Sequence[tuple[Sequence[str], Sequence[str], Sequence[str]]] = (
    (("range", "rr"), ("rr", "range"), ("rr", "range")),
    (("range", "rr"), ("range", "rr"), ("rr", "range")),
    (("x", "rr", "range"), ("range", "rr"), ("range", "rr", "y")),
    (("rr", "range"), ("sticky", "range"), ("range",)),
)


def _chosen(number: int) -> Steps:
    """Join three members, each with protocols in its order of preference."""
    group = f"choice-{number}"
    names = [f"{letter} of choice {number}" for letter in "ABC"]
    liked = [
        [(protocol, letter.encode()) for protocol in order]
        for letter, order in zip("ABC", CHOICES[number], strict=True)
    ]
    yield request_step(f"{names[0]} asks for an id", VALID, join(9, group, protocols=liked[0]), 9, learns=names[0])
    yield request_step(f"{names[0]} joins", VALID, join(9, group, member(names[0]), protocols=liked[0]), 9)
    for at in (1, 2):
        yield from _enters(9, group, names[at], at + 1, protocols=liked[at])
    yield request_step(f"{names[0]} joins again", VALID, join(9, group, member(names[0]), protocols=liked[0]), 9)
    yield Taken(f"{names[1]} joins")
    yield Taken(f"{names[2]} joins")


def _late(version: int) -> Steps:
    """Join while the leader computes the assignment, which restarts the rebalance."""
    group, low = f"late-{version}", min(version, SYNC_MAX)
    a, b, c = (member(f"{letter} late {version}") for letter in "ABC")
    yield from settled(version, group, f"A late {version}")
    yield from _enters(version, group, f"B late {version}", 2)
    yield request_step("A joins again", VALID, join(version, group, a), version)
    yield Taken(f"B late {version} joins")
    yield request_step("B syncs", VALID, sync(low, group, b, 2), low, on="B", waits=True)
    yield from _enters(version, group, f"C late {version}", 3)
    yield Taken("B syncs")
    yield request_step("A syncs too late", WRONG, sync(low, group, a, 2, (a, b"old")), low)
    yield request_step("A beats", VALID, heartbeat(group, a, 2), min(version, 4))
    yield request_step("B joins again", VALID, join(version, group, b), version, on="B", waits=True)
    yield request_step("C leaves", VALID, leave(low, group, (c, None)), low)
    yield request_step("A joins for the last", VALID, join(version, group, a), version)
    yield Taken("B joins again")
    # Before version 4 it did not know its id, and so could not leave.
    yield Taken(f"C late {version} joins")
