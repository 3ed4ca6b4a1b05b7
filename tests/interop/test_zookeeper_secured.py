"""A tree on a ZooKeeper with TLS and authentication, opened with a broker's keys, which are Kafka's.

The ACLs of znodes are compared with those that Apache Kafka 3.9.1 sets with the same keys.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

import pytest
from contents import create_topics
from kafka_zookeeper import OLD_KAFKA, V3, OldKafka, ZooKeeper
from secured_zookeeper import USER, SecuredZooKeeper, acls, jaas, super_user, tls_texts

from odradek.app.config.zookeeper_settings import open_tree
from odradek.app.main import main
from odradek.coordination import claims
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.tree import (
    Create,
    MultiFailed,
    NoAuth,
    SessionState,
    Tree,
    Unavailable,
    ensure_paths,
)
from odradek.core.configs.broker_configs import BrokerConfigs
from support.certificates import Authority, Known, written
from support.terminals import own

pytest.importorskip("kazoo", reason="ZooKeeper is reached through kazoo.")
pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("logs in to a ZooKeeper that demands it")]

NEEDS_SASL = pytest.mark.skipif(importlib.util.find_spec("puresasl") is None, reason="DIGEST-MD5 is pure-sasl's.")
CONNECT, SET_ACL = "zookeeper.connect", {"zookeeper.set.acl": "true"}
AUTH = "odradek.zookeeper.auth"
ONE, OTHER = {AUTH: "digest:one:pass:word"}, {AUTH: "digest:other:word"}
ALL, READ = 31, 1
WORLD_READS = ("world", "anyone", READ)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Known:
    return authority.known("broker.example", common_name="broker one")


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecuredZooKeeper]:
    """Start a server that requires certificates of its TLS clients."""
    folder = tmp_path_factory.mktemp("mutual")
    with SecuredZooKeeper(folder, authority, authority.known(), client_auth="need") as running:
        yield running


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecuredZooKeeper]:
    """Start a server that requires no certificate, and has one for the name localhost only."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with SecuredZooKeeper(folder, authority, authority.known("localhost")) as running:
        yield running


def opened(connect: str, *texts: dict[str, str]) -> Tree:
    given = {CONNECT: connect, "zookeeper.session.timeout.ms": "10000", "zookeeper.connection.timeout.ms": "60000"}
    for each in texts:
        given |= each
    return open_tree(BrokerConfigs.parse(given))


def no_tree(connect: str, *texts: dict[str, str]) -> str:
    with pytest.raises(Unavailable) as raised:
        opened(connect, {"zookeeper.connection.timeout.ms": "2000"}, *texts)
    return str(raised.value)


# TLS.


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_many_responses_arrive_over_tls(
    protocol: str, mutual: SecuredZooKeeper, authority: Authority, broker: Known, tmp_path: Path
) -> None:
    """One TLS record has many responses: none may wait in it for the next one."""
    configs = dict(tls_texts(tmp_path, authority, broker)) | {"zookeeper.ssl.protocol": protocol}
    paths = [f"/{number}" for number in range(2_000)]
    for in_flight in ("1000", "10"):
        root = f"/many-{protocol}-{in_flight}"
        with closing(opened(mutual.secure + root, configs, {"zookeeper.max.in.flight.requests": in_flight})) as tree:
            tree.multi([Create(path, path.encode() * 20) for path in paths])
            read = tree.get_all([*paths, "/none"])
            assert [found and found[0] for found in read] == [*(path.encode() * 20 for path in paths), None]


def test_pem_stores_are_used(mutual: SecuredZooKeeper, authority: Authority, broker: Known, tmp_path: Path) -> None:
    configs = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": written(tmp_path / "own.pem", broker.pem),
        "zookeeper.ssl.truststore.location": written(tmp_path / "trusted.pem", authority.pem),
    }
    with closing(opened(f"{mutual.secure}/pem/chroot", configs, SET_ACL)) as tree:
        tree.create("/a")
    with super_user(mutual) as client:
        for path in ("/pem", "/pem/chroot", "/pem/chroot/a"):
            (world, own) = sorted(acls(client, path)[""])
            assert world == WORLD_READS and own[0] == "x509" and "CN=broker one" in own[1] and own[2] == ALL


