"""The states of a classic group, and the events that cause transitions."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """A state; its value is the name shown by DescribeGroups and ListGroups."""

    EMPTY = "Empty"  # No members.
    PREPARING = "PreparingRebalance"  # Members join; they keep their previous assignments until it ends.
    COMPLETING = "CompletingRebalance"  # All have joined; the leader assigns.
    STABLE = "Stable"  # Every member has an assignment.
    DEAD = "Dead"  # Deleted, or moved to another broker.


class Event(Enum):
    REBALANCE = "members must rejoin"
    ALL_JOINED = "all members have joined"
    ALL_LEFT = "no member has joined"
    ASSIGNED = "the assignment of the leader is written"
    REMOVED = "the group was deleted or has moved"


NEXT: dict[State, dict[Event, State]] = {
    State.EMPTY: {Event.REBALANCE: State.PREPARING, Event.REMOVED: State.DEAD},
    State.PREPARING: {Event.ALL_JOINED: State.COMPLETING, Event.ALL_LEFT: State.EMPTY, Event.REMOVED: State.DEAD},
    State.COMPLETING: {Event.REBALANCE: State.PREPARING, Event.ASSIGNED: State.STABLE, Event.REMOVED: State.DEAD},
    State.STABLE: {Event.REBALANCE: State.PREPARING, Event.REMOVED: State.DEAD},
    State.DEAD: {Event.REMOVED: State.DEAD},
}
