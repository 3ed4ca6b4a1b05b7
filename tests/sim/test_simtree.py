"""Sessions of the simulated tree, which live on the virtual clock; unit/coordination tests the tree itself."""

from __future__ import annotations

import pytest

from odradek.coordination.tree import EventKind, SessionExpired, SessionState, Unavailable, WatchEvent
from sim.simclock import MILLISECOND_US, SimClock
from sim.simtree import SimTree, SimTreeServer

TIMEOUT_MS = 1_000


def two_sessions() -> tuple[SimClock, SimTree, SimTree, list[SessionState]]:
    clock, states = SimClock(), list[SessionState]()
    server = SimTreeServer(clock, lambda: 5 * MILLISECOND_US)
    one, other = server.open(TIMEOUT_MS), server.open(TIMEOUT_MS)
    one.on_session(states.append)
    one.create("/held", ephemeral=True)
    one.beat()
    return clock, one, other, states


def test_a_silent_session_expires_with_its_ephemeral_nodes() -> None:
    clock, one, other, states = two_sessions()
    events = list[WatchEvent]()
    other.exists("/held", events.append)
    clock.run_until(600 * MILLISECOND_US)
    one.beat()
    clock.run_until(1_500 * MILLISECOND_US)
    assert other.exists("/held") is not None
    clock.run_until(1_602 * MILLISECOND_US)
    assert (other.exists("/held"), events) == (None, []), "watches come late"
    clock.run_until(1_700 * MILLISECOND_US)
    assert events == [WatchEvent(EventKind.DELETED, "/held")]
    assert states == [SessionState.EXPIRED]
    with pytest.raises(SessionExpired):
        one.get("/")


def test_a_disconnected_session_fails_requests_and_may_reconnect() -> None:
    clock, one, other, states = two_sessions()
    one.cut_off()
    with pytest.raises(Unavailable):
        one.get("/")
    clock.run_until(900 * MILLISECOND_US)
    one.reconnect()
    clock.run_until(1_800 * MILLISECOND_US)
    assert other.exists("/held") is not None
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]


def test_the_session_of_an_ended_process_times_out() -> None:
    clock, one, other, _ = two_sessions()
    one.abandon()
    clock.run_until(900 * MILLISECOND_US)
    assert other.exists("/held") is not None
    clock.run_until(1_100 * MILLISECOND_US)
    assert other.exists("/held") is None
