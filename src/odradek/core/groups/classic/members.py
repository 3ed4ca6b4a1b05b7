"""The members of a classic group: their leader, common protocols and waiting requests.

Counters are maintained with every change. So a question asked once for each of n members costs the same for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from odradek.base.errors import ErrorCode, Refused
from odradek.core.groups.classic.messages import JoinGroup, JoinGroupResult, Protocols, SyncGroupResult
from odradek.core.groups.shard.member_session import MemberSession
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.promise import Promise
from odradek.core.kernel.purgatory import Purgatory


class Member:
    """A member; `joining` and `syncing` are its waiting requests."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "id",
        "instance_id",
        "is_new",
        "joining",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(self, member_id: str, join: JoinGroup, session: MemberSession) -> None:
        self.id = member_id
        self.instance_id = join.instance_id
        self.client_id = join.client_id
        self.client_host = join.client_host
        self.session_timeout_ms = join.session_timeout_ms
        self.rebalance_timeout_ms = join.rebalance_timeout_ms
        self.protocols = join.protocols
        self.assignment = b""
        self.session = session
        self.is_new = True  # Until its first join is answered.
        self.joining: Promise[JoinGroupResult] | None = None
        self.syncing: Promise[SyncGroupResult] | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def renew_session(self, now: Moment) -> None:
        """Restart the member's session timeout."""
        self.session.extend(now, self.session_timeout_ms)

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


class Members:
    """The members, in the order in which they joined."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}  # Member ids by instance id.
        self._supporters: Counter[str] = Counter()
        self._joining = 0
        self.pending: dict[str, MemberSession] = {}  # Member ids that were assigned, but have not joined yet.
        self.unsynced: set[str] = set()  # Members that have not fetched their assignment of this generation.
        self.leader: str | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str | None) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def static(self, instance_id: str) -> Member | None:
        """Return the member that currently has this instance id, or None."""
        member_id = self._static.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def known(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member with these ids, or raise Refused(UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID)."""
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is not None and current != member_id:
                raise Refused(
                    ErrorCode.FENCED_INSTANCE_ID, f"group instance id {instance_id!r} belongs to another member"
                )
            if current is None:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"instance {instance_id!r}")
        member = self._members.get(member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id!r}")
        return member

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    # Joining and leaving.

    def add(self, member: Member) -> None:
        """Add a member; the first one becomes the leader."""
        assert member.id not in self._members, "a member is added once"
        self.forget_pending(member.id)
        self._members[member.id] = member
        self._supporters.update(name for name, _ in member.protocols)
        if member.instance_id is not None:
            assert member.instance_id not in self._static, "a group instance id belongs to at most one member"
            self._static[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id
        self._check()

    def remove(self, member_id: str) -> None:
        """Remove a member and answer its waiting request with UNKNOWN_MEMBER_ID, so that it can rejoin."""
        member = self._members.pop(member_id)
        self.answer_join(member, JoinGroupResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        self.answer_sync(member, SyncGroupResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self._exclude(member)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        self._check()

    def replace(self, old: Member, new: Member) -> None:
        """Replace a restarted static member, also as leader, and fence the old member."""
        assert old.instance_id is not None and old.instance_id == new.instance_id
        assert self._static[old.instance_id] == old.id
        assert new.joining is None and new.syncing is None
        self.answer_join(old, JoinGroupResult(ErrorCode.FENCED_INSTANCE_ID, old.id))
        self.answer_sync(old, SyncGroupResult(ErrorCode.FENCED_INSTANCE_ID))
        del self._members[old.id]
        self._exclude(old)
        self._members[new.id] = new
        self._supporters.update(name for name, _ in new.protocols)
        self._static[old.instance_id] = new.id
        if self.leader == old.id:
            self.leader = new.id
        self._check()

    def _check(self) -> None:
        """Check the counts of members, and that the leader is one of them."""
        members = len(self._members)
        assert 0 <= self._joining <= members
        assert len(self.unsynced) <= members and len(self._static) <= members
        assert self.leader in self._members if members else self.leader is None

    def _exclude(self, member: Member) -> None:
        assert member.id not in self._members and member.joining is None and member.syncing is None
        member.session.cancel()
        self.unsynced.discard(member.id)
        self._drop_support(member)

    def forget_pending(self, member_id: str) -> None:
        session = self.pending.pop(member_id, None)
        if session is not None:
            session.cancel()

    # The protocols that all members support.

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        assert self._members.get(member.id) is member, "protocols of removed members do not count"
        self._drop_support(member)
        member.protocols = protocols
        self._supporters.update(name for name, _ in protocols)

    def _drop_support(self, member: Member) -> None:
        """Forget that the member supports its protocols, and forget those that nobody supports any more."""
        for name, _ in member.protocols:
            self._supporters[name] -= 1
            assert self._supporters[name] >= 0
            if not self._supporters[name]:
                del self._supporters[name]

    def supports_protocols(self, protocols: Protocols) -> bool:
        """Return whether all members support one of these protocols."""
        return any(self._supporters[name] == len(self._members) for name, _ in protocols)

    def select_protocol(self) -> str:
        """Elect the protocol: each member votes for the first in its list that all support."""
        common = [name for name, count in self._supporters.items() if count == len(self._members)]
        chosen = common[0] if len(common) == 1 else elected(list(self))
        assert self._supporters[chosen] == len(self._members), "all members support the chosen protocol"
        return chosen

    # Waiting requests.

    @property
    def have_all_joined(self) -> bool:
        return self._joining == len(self._members) and not self.pending

    @property
    def waiting(self) -> int:
        return self._joining

    def await_join(self, member: Member) -> Promise[JoinGroupResult]:
        """Return the promise of the member's JoinGroup; a retry on another connection shares it."""
        assert self._members.get(member.id) is member, "only members wait for the end of a rebalance"
        if member.joining is None:
            member.joining = Promise()
            self._joining += 1
        assert self._joining <= len(self._members)
        return member.joining

    def answer_join(self, member: Member, answer: JoinGroupResult) -> None:
        """Answer the member's waiting JoinGroup, if any."""
        if member.joining is not None:
            promise, member.joining = member.joining, None
            self._joining -= 1
            assert self._joining >= 0
            promise.keep(self._purgatory, answer)

    def answer_sync(self, member: Member, answer: SyncGroupResult) -> bool:
        """Answer the member's waiting SyncGroup; return False if there is none."""
        if member.syncing is None:
            return False
        promise, member.syncing = member.syncing, None
        promise.keep(self._purgatory, answer)
        return True

    def elect(self) -> bool:
        """Elect a joined member as leader if the current one has not joined; return False if none has."""
        leader = self._members.get(self.leader or "")
        if leader is None or leader.joining is None:
            waiting = next((member for member in self if member.joining is not None), None)
            if waiting is None:
                return False
            self.leader = waiting.id
        assert self._joining > 0 and self.leader in self._members
        return True


def elected(members: Sequence[Member]) -> str:
    """Return the protocol with the most votes; a tie goes to the first one that received a vote."""
    supporters = Counter(name for member in members for name, _ in member.protocols)
    votes = Counter(_votes(members, supporters))
    return max(votes, key=votes.__getitem__)


def _votes(members: Sequence[Member], supporters: Counter[str]) -> Iterator[str]:
    for member in members:
        yield next(name for name, _ in member.protocols if supporters[name] == len(members))
