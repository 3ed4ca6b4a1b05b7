"""Checks of each broker at its advertised address.

After bootstrap, clients use the advertised addresses, whatever address they were given. The classic mistake is an
address that means something else to its reader: localhost, the name of a container, an address inside a container
network, or a port before it was mapped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import chain

from odradek.app.doctor.described_cluster import Cluster, Identity, request_cluster, request_identity
from odradek.app.doctor.findings import Finding, note, ok, wrong
from odradek.app.doctor.peer_protocol import identify
from odradek.app.doctor.reach import Attempt, Unresolved, as_ip, attempt, is_loopback, resolve
from odradek.app.doctor.set_aside_logs import examine_offline_dirs
from odradek.client.cluster.topic_metadata import Broker
from odradek.client.connection.broker_connection import Connection, format_address
from odradek.client.connection.client_config import Address, ClientConfig
from odradek.client.connection.client_errors import ClientError, TlsRefused

BROKERS_MAX = 200
AT_ONCE = 16
CONTAINER_ID = re.compile(r"[0-9a-f]{12}")
CONTAINER_NETWORK = IPv4Network("172.16.0.0/12")  # Docker's default address pool.


@dataclass(frozen=True, slots=True)
class BootstrapServer:
    """Bootstrap address as given, the IP address it resolved to, and the broker that answered there."""

    given: Address
    ip: str
    cluster: Cluster
    identity: Identity | None
    timeout_seconds: float

    @property
    def node(self) -> int | None:
        """Return the id of the broker behind the given address, or None if it is unknown."""
        if self.identity is not None and self.identity.node >= 0:
            return self.identity.node
        return self.cluster.brokers[0].id if len(self.cluster.brokers) == 1 else None


def examine_brokers(bootstrap: BootstrapServer, config: ClientConfig) -> Iterable[Finding]:
    brokers = sorted(bootstrap.cluster.brokers, key=lambda broker: broker.id)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = threads.map(lambda broker: examine_broker(broker, bootstrap, config), brokers[:BROKERS_MAX])
        yield from chain.from_iterable(found)
    if len(brokers) > BROKERS_MAX:
        yield note("brokers", f"{len(brokers) - BROKERS_MAX} more brokers were not checked")


def examine_broker(broker: Broker, bootstrap: BootstrapServer, config: ClientConfig) -> list[Finding]:
    """Check the broker's advertised address, and report its offline log directories if it answers."""
    offline: list[Finding] = []
    return [examine_address(broker, bootstrap, config, offline), *offline]


def examine_address(
    broker: Broker, bootstrap: BootstrapServer, config: ClientConfig, offline: list[Finding]
) -> Finding:
    """Return the first problem with the broker's advertised address, or an OK finding."""
    check, where = f"broker {broker.id}", format_address(broker.address)
    advice = advice_for(broker, bootstrap, protocol_of(config))
    why = unusable_reason(broker, bootstrap)
    if why is not None:
        return wrong(check, f"advertises {where}: {why}", advice)
    try:
        ips = resolve(broker.host, broker.port, bootstrap.timeout_seconds)
    except Unresolved as unresolved:
        message = f"advertises {where}, but {broker.host} does not resolve here{name_hint(broker.host)}: {unresolved}"
        return wrong(check, message, advice)
    attempts = [attempt(ip, broker.port, bootstrap.timeout_seconds) for ip in ips]
    reached = next((one for one in attempts if one.is_connected), None)
    if reached is None:
        failures = ", ".join(f"{one.ip} {one.failure}" for one in attempts)
        return wrong(
            check, f"advertises {where}, which is not reachable from here: {failures}{network_hint(ips)}", advice
        )
    return examine_peer(broker, reached, bootstrap, config, offline)


