"""Classic groups with one member: every version of join, sync, heartbeat and leave, in and out of order."""

from __future__ import annotations

from collections.abc import Iterator

from differential.base_groups import UNKNOWN_MEMBER, describe, heartbeat, join, leave, listed, sync
from differential.steps import BORDERLINE, VALID, WRONG, Scenario, Step, member, request_step

VERSIONS = range(10)  # Versions of JoinGroup; the others follow, up to their last.
REQUIRED_SINCE = 4  # A member id.
INSTANCES_SINCE = 5
SYNC_MAX, HEARTBEAT_MAX, LEAVE_MAX, DESCRIBE_MAX = 5, 4, 5, 6
SESSION_MAX_MS = 1_800_000


def scenarios() -> list[Scenario]:
    return [
        *(Scenario(f"JoinGroup v{version} alone", list(_alone(version))) for version in VERSIONS),
        *(Scenario(f"JoinGroup v{version} wrong", list(_wrong(version))) for version in VERSIONS),
        *(Scenario(f"JoinGroup v{version} left", list(_left(version))) for version in VERSIONS),
    ]


def joined(version: int, group: str, name: str, on: str = "") -> Iterator[Step]:
    """Join a group as a new member that does not have to wait."""
    if version >= REQUIRED_SINCE:
        yield request_step(f"{name} asks for an id", VALID, join(version, group), version, on=on, learns=name)
        yield request_step(f"{name} joins", VALID, join(version, group, member(name)), version, on=on)
    else:
        yield request_step(f"{name} joins", VALID, join(version, group), version, on=on, learns=name)


def settled(version: int, group: str, name: str, generation: int = 1) -> Iterator[Step]:
    yield from joined(version, group, name)
    low = min(version, SYNC_MAX)
    yield request_step(
        f"{name} syncs", VALID, sync(low, group, member(name), generation, (member(name), b"share")), low
    )


def _alone(version: int) -> Iterator[Step]:
    group, name = f"alone-{version}", f"A{version}"
    me = member(name)
    syncs, beats, describes = min(version, SYNC_MAX), min(version, HEARTBEAT_MAX), min(version, DESCRIBE_MAX)

    def described(text: str) -> Step:
        return request_step(text, VALID, describe(describes, group, operations=True), describes)

    yield from joined(version, group, name)
    yield described("completing")
    yield request_step("beats before it syncs", VALID, heartbeat(group, me, 1), beats)
    yield request_step("joins again before it syncs", BORDERLINE, join(version, group, me), version)
    yield request_step("syncs", VALID, sync(syncs, group, me, 1, (me, b"share"), ("someone", b"else")), syncs)
    yield described("stable")
    yield request_step("beats", VALID, heartbeat(group, me, 1), beats)
    yield request_step("syncs again", BORDERLINE, sync(syncs, group, me, 1, (me, b"another")), syncs)
    yield request_step("the leader joins again", VALID, join(version, group, me), version)
    yield request_step("beats in the last generation", WRONG, heartbeat(group, me, 1), beats)
    yield request_step("syncs without shares", BORDERLINE, sync(syncs, group, me, 2), syncs)
    yield described("without a share")
    yield request_step(
        "other protocols", VALID, join(version, group, me, protocols=[("rr", b"r"), ("range", b"")]), version
    )
    yield request_step("syncs to them", VALID, sync(syncs, group, me, 3, (me, b""), protocol="rr"), syncs)
    yield described("with other protocols")
    lists = min(version, 5)
    yield request_step("listed", VALID, listed(["stable", "Nonsense"] if lists >= 4 else []), lists)
    low = min(version, LEAVE_MAX)
    yield request_step("leaves", VALID, leave(low, group, (me, None)), low)
    yield described("empty")
    yield request_step("beats after it left", WRONG, heartbeat(group, me, 3), beats)
    yield request_step("syncs after it left", WRONG, sync(syncs, group, me, 3), syncs)
    yield request_step("joins after it left", WRONG, join(version, group, me), version)
    yield request_step("leaves after it left", WRONG, leave(low, group, (me, None)), low)
    yield from joined(version, group, f"B{version}")


