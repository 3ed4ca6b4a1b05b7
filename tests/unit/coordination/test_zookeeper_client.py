"""Setup of the kazoo client: ACLs of Kafka's znodes, and failing connections."""

from __future__ import annotations

import socket
import ssl

import pytest

pytest.importorskip("kazoo", reason="ZooKeeper is reached through kazoo.")

from odradek.coordination.zookeeper_client import Acls, PlainHandler, TlsHandler

pytestmark = pytest.mark.waits

CREATOR, WORLD = ("auth", ""), ("world", "anyone")


@pytest.mark.parametrize("root", ["", "/kafka", "/a/b"])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/brokers/ids/1", {CREATOR: 31, WORLD: 1}),
        ("/config/topics/users", {CREATOR: 31, WORLD: 1}),
        ("/consumers/g", {CREATOR: 31, WORLD: 1}),
        ("/consumers", None),
        ("/config/users", {CREATOR: 31}),
        ("/config/users/u/clients/c", {CREATOR: 31}),
        ("/config/brokers/<default>", {CREATOR: 31}),
        ("/delegation_token/tokens/t", {CREATOR: 31}),
        ("/delegation_token/token_changes", {CREATOR: 31, WORLD: 1}),
    ],
)
def test_znodes_have_the_acls_of_kafka(root: str, path: str, expected: dict[tuple[str, str], int] | None) -> None:
    found = Acls(root, sets_acls=True).of(root + path)
    assert (found and {(one.id.scheme, one.id.id): one.perms for one in found}) == expected
    assert Acls(root).of(root + path) is None


def test_chroot_and_its_parents_are_readable_by_everyone() -> None:
    for path in ("/kafka", "/kafka/config"):
        assert len(Acls("/kafka/config", sets_acls=True).of(path) or ()) == 2


class EmptyTrust:
    """TLS settings that trust no certificate; failures are described by the error's type."""

    def context(self) -> ssl.SSLContext:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def reason(self, error: OSError) -> str:
        return type(error).__name__


def test_tls_handshake_with_a_silent_server_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        handler = TlsHandler(0.2, EmptyTrust())
        with pytest.raises(TimeoutError):
            handler.create_connection(silent.getsockname(), hostname="localhost", timeout=3_600)
    assert handler.failure == "TimeoutError"


def test_refused_connection_is_not_a_tls_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    for handler in (PlainHandler(60), TlsHandler(60, EmptyTrust())):
        with pytest.raises(ConnectionRefusedError):
            handler.create_connection(address, timeout=3_600)
    assert handler.failure is None