def examine_peer(
    broker: Broker, reached: Attempt, bootstrap: BootstrapServer, config: ClientConfig, offline: list[Finding]
) -> Finding:
    """Check that the peer at the advertised address is this broker of this cluster."""
    check, where = f"broker {broker.id}", format_address(broker.address)
    try:
        connection = Connection(reached.address, config, broker.host)
    except TlsRefused as error:
        return wrong(
            check,
            f"advertises {where}, but the service there failed: {error}",
            advice_for(broker, bootstrap, protocol_of(config)),
        )
    except ClientError:
        protocol = identify(reached.address, bootstrap.timeout_seconds)
        return wrong(
            check,
            f"advertises {where}, but the service there is {protocol.what}",
            advice_for(broker, bootstrap, protocol_of(config)),
        )
    try:
        cluster = request_cluster(connection, with_topics=False)
        identity = request_identity(connection, [one.id for one in bootstrap.cluster.brokers])
        if broker.id != bootstrap.node and cluster.id == bootstrap.cluster.id:
            offline += examine_offline_dirs(connection, broker.id)
    except ClientError as error:
        return wrong(
            check,
            f"advertises {where}, but the service there failed: {error}",
            advice_for(broker, bootstrap, protocol_of(config)),
        )
    finally:
        connection.close()
    if cluster.id != bootstrap.cluster.id:
        message = f"advertises {where}, but the broker there belongs to another cluster ({cluster.id})"
        return wrong(check, message, advice_for(broker, bootstrap, protocol_of(config)))
    if identity is not None and identity.node != broker.id:
        peer = f"broker {identity.node}" if identity.node >= 0 else "a broker that is not in the cluster's metadata"
        message = f"advertises {where}, but the service there is {peer}"
        return wrong(check, message, advice_for(broker, bootstrap, protocol_of(config)))
    latency = "clients on this machine only" if is_loopback(broker.host) else f"{reached.connect_ms:.1f} ms"
    return ok(check, f"advertises {where}, and is reachable there ({latency})")


def unusable_reason(broker: Broker, bootstrap: BootstrapServer) -> str | None:
    """Return why an address cannot be right whatever answers there, or None if it can be."""
    ip = as_ip(broker.host)
    if not broker.host or not 0 < broker.port < 65536:
        return "clients cannot connect to this address"
    if ip is not None and ip.is_unspecified:
        return "clients cannot connect to this nonroutable meta-address"
    if is_loopback(broker.host) and not is_loopback(bootstrap.ip):
        return "for every client, this is the client's own machine"
    return None


def name_hint(host: str) -> str:
    if CONTAINER_ID.fullmatch(host):
        return " (it looks like a container id)"
    if "." not in host:
        return " (a container or machine name that only resolves on the broker's machine?)"
    return ""


def network_hint(ips: Iterable[str]) -> str:
    found = [as_ip(ip) for ip in ips]
    inside = any(isinstance(ip, IPv4Address) and ip in CONTAINER_NETWORK for ip in found)
    return " (an address inside a container network?)" if inside else ""


def protocol_of(config: ClientConfig) -> str:
    """Return the client's security protocol, the default name of a listener."""
    return "PLAINTEXT" if config.tls is None else "SSL"


def advice_for(broker: Broker, bootstrap: BootstrapServer, protocol: str = "PLAINTEXT") -> str:
    """Return one sentence of advice with the complete setting, as far as it can be determined."""
    if broker.id != bootstrap.node:
        setting = f"advertised.listeners={protocol}://HOST:{broker.port}"
        return f"Set {setting} on broker {broker.id}, with HOST as clients reach that broker, and restart it."
    setting = correct_listeners(bootstrap.identity, broker.address, bootstrap.given, protocol)
    if broker.address == bootstrap.given:
        # The broker advertises the given address, and that address is wrong. The right one is unknown.
        return f"Set the correct address of broker {broker.id} in its advertised.listeners, and restart it."
    return f"Set advertised.listeners={setting} on broker {broker.id} and restart it."


def correct_listeners(identity: Identity | None, present: Address, right: Address, protocol: str = "PLAINTEXT") -> str:
    """Return the broker's advertised.listeners with one address replaced and all other entries unchanged."""
    listeners = identity.configs if identity else {}
    entries = [entry.strip() for entry in listeners.get("advertised.listeners", "").split(",") if entry.strip()]
    suffix = f"://{format_address(present)}"
    if any(entry.endswith(suffix) for entry in entries):
        return ",".join(
            f"{entry.removesuffix(suffix)}://{format_address(right)}" if entry.endswith(suffix) else entry
            for entry in entries
        )
    # Without advertised.listeners, listeners are advertised unchanged. The listener with this port is the wrong one.
    named = [entry.strip() for entry in listeners.get("listeners", "").split(",")]
    name = next((entry.partition("://")[0] for entry in named if entry.endswith(f":{present[1]}")), protocol)
    return f"{name}://{format_address(right)}"