def _wrong(version: int) -> Iterator[Step]:
    group, name = f"wrong-{version}", f"W{version}"
    me = member(name)

    def joins(text: str, form: str = WRONG, at: str = group, member_id: str = "", **fields: object) -> Step:
        return request_step(text, form, join(version, at, member_id, **fields), version)  # type: ignore[arg-type]

    yield joins("group ''", at="")
    yield joins("group '' and session 0", at="", session_ms=0)
    yield joins("unknown, in an unknown group", at="nowhere", member_id=UNKNOWN_MEMBER)
    yield joins("no protocols", at=f"{group}-new", protocols=[])
    yield joins("no kind", at=f"{group}-new", kind="")
    yield request_step("what that leaves", VALID, describe(5, f"{group}-new", "nowhere"), 5)
    for session_ms in (-1, 0, 1, SESSION_MAX_MS + 1):
        yield joins(f"session of {session_ms} ms", session_ms=session_ms)
    yield from settled(version, group, name)
    yield joins("unknown", member_id=UNKNOWN_MEMBER)
    yield joins("unknown, of another kind", member_id=UNKNOWN_MEMBER, kind="connect")
    yield joins("unknown, for 1 ms", member_id=UNKNOWN_MEMBER, session_ms=1)
    yield joins("another kind", kind="connect")
    yield joins("no kind in a group", kind="")
    yield joins("no protocols in a group", protocols=[])
    yield joins("other protocols", protocols=[("other", b"")])
    yield joins("its own id, other kind", member_id=me, kind="connect")
    if version >= INSTANCES_SINCE:
        yield joins("its own id, unknown instance", member_id=me, instance="i")
        yield joins("unknown id, unknown instance", member_id=UNKNOWN_MEMBER, instance="i")
    yield from _wrong_syncs(min(version, SYNC_MAX), group, me)
    yield from _wrong_beats(min(version, HEARTBEAT_MAX), group, me)
    yield request_step("nothing of it did harm", VALID, describe(5, group), 5)


def _wrong_syncs(version: int, group: str, me: str) -> Iterator[Step]:
    def syncs(text: str, at: str, member_id: str, generation: int, **fields: str | None) -> Step:
        return request_step(f"sync: {text}", WRONG, sync(version, at, member_id, generation, **fields), version)

    yield syncs("group ''", "", me, 1)
    yield syncs("unknown group", "nowhere", me, 1)
    yield syncs("unknown member", group, UNKNOWN_MEMBER, 1)
    yield syncs("member ''", group, "", 1)
    for generation in (0, 2, -1):
        yield syncs(f"generation {generation}", group, me, generation)
    if version >= 3:
        yield syncs("unknown instance", group, me, 1, instance="i")
    if version >= 5:
        yield syncs("another kind", group, me, 1, kind="connect")
        yield syncs("another protocol", group, me, 1, protocol="other")
        yield syncs("no kind", group, me, 1, kind=None)
        yield syncs("no protocol", group, me, 1, protocol=None)
        yield syncs("no kind, group ''", "", me, 1, kind=None)
        yield syncs("another kind, generation 2", group, me, 2, kind="connect")
        yield syncs("another kind, unknown member", group, UNKNOWN_MEMBER, 1, kind="connect")


def _wrong_beats(version: int, group: str, me: str) -> Iterator[Step]:
    def beats(text: str, at: str, member_id: str, generation: int, instance: str | None = None) -> Step:
        return request_step(f"beat: {text}", WRONG, heartbeat(at, member_id, generation, instance), version)

    yield beats("group ''", "", me, 1)
    yield beats("unknown group", "nowhere", me, 1)
    yield beats("unknown member", group, UNKNOWN_MEMBER, 1)
    yield beats("unknown member, generation 2", group, UNKNOWN_MEMBER, 2)
    yield beats("member ''", group, "", 1)
    for generation in (0, 2, -1):
        yield beats(f"generation {generation}", group, me, generation)
    if version >= 3:
        yield beats("unknown instance", group, me, 1, "i")


def _left(version: int) -> Iterator[Step]:
    """Leave in all ways, also with ids that were only assigned."""
    group, name = f"left-{version}", f"L{version}"
    me, low = member(name), min(version, LEAVE_MAX)

    def leaves(text: str, form: str, *members: tuple[str, str | None], at: str = group) -> Step:
        return request_step(text, form, leave(low, at, *members), low)

    yield from settled(version, group, name)
    yield leaves("an unknown one", WRONG, (UNKNOWN_MEMBER, None))
    yield leaves("of an unknown group", WRONG, (UNKNOWN_MEMBER, None), at="nowhere")
    yield leaves("of group ''", WRONG, (UNKNOWN_MEMBER, None), at="")
    yield leaves("member ''", WRONG, ("", None))
    if low >= 3:
        yield leaves("nobody", BORDERLINE)
        yield leaves("nobody of an unknown group", BORDERLINE, at="nowhere")
        yield leaves("an unknown instance", WRONG, ("", "i"))
        yield leaves("itself as an unknown instance", WRONG, (me, "i"))
        yield leaves("three unknown ones", WRONG, (UNKNOWN_MEMBER, None), (UNKNOWN_MEMBER, "i"), ("", "j"))
        yield leaves("itself twice", BORDERLINE, (me, None), (me, None))
    else:
        yield leaves("itself", VALID, (me, None))
    if version >= REQUIRED_SINCE:
        late = f"late {version}"
        yield request_step("a late one asks for an id", VALID, join(version, group), version, learns=late)
        yield request_step("it is no member yet", VALID, describe(5, group), 5)
        yield request_step("it beats", WRONG, heartbeat(group, member(late), 0), min(version, HEARTBEAT_MAX))
        yield request_step("it syncs", WRONG, sync(5, group, member(late), 0), 5)
        yield leaves("it leaves", BORDERLINE, (member(late), None))
        yield request_step("it joins after that", WRONG, join(version, group, member(late)), version)
