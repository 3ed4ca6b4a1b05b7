"""Behaviour of trees over a network only: lost connections, expired sessions, unreachable servers."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from odradek.coordination.tree import Create, SessionExpired, SessionState, Unavailable
from support.ports import free_port

pytestmark = pytest.mark.slow

TIMEOUT_MS = 60_000  # A machine that does much else starts a ZooKeeper slowly.

pytest.importorskip("kazoo", reason="ZooKeeper is reached through kazoo.")


@pytest.mark.java
def test_expired_session_stays_expired(zookeeper: str) -> None:
    from kazoo.client import KazooClient

    from odradek.coordination.zookeeper import ZooKeeperTree

    states: SimpleQueue[SessionState] = SimpleQueue()
    tree = ZooKeeperTree(zookeeper, TIMEOUT_MS, TIMEOUT_MS)
    tree.on_session(states.put)
    tree.create("/expiring", ephemeral=True)
    # A client with the id and the password of a session can end it.
    client = KazooClient(hosts=zookeeper, client_id=tree._client.client_id)
    client.start()
    client.stop()
    while states.get(timeout=60) is not SessionState.EXPIRED:
        pass
    for _ in range(2):
        with pytest.raises(SessionExpired):
            tree.exists("/expiring")
    tree.close()
    again = ZooKeeperTree(zookeeper, TIMEOUT_MS, TIMEOUT_MS)
    assert again.exists("/expiring") is None
    again.close()


@pytest.mark.java
def test_node_created_without_data_has_null_data(zookeeper: str) -> None:
    """As in Kafka, whose broker fails if /latest_producer_id_block is empty instead of without data."""
    from kazoo.client import KazooClient

    from odradek.coordination.zookeeper import ZooKeeperTree

    tree = ZooKeeperTree(zookeeper, TIMEOUT_MS, TIMEOUT_MS)
    tree.create("/bare")
    tree.multi([Create("/bare/0"), Create("/bare/1", b"1")])
    assert [tree.get(path)[0] for path in ("/bare", "/bare/0", "/bare/1")] == [b"", b"", b"1"]
    client = KazooClient(hosts=zookeeper)
    client.start()
    raw = [client.get_async(path).get() for path in ("/bare", "/bare/0", "/bare/1")]
    assert [(data, stat.dataLength) for data, stat in raw] == [(None, 0), (None, 0), (b"1", 1)]
    client.stop()
    tree.close()


@pytest.mark.waits
def test_unreachable_server_raises_unavailable() -> None:
    from odradek.coordination.zookeeper import open_zookeeper

    hosts = f"127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match=f"ZooKeeper at {hosts} did not respond within 300 ms"):
        open_zookeeper(f"{hosts}/kafka", session_timeout_ms=5_000, connection_timeout_ms=300)
