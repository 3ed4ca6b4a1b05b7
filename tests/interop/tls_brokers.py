"""Brokers with TLS: one of ours behind a TLS proxy, and Apache Kafka.

Three listeners: one requests no certificate, one requires it, and the certificate of the third has expired.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from kafka_peer import KafkaBroker

from odradek.tls.tls_config import TlsConfig
from support.certificates import PASSWORD, Authority, Known
from support.ports import free_port
from support.serving import Serving
from support.tls_proxy import TlsProxy

OPEN, MUTUAL, EXPIRED = "open", "mutual", "expired"
AUTH = {OPEN: "none", MUTUAL: "required", EXPIRED: "none"}


@dataclass
class Secured:
    """A broker with its three listeners, and a plaintext one."""

    authority: Authority
    addresses: dict[str, str]
    plain: str
    proxies: dict[str, TlsProxy] = field(default_factory=dict)


def store_texts(known: Known, authority: Authority, auth: str) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": known.chain,
        "ssl.keystore.key": known.pkcs8_key(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
        "ssl.client.auth": auth,
    }


def known_of(authority: Authority, name: str) -> Known:
    return authority.known("localhost", expired=name == EXPIRED)


def behind_proxies(folder: Path, stack: ExitStack) -> Secured:
    """Start a broker that advertises the first proxy to all of its clients except plaintext ones."""
    authority = Authority()
    proxies = {
        name: stack.enter_context(TlsProxy(TlsConfig.parse(store_texts(known_of(authority, name), authority, auth))))
        for name, auth in AUTH.items()
    }
    ports = {name: free_port() for name in AUTH}
    plain = free_port()
    listeners = {**{name.upper(): port for name, port in ports.items()}, "PLAINTEXT": plain}
    broker = Serving(folder)
    overrides = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
        "advertised.listeners": ",".join(f"{name.upper()}://{proxy.address}" for name, proxy in proxies.items()),
    }
    stack.callback(broker.stop)
    broker.start(overrides)
    for name, proxy in proxies.items():
        proxy.target_port = ports[name]
    addresses = {name: proxy.address for name, proxy in proxies.items()}
    return Secured(authority, addresses, f"localhost:{plain}", proxies)


def apache_kafka(folder: Path, stack: ExitStack) -> Secured:
    authority = Authority()
    ports = {name: free_port() for name in (*AUTH, "controller", "plaintext")}
    settings = {
        "controller.quorum.voters": f"1@127.0.0.1:{ports['controller']}",
        "listeners": ",".join(f"{name.upper()}://127.0.0.1:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(
            f"{name.upper()}://localhost:{port}" for name, port in ports.items() if name != "controller"
        ),
        "listener.security.protocol.map": ",".join(
            f"{name.upper()}:{'SSL' if name in AUTH else 'PLAINTEXT'}" for name in ports
        ),
    }
    for name, auth in AUTH.items():
        for key, text in store_texts(known_of(authority, name), authority, auth).items():
            settings[f"listener.name.{name}.{key}"] = text.replace("\n", "\\n")
    stack.enter_context(KafkaBroker(folder, settings=settings))
    addresses = {name: f"localhost:{ports[name]}" for name in AUTH}
    return Secured(authority, addresses, f"localhost:{ports['plaintext']}")


def trusting(secured: Secured, **more: str) -> dict[str, str]:
    texts = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": secured.authority.pem,
    }
    return texts | {name.replace("_", "."): text for name, text in more.items()}


def keystore(known: Known) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": known.chain,
        "ssl.keystore.key": known.encrypted_key(),
        "ssl.key.password": PASSWORD,
    }
