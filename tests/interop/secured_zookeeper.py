"""ZooKeeper servers with authentication and TLS for tests, and the configuration of their clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka_peer import free_port
from kafka_zookeeper import ZooKeeper

from support.certificates import PASSWORD, Authority, Known, written

USER, USER_PASSWORD = "kafka", 'se"cret; \\ of the {user}'
NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
# ZooKeeper enables no suite of TLS 1.3 by default.
SUITES = ("TLS_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


def jaas(folder: Path, user: str = USER, password: str = USER_PASSWORD) -> Path:
    """Return a JAAS file for a broker."""
    path = folder / "jaas.conf"
    path.write_text(
        "// Of a broker.\nKafkaServer { x.Y required; };\n"
        f"Client {{\n  {MODULE} required\n  username={quoted(user)}\n  password={quoted(password)};\n}};\n"
    )
    return path


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class SecuredZooKeeper(ZooKeeper):
    """A server with plaintext at `port` and TLS at `secure_port`; it knows USER by SASL, and clients by certificate."""

    def __init__(
        self, folder: Path, authority: Authority, own: Known, *, client_auth: str = "none", **more: str
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.secure_port = free_port()
        users = folder / "server_jaas.conf"
        users.write_text(f"Server {{ {MODULE} required user_{USER}={quoted(USER_PASSWORD)}; }};\n")
        provider = "org.apache.zookeeper.server.auth"
        settings = {
            "secureClientPort": str(self.secure_port),
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.sasl": f"{provider}.SASLAuthenticationProvider",
            "authProvider.x509": f"{provider}.X509AuthenticationProvider",
            "ssl.keyStore.location": written(folder / "own.p12", own.pkcs12()),
            "ssl.keyStore.password": PASSWORD,
            "ssl.trustStore.location": written(folder / "trusted.p12", authority.pkcs12()),
            "ssl.trustStore.password": PASSWORD,
            "ssl.clientAuth": client_auth,
            "ssl.enabledProtocols": "TLSv1.2,TLSv1.3",
            "ssl.ciphersuites": ",".join(SUITES),
        }
        # base64(sha1("super:super")): a user with all permissions.
        root = "super:gG7s8t3oDEtIqF6DM9LlI/R+9Ss="
        options = [
            f"-Djava.security.auth.login.config={users}",
            f"-Dzookeeper.DigestAuthenticationProvider.superDigest={root}",
        ]
        super().__init__(folder, settings | more, options=options)

    @property
    def plain(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def secure(self) -> str:
        return f"127.0.0.1:{self.secure_port}"


@contextmanager
def super_user(zookeeper: SecuredZooKeeper) -> Iterator[Any]:
    """Return a kazoo client with all permissions."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=zookeeper.plain, timeout=60, auth_data=[("digest", "super:super")])
    client.start(timeout=60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def acls(client: Any, root: str) -> dict[str, list[tuple[str, str, int]]]:
    """Return the ACLs by the path below `root`: scheme, name, permissions."""
    found = {}
    waiting = [root]
    while waiting:
        path = waiting.pop()
        entries, _ = client.get_acls(path)
        found[path.removeprefix(root)] = sorted((entry.id.scheme, entry.id.id, entry.perms) for entry in entries)
        waiting += (f"{path}/{name}" for name in client.get_children(path))
    return found


def tls_texts(folder: Path, authority: Authority, own: Known | None = None) -> Mapping[str, str]:
    """Return a broker's config keys, with PKCS12 stores."""
    texts = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": NETTY,
        "zookeeper.ssl.truststore.location": written(folder / "truststore.p12", authority.pkcs12()),
        "zookeeper.ssl.truststore.password": PASSWORD,
    }
    if own is not None:
        texts["zookeeper.ssl.keystore.location"] = written(folder / "keystore.p12", own.pkcs12())
        texts["zookeeper.ssl.keystore.password"] = PASSWORD
    return texts
