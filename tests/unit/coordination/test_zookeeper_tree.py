"""What only a tree over a network has: losing the connection, losing the session, nobody there."""

from __future__ import annotations

import socket
from queue import SimpleQueue

import pytest

from odradek.coordination.tree import SessionExpired, SessionState, Unavailable

pytestmark = pytest.mark.slow

TIMEOUT_MS = 60_000  # A machine that does much else starts a ZooKeeper slowly.

pytest.importorskip("kazoo", reason="ZooKeeper is reached through kazoo.")


@pytest.mark.java
def test_an_expired_session_stays_expired(zookeeper: str) -> None:
    from kazoo.client import KazooClient

    from odradek.coordination.zookeeper import ZooKeeperTree

    states: SimpleQueue[SessionState] = SimpleQueue()
    tree = ZooKeeperTree(zookeeper, TIMEOUT_MS, TIMEOUT_MS)
    tree.on_session(states.put)
    tree.create("/expiring", ephemeral=True)
    # Whoever has the id and the password of a session can end it.
    thief = KazooClient(hosts=zookeeper, client_id=tree._client.client_id)
    thief.start()
    thief.stop()
    while states.get(timeout=60) is not SessionState.EXPIRED:
        pass
    for _ in range(2):
        with pytest.raises(SessionExpired):
            tree.exists("/expiring")
    tree.close()
    again = ZooKeeperTree(zookeeper, TIMEOUT_MS, TIMEOUT_MS)
    assert again.exists("/expiring") is None
    again.close()


def test_nobody_there() -> None:
    from odradek.coordination.zookeeper import open_zookeeper

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        hosts = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(Unavailable, match=f"ZooKeeper at {hosts} did not answer for 300 ms"):
        open_zookeeper(f"{hosts}/kafka", session_timeout_ms=5_000, connection_timeout_ms=300)
