"""Steps of an examination, in the order in which a client takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from odradek.app.doctor.advertised import BootstrapServer, examine_brokers
from odradek.app.doctor.client_versions import examine_clients
from odradek.app.doctor.described_cluster import Cluster, request_cluster, request_identity
from odradek.app.doctor.findings import Finding, listed, note, ok, wrong
from odradek.app.doctor.peer_protocol import PLAIN_KAFKA, identify, is_plain_kafka, sasl_mechanisms
from odradek.app.doctor.reach import Attempt, Unresolved, as_ip, attempt, kind, resolve
from odradek.app.doctor.set_aside_logs import examine_log_dirs, examine_offline_dirs
from odradek.app.doctor.tls_findings import tls_advice
from odradek.app.doctor.topic_findings import examine_stored, examine_topics, min_isrs_of
from odradek.app.terminal.output import plural
from odradek.base.units import MIB
from odradek.client.connection.broker_connection import Connection, format_address
from odradek.client.connection.client_config import Address, ClientConfig
from odradek.client.connection.client_errors import (
    ClientError,
    ErrorResponse,
    KafkaUnavailable,
    NotKafka,
    TlsRefused,
    Unsupported,
)
from odradek.tls.tls_config import TlsConfig
from odradek.wire.schema.api_keys import ApiKey

ANSWER_BYTES_MAX = 100 * MIB

CONNECT_ADVICE = {
    "refused": "Start the broker, or use the port that it listens on (`listeners` in server.properties).",
    "unreachable": "Use an address that this machine has a route to, or repair the network.",
}
TIMEOUT_ADVICE = "Check the address, and look for a firewall or security group that drops packets to this port."


def examine(address: Address, timeout_seconds: float, tls: TlsConfig | None = None) -> Iterator[Finding]:
    """Yield findings as they are made. timeout_seconds bounds each wait; without `tls`, use plaintext."""
    try:
        ips = resolve(address[0], address[1], timeout_seconds)
    except Unresolved as unresolved:
        advice = f"Use a name or address that resolves on this machine; {address[0]} is in neither DNS nor /etc/hosts."
        yield wrong("address", f"{address[0]} does not resolve here: {unresolved}", advice)
        return
    if as_ip(address[0]) is None:
        yield ok("address", f"{address[0]} resolves to {', '.join(f'{ip} ({kind(ip)})' for ip in ips)}")
    else:
        yield ok("address", f"{address[0]} ({kind(address[0])})")
    attempts = [attempt(ip, address[1], timeout_seconds) for ip in ips]
    yield from connection_findings(address, attempts)
    reached = next((one for one in attempts if one.is_connected), None)
    if reached is not None:
        yield from examine_peer(address, reached, client_config(address, timeout_seconds, tls), timeout_seconds)


def connection_findings(address: Address, attempts: list[Attempt]) -> Iterable[Finding]:
    reached = [one for one in attempts if one.is_connected]
    failed = [one for one in attempts if not one.is_connected]
    failures = ", ".join(f"{one.ip} {one.failure}" for one in failed)
    if not reached:
        advice = CONNECT_ADVICE.get(failed[0].failure or "", TIMEOUT_ADVICE)
        yield wrong("connection", f"cannot connect to {format_address(address)}: {failures}", advice)
        return
    connected = ", ".join(f"{one.ip} answers in {one.connect_ms:.1f} ms" for one in reached)
    if not failed:
        yield ok("connection", connected)
        return
    first = " first" if attempts[0] in failed else ""
    advice = (
        f"Use {format_address(reached[0].address)} for clients that try only the first address, "
        "or listen on all addresses."
    )
    yield note("connection", f"{connected}; clients that try another address{first} fail: {failures}", advice)


def examine_peer(address: Address, reached: Attempt, config: ClientConfig, timeout_seconds: float) -> Iterable[Finding]:
    """Identify the peer from the first byte, and examine it if it is Kafka."""
    try:
        connection = Connection(reached.address, config, address[0])
    except TlsRefused as error:
        yield wrong("protocol", str(error), tls_advice(error, address[0]))
        return
    except (KafkaUnavailable, NotKafka):
        if config.tls is not None and is_plain_kafka(reached.address, timeout_seconds):
            protocol = PLAIN_KAFKA
        else:
            protocol = identify(reached.address, timeout_seconds)
        yield wrong("protocol", f"{format_address(address)} is {protocol.what}", protocol.advice)
        return
    except ErrorResponse as error:
        yield wrong("protocol", f"Kafka, but {error}", "Check the broker's log.")
        return
    with closing(connection):
        yield ok("protocol", f"Kafka in {connection.tls_version or 'plaintext'}, with {len(connection.apis)} APIs")
        if ApiKey.METADATA not in connection.apis:
            advice = "Use the port of a broker listener: this one is in controller.listener.names."
            yield wrong("protocol", "this is a controller listener, which does not serve clients", advice)
            return
        yield from examine_clients(connection.apis)
        yield from examine_broker(address, reached, connection, config, timeout_seconds)


def client_config(address: Address, timeout_seconds: float, tls: TlsConfig | None) -> ClientConfig:
    wait_ms = max(int(timeout_seconds * 1000), 1)
    return ClientConfig(
        format_address(address),
        client_id="odradek-doctor",
        connect_timeout_ms=wait_ms,
        request_timeout_ms=wait_ms,
        response_bytes_max=ANSWER_BYTES_MAX,
        tls=tls,
    )


def examine_broker(
    address: Address, reached: Attempt, connection: Connection, config: ClientConfig, timeout_seconds: float
) -> Iterable[Finding]:
    """Examine the broker's metadata and verify it."""
    try:
        cluster = request_cluster(connection, with_topics=True)
        identity = request_identity(connection, [broker.id for broker in cluster.brokers])
    except Unsupported as unsupported:
        yield wrong("cluster", str(unsupported), "Use a client version that matches the broker's.")
        return
    except ClientError as error:
        yield metadata_failure(reached.address, error, config, timeout_seconds)
        return
    yield from cluster_findings(cluster)
    bootstrap = BootstrapServer(address, reached.ip, cluster, identity, timeout_seconds)
    yield from examine_brokers(bootstrap, config)
    yield from examine_topics(cluster, min_isrs_of(connection, cluster))
    yield from examine_stored(connection, cluster)
    yield from examine_log_dirs(identity, cluster.id)
    if bootstrap.node is not None:
        yield from examine_offline_dirs(connection, bootstrap.node)