def test_the_name_of_the_server_is_checked(elsewhere: SecuredZooKeeper, authority: Authority, tmp_path: Path) -> None:
    """The name is the one in zookeeper.connect, whatever its address."""
    trusting = dict(tls_texts(tmp_path, authority))
    with closing(opened(f"localhost:{elsewhere.secure_port}", trusting)) as tree:
        assert tree.children("/") == ["zookeeper"]
    unchecked = {"zookeeper.ssl.endpoint.identification.algorithm": ""}
    with closing(opened(elsewhere.secure, trusting, unchecked)) as tree:
        assert tree.children("/") == ["zookeeper"]


def test_tls_failures_name_the_reason(
    mutual: SecuredZooKeeper, elsewhere: SecuredZooKeeper, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority()
    (tmp_path / "stranger").mkdir()
    trusting = dict(tls_texts(tmp_path, authority))
    newer = {"zookeeper.ssl.protocol": "TLSv1.3"}
    beginning = f"TLS handshake with ZooKeeper at {mutual.secure} failed:"
    for texts in (trusting, trusting | newer):
        assert no_tree(mutual.secure, texts) == (
            f"{beginning} the server requires a client certificate: set zookeeper.ssl.keystore.location."
        )
    unknown = dict(tls_texts(tmp_path, authority, stranger.known()))
    for texts in (unknown, unknown | newer):
        assert f"{beginning} the server rejected the client certificate" in no_tree(mutual.secure, texts)
    assert f"{beginning} the server's certificate is not trusted: " in no_tree(
        mutual.secure, dict(tls_texts(tmp_path / "stranger", stranger))
    )
    assert no_tree(elsewhere.secure, trusting) == (
        f"TLS handshake with ZooKeeper at {elsewhere.secure} failed: "
        "the server's certificate does not match the address: certificate is not valid for '127.0.0.1'."
    )
    assert (
        f"TLS handshake with ZooKeeper at {mutual.plain} failed: the server closed the connection during the handshake"
        in no_tree(mutual.plain, trusting)
    )
    assert no_tree(mutual.secure) == f"ZooKeeper at {mutual.secure} did not respond within 2000 ms."


def test_a_plain_server_with_nio_is_reported(authority: Authority, tmp_path: Path) -> None:
    """The server uses its default I/O implementation, unlike the others here."""
    with ZooKeeper(tmp_path / "plain") as running:
        output = no_tree(f"127.0.0.1:{running.port}", dict(tls_texts(tmp_path, authority)))
    assert "the server closed the connection during the handshake" in output


# Users and ACLs.


def test_acls_refuse_another_session(mutual: SecuredZooKeeper) -> None:
    connect = f"{mutual.plain}/guarded"
    with closing(opened(connect, ONE, SET_ACL)) as tree:
        ensure_paths(tree, ["/config/users/u", "/config/topics/t", "/consumers"])
        tree.create("/config/brokers", b"secret")
    with closing(opened(connect, OTHER)) as tree:
        assert tree.children("/config") == ["brokers", "topics", "users"] and tree.exists("/config/topics/t")
        for path in ("/config/users", "/config/users/u", "/config/brokers"):
            with pytest.raises(NoAuth, match=r"^/guarded/config/.*: the ACL of the znode or of its parent denies "):
                tree.get(path)
        for change in (
            lambda: tree.set("/config/topics/t", b"x"),
            lambda: tree.create("/config/topics/other"),
            lambda: tree.delete("/config/topics/t"),
            lambda: tree.exists("/config/users/u"),
            lambda: tree.get_all(["/config/topics/t", "/config/users/u"]),
        ):
            with pytest.raises(NoAuth):
                change()
        with pytest.raises(MultiFailed) as raised:
            tree.multi([Create("/consumers/x"), Create("/config/topics/other")])
        assert raised.value.index == 1 and isinstance(raised.value.error, NoAuth)
        assert not tree.children("/consumers")
        tree.create("/consumers/x")
    with closing(opened(connect, ONE, SET_ACL)) as tree:
        assert tree.get("/config/brokers")[0] == b"secret"
        tree.delete("/config/topics/t")


def test_znodes_are_open_without_set_acl(mutual: SecuredZooKeeper) -> None:
    with closing(opened(f"{mutual.plain}/open", ONE)) as tree:
        ensure_paths(tree, ["/config/users"])
    with super_user(mutual) as client:
        assert set(map(tuple, acls(client, "/open").values())) == {(("world", "anyone", ALL),)}


def test_no_password_is_logged(mutual: SecuredZooKeeper, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), closing(opened(mutual.plain, ONE)) as tree:
        tree.children("/")
    assert "GetChildren" in caplog.text and "pass:word" not in caplog.text


def test_a_session_continues_as_the_same_user(authority: Authority, broker: Known, tmp_path: Path) -> None:
    """After a restart of the server kazoo repeats TLS and authentication."""
    own = authority.known()
    server = SecuredZooKeeper(tmp_path / "server", authority, own, client_auth="need", maxSessionTimeout="600000")
    configs, states = dict(tls_texts(tmp_path, authority, broker)), SimpleQueue[SessionState]()
    patient = {"zookeeper.session.timeout.ms": "600000"}
    with server:
        tree = opened(f"{server.secure}/again", configs, ONE, SET_ACL, patient)
        tree.on_session(states.put)
        tree.create("/a", ephemeral=True)
    assert states.get(timeout=300) is SessionState.SUSPENDED
    with server:
        while states.get(timeout=300) is not SessionState.CONNECTED:
            pass
        tree.create("/b")
        with super_user(server) as client:
            for path in ("/again/a", "/again/b"):
                assert {one[0] for one in acls(client, path)[""]} == {"digest", "x509", "world"}
        assert tree.exists("/a")
        tree.close()


@NEEDS_SASL
def test_a_sasl_user_is_authenticated(mutual: SecuredZooKeeper, elsewhere: SecuredZooKeeper, tmp_path: Path) -> None:
    known = {"java.security.auth.login.config": str(jaas(tmp_path))}
    with closing(opened(f"{mutual.plain}/sasl", known, SET_ACL)) as tree:
        tree.create("/a")
    with super_user(mutual) as client:
        assert acls(client, "/sasl") == {path: [("sasl", USER, ALL), WORLD_READS] for path in ("", "/a")}
    known = {"java.security.auth.login.config": str(jaas(tmp_path, password="another"))}
    assert no_tree(mutual.plain, known) == f"ZooKeeper at {mutual.plain} failed to authenticate user {USER}."


@NEEDS_SASL
def test_a_server_without_sasl_is_reported(tmp_path: Path) -> None:
    known = {"java.security.auth.login.config": str(jaas(tmp_path)), "zookeeper.session.timeout.ms": "2000"}
    with ZooKeeper(tmp_path / "bare") as running:
        output = no_tree(f"127.0.0.1:{running.port}", known)
    assert output == f"ZooKeeper at 127.0.0.1:{running.port} failed to authenticate user {USER}."


def test_a_session_without_access_to_the_root_works(tmp_path: Path, authority: Authority) -> None:
    """A session that cannot read the root of the ensemble is authenticated all the same."""
    from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

    with SecuredZooKeeper(tmp_path / "server", authority, authority.known()) as server, super_user(server) as client:
        client.create("/mine", acl=OPEN_ACL_UNSAFE)
        client.set_acls("/", [make_digest_acl("somebody", "else", all=True)])
        with closing(opened(f"{server.plain}/mine", ONE, SET_ACL)) as tree:
            tree.create("/a")
        assert {one[0] for one in acls(client, "/mine")["/a"]} == {"digest", "world"}
        with pytest.raises(NoAuth, match=r"^/other: the ACL of the znode or of its parent denies this session"):
            opened(f"{server.plain}/other", ONE, SET_ACL)


# Apache Kafka.


@pytest.mark.parametrize("way", ["tls", pytest.param("sasl", marks=NEEDS_SASL)])
def test_acls_equal_kafkas(
    way: str, mutual: SecuredZooKeeper, authority: Authority, broker: Known, tmp_path: Path
) -> None:
    """With the same keys, each side has access to the nodes of the other."""
    options: list[str] = []
    settings = SET_ACL | {"zookeeper.connection.timeout.ms": "60000"}
    if way == "tls":
        address, settings = mutual.secure, settings | dict(tls_texts(tmp_path, authority, broker))
    else:
        address = mutual.plain
        options = [f"-Djava.security.auth.login.config={jaas(tmp_path)}"]
    theirs, ours = f"/theirs-{way}/kafka", f"/ours-{way}/kafka"
    with OldKafka(tmp_path / "kafka", V3, settings, zookeeper=address + theirs, options=options) as kafka:
        create_topics(kafka.address, {"t": (2, {"retention.ms": "-1"})})
        with super_user(mutual) as client:
            made = acls(client, theirs)
            above = acls(client, f"/theirs-{way}")[""]
    own = settings | ({} if way == "tls" else {"java.security.auth.login.config": str(jaas(tmp_path))})
    with closing(opened(address + ours, own)) as tree:
        ensure_paths(tree, [path for path in made if path])
        with super_user(mutual) as client:
            assert acls(client, ours) == made
            assert acls(client, f"/ours-{way}")[""] == above
    assert {"/config/users", "/config/brokers", "/consumers", "/brokers/topics/t/partitions/1/state"} <= made.keys()
    scheme = {"tls": "x509", "sasl": "sasl"}[way]
    assert {entry[0] for entry in made["/config/topics/t"]} == {scheme, "world"}
    with closing(opened(address + theirs, own)) as tree:
        assert tree.children("/config/users") == []
        data, stat = tree.get("/config/topics/t")
        tree.set("/config/topics/t", data, stat.version)


# odradek tree copy.


def test_tree_copy_uses_the_brokers_configuration(
    mutual: SecuredZooKeeper, authority: Authority, broker: Known, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "from").mkdir()
    with SqliteTree(tmp_path / "from" / "metadata.sqlite") as tree:
        ensure_paths(tree, ["/config/users", "/brokers/topics"])
        claims.cluster_id(tree, "AAAAAAAAAAAAAAAAAAAAAQ")
    lines = dict(tls_texts(tmp_path, authority, broker)) | SET_ACL
    lines |= {"log.dirs": "/nowhere", "no.key.of.a.broker": "1", CONNECT: "nowhere:1"}
    config = written(tmp_path / "server.properties", "".join(f"{key}={value}\n" for key, value in lines.items()))
    ensemble = f"{mutual.secure}/copied"

    def copy(*arguments: object) -> tuple[int, str]:
        status = main(["tree", "copy", *map(str, arguments)])
        captured = capfd.readouterr()
        return status, captured.out + own(captured.err)

    assert copy(tmp_path / "from", ensemble, "--config", config)[0] == 0
    with super_user(mutual) as client:
        found = acls(client, "/copied")
    assert [entry[0] for entry in found["/config/users"]] == ["x509"]
    assert WORLD_READS in found["/cluster/id"]
    assert copy(ensemble, tmp_path / "back", "--config", config)[0] == 0

    status, output = copy(f"{mutual.plain}/copied", tmp_path / "without")
    assert (status, output.count("\n")) == (1, 1)
    assert output.startswith(
        "odradek: /copied/config/users: the ACL of the znode or of its parent denies this session the permission"
    )
    written(tmp_path / "server.properties", "zookeeper.set.acl=true\n")
    status, output = copy(ensemble, tmp_path / "without", "--config", config)
    assert (status, output.count("\n")) == (2, 1)
    assert "zookeeper.set.acl is true, but this broker does not authenticate" in output
    status, output = copy(ensemble, tmp_path / "without", "--config", tmp_path / "none")
    assert (status, output.count("\n")) == (2, 1) and "Cannot read the configuration file" in output
