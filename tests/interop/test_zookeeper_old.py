"""A ZooKeeper of Kafka 0.11's time, which lacks newer requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_zookeeper import OLD_KAFKA, V0, V3, ZooKeeper

from odradek.coordination.tree import Create, NoAuth, SessionState
from odradek.coordination.zookeeper import open_zookeeper

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("kills brokers on a ZooKeeper of its own")]


def test_many_nodes_are_read_without_multi_read(tmp_path: Path) -> None:
    """ZooKeeper before 3.6 rejects that request, and the nodes are read one by one then."""
    with ZooKeeper(tmp_path, version=V0) as zookeeper:
        tree = open_zookeeper(f"127.0.0.1:{zookeeper.port}")
        states: list[SessionState] = []
        tree.on_session(states.append)
        tree.multi([Create("/many"), *(Create(f"/many/{number}", b"%d" % number) for number in range(0, 600, 2))])
        paths = [f"/many/{number}" for number in range(600)]
        for _ in range(2):
            found = tree.get_all(paths)
            assert [node and node[0] for node in found] == [
                None if number % 2 else b"%d" % number for number in range(600)
            ]
        assert found[4] == tree.get(paths[4])
        assert not states, "the connection that it closes is none that anybody uses"
        tree.close()
    assert b"3.4." in (tmp_path / "zookeeper.txt").read_bytes(), "it is an old one"


@pytest.mark.parametrize("version", [V0, V3])
def test_a_refused_read_of_many_names_the_node(tmp_path: Path, version: str) -> None:
    from kazoo.client import KazooClient
    from kazoo.security import make_digest_acl

    with ZooKeeper(tmp_path, version=version) as zookeeper:
        owner = KazooClient(hosts=f"127.0.0.1:{zookeeper.port}")
        owner.start()
        owner.create("/secret", b"x", acl=[make_digest_acl("owner", "password", all=True)])
        owner.stop()
        tree = open_zookeeper(f"127.0.0.1:{zookeeper.port}")
        with pytest.raises(NoAuth, match=r"^/secret: "):
            tree.get_all(["/", "/nothing", "/secret", "/"])
        tree.close()
