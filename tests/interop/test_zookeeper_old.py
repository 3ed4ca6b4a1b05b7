"""A ZooKeeper of the days of Kafka 0.11, which lacks what newer ones have."""

from __future__ import annotations

from pathlib import Path

from kafka_zookeeper import OLD_KAFKA, V0, ZooKeeper

from odradek.coordination.tree import Create
from odradek.coordination.zookeeper import open_zookeeper

pytestmark = OLD_KAFKA


def test_many_are_read_from_one_that_has_no_multi_read(tmp_path: Path) -> None:
    """ZooKeeper before 3.6 does not know that request, and says so; the nodes are read one by one then."""
    with ZooKeeper(tmp_path, version=V0) as zookeeper:
        tree = open_zookeeper(f"127.0.0.1:{zookeeper.port}")
        tree.multi([Create("/many"), *(Create(f"/many/{number}", b"%d" % number) for number in range(0, 600, 2))])
        paths = [f"/many/{number}" for number in range(600)]
        for _ in range(2):
            found = tree.get_all(paths)
            assert [node and node[0] for node in found] == [
                None if number % 2 else b"%d" % number for number in range(600)
            ]
        assert found[4] == tree.get(paths[4])
        tree.close()
    assert b"3.4." in (tmp_path / "zookeeper.txt").read_bytes(), "it is an old one"
