"""Detection of a lone active connection: almost all requests come from it."""

from __future__ import annotations

from odradek.net.loop.active_connections import ALONE_MS, CHANGES_MAX, ActiveConnections

CONSUMER, OTHER = object(), object()


def take_turns(connections: ActiveConnections, since: int, changes: int, every_ms: int = 1) -> int:
    """Record requests of two connections in turn; return the time of the last."""
    now = since
    for number in range(changes):
        now = since + number * every_ms
        connections.hear((OTHER, CONSUMER)[number % 2], now)
    return now


def test_single_connection_is_alone_however_much_it_sends() -> None:
    connections = ActiveConnections()
    for now in range(1_000, 2_000):
        connections.hear(CONSUMER, now)
        assert connections.is_one(now)


def test_two_alternating_connections_are_not_alone() -> None:
    connections = ActiveConnections()
    now = take_turns(connections, since=1_000, changes=CHANGES_MAX)
    assert not connections.is_one(now)
    assert not connections.is_one(1_000 + ALONE_MS - 1)
    assert connections.is_one(1_000 + ALONE_MS), "one of the two is silent since"


def test_occasional_long_polls_do_not_change_the_result() -> None:
    """Each is a change to another connection and one back."""
    connections = ActiveConnections()
    for start in range(1_000, 10_000, 100):
        now = take_turns(connections, since=start, changes=2)
        assert connections.is_one(now)