def metadata_failure(address: Address, error: ClientError, config: ClientConfig, timeout_seconds: float) -> Finding:
    """Return why a Kafka broker does not answer Metadata: it requires authentication, or it is unhealthy."""
    mechanisms = sasl_mechanisms(address, timeout_seconds) if config.tls is None else None
    if mechanisms is None:
        return wrong("cluster", f"the broker did not describe its cluster: {error}", "Check the broker's log.")
    advice = (
        "Use the port of a listener without SASL, or configure the client with security.protocol=SASL_PLAINTEXT and "
        f"sasl.mechanism={mechanisms[0] if mechanisms else 'PLAIN'}."
    )
    return wrong("cluster", f"this listener requires clients to authenticate (SASL: {listed(mechanisms)})", advice)


def cluster_findings(cluster: Cluster) -> Iterable[Finding]:
    brokers = plural(len(cluster.brokers), "broker")
    ids = {broker.id for broker in cluster.brokers}
    if not ids:
        advice = "Wait until a broker registers; if none does, check the brokers' logs."
        yield wrong("cluster", f"cluster {cluster.id}, no brokers", advice)
    elif cluster.controller not in ids:
        advice = "Start the controllers (controller.quorum.voters), or with ZooKeeper, check that it is reachable."
        message = f"cluster {cluster.id}, {brokers}, no controller: topics cannot be created or deleted"
        yield note("cluster", message, advice)
    else:
        yield ok("cluster", f"cluster {cluster.id}, {brokers}, controller {cluster.controller}")
