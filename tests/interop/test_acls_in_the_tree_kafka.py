"""A cluster with access control: a broker that would serve everybody refuses to start unless configured to."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka_zookeeper import OLD_KAFKA, V3, OldKafka

from odradek.coordination import tree_layout as layout
from odradek.coordination.zookeeper import open_zookeeper
from support.serving import Serving, outcome_of_serve
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

AUTHORIZED = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
READ = (ResourceType.TOPIC, "flights", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ)
PATH = layout.acl("Topic", "flights")


@pytest.mark.slow
def test_stored_kafka_acls_prevent_the_start(tmp_path: Path) -> None:
    with OldKafka(tmp_path / "1", V3, AUTHORIZED) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
        bound = AclBinding(*READ, AclPermissionType.ALLOW)
        admin.create_acls([bound])[bound].result(SECONDS_MAX)
        tree = open_zookeeper(kafka.zookeeper_address)
        until(lambda: tree.exists(PATH) is not None)
        acls = tree.get(PATH)[0]
        own = {"broker.id": "2", "zookeeper.connect": kafka.zookeeper_address, "log.dirs": str(tmp_path / "data")}
        own |= {"listeners": "PLAINTEXT://127.0.0.1:0"}
        arguments = [f"--override={key}={value}" for key, value in own.items()]

        status, output = outcome_of_serve(tmp_path, *arguments)
        where = f"The metadata in {kafka.zookeeper_address} has ACLs (/kafka-acl/Topic/flights)"
        assert status == 2
        assert (
            f"odradek serve: {where}, but access control is not supported yet, and every client would be served: "
            in output
        )
        assert tree.children(layout.BROKER_IDS) == ["1"]
        assert not (tmp_path / "data").exists()

        with Serving(tmp_path, "--insecure", **own) as ours:
            until(lambda: tree.children(layout.BROKER_IDS) == ["1", "2"])
            assert f"the ACLs in {kafka.zookeeper_address} have no effect" in ours.errors()
        assert tree.get(PATH)[0] == acls

        bounds = AclBindingFilter(*READ, AclPermissionType.ALLOW)
        assert admin.delete_acls([bounds])[bounds].result(SECONDS_MAX) == [bound]
        until(lambda: tree.exists(PATH) is None)
        with Serving(tmp_path, **own):  # The authorizer's nodes are still there.
            assert "Topic" in tree.children(layout.ACL)
        tree.close()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("authorizer.class.name", AUTHORIZED["authorizer.class.name"], "authorizer.class.name is set, but"),
        ("listeners", "SASL_PLAINTEXT://127.0.0.1:0", "uses SASL_PLAINTEXT, which is not supported yet"),
        (
            "security.inter.broker.protocol",
            "SASL_PLAINTEXT",
            "inter.broker.listener.name must be a listener name defined in advertised.listeners",
        ),
    ],
)
def test_a_configuration_with_access_control_is_refused(tmp_path: Path, key: str, value: str, message: str) -> None:
    """Access control settings are refused before the start touches anything, even ZooKeeper: there is none here."""
    own = {"zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": "500", key: value}
    status, output = outcome_of_serve(tmp_path, *(f"--override={name}={text}" for name, text in own.items()))
    assert (status, message in output) == (2, True), output
