"""Identification of a peer that is not plaintext Kafka, from the first bytes of its answers to probes.

Each probe uses a connection of its own, because most servers disconnect on input that they do not understand.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from struct import Struct, pack
from typing import NamedTuple

from odradek.client.connection.client_config import Address
from odradek.wire.client_codec import encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.schema.primitives import Chunk

RESPONSE_BYTES_MIN = 16  # Longest prefix that any sign needs.
RESPONSE_BYTES_MAX = 4096
CORRELATION_ID = 0x0DDADE5
SASL_HANDSHAKE, METADATA = 17, 3
SHORT_PAUSE_SECONDS = 1.0

_HEADER = Struct(">hhih")
_ANSWER = Struct(">ii")

PORT_ADVICE = "Use the port of a Kafka listener, as in `listeners` of server.properties (often 9092)."
TLS_ADVICE = (
    "Use the port of a PLAINTEXT listener, or configure the client for TLS with security.protocol=SSL and a trust "
    "store that contains the broker's certificate (for this command, in the --command-config file)."
)
PLAIN_ADVICE = "Remove security.protocol=SSL, or use the port of an SSL listener."
ZOOKEEPER_ADVICE = (
    "Use the broker's address instead of ZooKeeper's: port 9092 instead of 2181, and --bootstrap-server instead "
    "of --zookeeper."
)
OLD_ADVICE = "Upgrade the broker: current clients need Kafka 0.10 or newer."
SILENT_ADVICE = (
    "Check that the broker behind this address is alive: a proxy without a broker, a suspended process (SIGSTOP, "
    "a debugger) and a full disk cause this."
)
CLOSED_ADVICE = (
    "Check that a broker runs behind this address: the port of a container or load balancer whose broker is down "
    "accepts connections and closes them."
)


class PeerProtocol(NamedTuple):
    """Peer as the end of `this is ...`, and advice."""

    what: str
    advice: str


HTTP = PeerProtocol("an HTTP server", PORT_ADVICE)
TLS = PeerProtocol("a TLS listener", TLS_ADVICE)
PLAIN_KAFKA = PeerProtocol("Kafka in plaintext", PLAIN_ADVICE)
KAFKA_OVER_TLS = PeerProtocol("Kafka behind TLS", TLS_ADVICE)
ZOOKEEPER = PeerProtocol("ZooKeeper", ZOOKEEPER_ADVICE)
OLD_KAFKA = PeerProtocol("Kafka older than 0.10, or a service that does not answer ApiVersions", OLD_ADVICE)
SILENT = PeerProtocol("a service that accepts connections and never answers", SILENT_ADVICE)
CLOSED = PeerProtocol("a service that accepts connections and closes them without an answer", CLOSED_ADVICE)
UNKNOWN = PeerProtocol("not Kafka", PORT_ADVICE)

SIGNS: tuple[tuple[bytes, PeerProtocol], ...] = (
    (b"HTTP/", HTTP),
    (b"<", HTTP),  # HTTP 0.9 has no header.
    (b"\x15\x03", TLS),  # TLS alert.
    (b"\x16\x03", TLS),  # TLS handshake.
    (b"imok", ZOOKEEPER),
    (b"ruok is not", ZOOKEEPER),
    (b"This ZooKeeper", ZOOKEEPER),
    (b"SSH-", PeerProtocol("an SSH server", PORT_ADVICE)),
    (b"-ERR", PeerProtocol("a Redis server", PORT_ADVICE)),
    (b"-DENIED", PeerProtocol("a Redis server", PORT_ADVICE)),
    (b"AMQP", PeerProtocol("an AMQP broker, such as RabbitMQ", PORT_ADVICE)),
    (b"INFO {", PeerProtocol("a NATS server", PORT_ADVICE)),
    (b"220", PeerProtocol("a mail or FTP server", PORT_ADVICE)),
)


def identify(address: Address, timeout_seconds: float) -> PeerProtocol:
    """Identify the peer by probing it, within about five times timeout_seconds, and five seconds at most."""
    pause = min(timeout_seconds, SHORT_PAUSE_SECONDS)
    responses = []
    for probe in (api_versions(), client_hello(), b"ruok", b"GET / HTTP/1.0\r\n\r\n"):
        response = send_probe(address, probe, pause)
        known = match_signs(response or b"")
        if known is TLS:
            return KAFKA_OVER_TLS if is_kafka_over_tls(address, timeout_seconds) else TLS
        if known is not None:
            return known
        responses.append(response)
    response = send_probe(address, frame(METADATA, 0, pack(">i", 0)), pause)
    if response is not None and is_kafka(response):
        return OLD_KAFKA
    responses.append(response)
    if any(responses):
        return UNKNOWN
    return CLOSED if b"" in responses else SILENT


def is_plain_kafka(address: Address, timeout_seconds: float) -> bool:
    return is_kafka(send_probe(address, api_versions(), min(timeout_seconds, SHORT_PAUSE_SECONDS)) or b"")


def match_signs(response: bytes) -> PeerProtocol | None:
    if len(response) >= 9 and response[:2] == b"\0\0" and response[3:9] == b"\x04\0\0\0\0\0":
        return PeerProtocol("an HTTP/2 server (gRPC?)", PORT_ADVICE)  # First HTTP/2 frame: SETTINGS on stream 0.
    return next((protocol for sign, protocol in SIGNS if response.startswith(sign)), None)


def send_probe(address: Address, request: bytes, timeout_seconds: float) -> bytes | None:
    """Return the answer's first bytes, b"" if the peer disconnects without an answer, or None on timeout."""
    try:
        with socket.create_connection(address, timeout_seconds) as stream:
            return read_response(stream, request, timeout_seconds)
    except OSError:
        return b""


def read_response(stream: socket.socket, request: bytes, timeout_seconds: float) -> bytes | None:
    deadline = time.monotonic() + timeout_seconds
    response = b""
    try:
        stream.sendall(request)
        while len(response) < RESPONSE_BYTES_MIN:
            stream.settimeout(max(deadline - time.monotonic(), 0.001))
            received = stream.recv(RESPONSE_BYTES_MAX)
            if not received:
                break
            response += received
    except TimeoutError:
        return response or None
    except OSError:  # Reset: keep the bytes received before it.
        pass
    return response


# Hand-written requests for which the wire layer has no messages.


def api_versions() -> bytes:
    request = ApiVersionsRequest(client_software_name="odradek", client_software_version="doctor")
    return b"".join(map(_bytes, encode_request(request, 3, CORRELATION_ID, "odradek-doctor")))


def _bytes(chunk: Chunk) -> bytes:
    assert isinstance(chunk, bytes | bytearray | memoryview), "the request contains no file regions"
    return bytes(chunk)


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """Return a request with header version 1 and no client id."""
    rest = _HEADER.pack(api_key, version, CORRELATION_ID, -1) + body
    return pack(">i", len(rest)) + rest


def is_kafka(response: bytes) -> bool:
    """Return whether the bytes are a response length and the correlation id of our request."""
    if len(response) < _ANSWER.size:
        return False
    length, correlation_id = _ANSWER.unpack_from(response)
    return bool(length >= 4 and correlation_id == CORRELATION_ID)


def client_hello() -> bytes:
    """Return the first bytes that a TLS client sends."""
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _unchecked_tls().wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def is_kafka_over_tls(address: Address, timeout_seconds: float) -> bool:
    try:
        with (
            socket.create_connection(address, timeout_seconds) as stream,
            _unchecked_tls().wrap_socket(stream) as secured,
        ):
            return is_kafka(read_response(secured, api_versions(), timeout_seconds) or b"")
    except OSError:  # The peer may require a client certificate.
        return False


def _unchecked_tls() -> ssl.SSLContext:
    """Create a context that trusts every peer: no data is sent to the peer, and no data from it is used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def sasl_mechanisms(address: Address, timeout_seconds: float) -> list[str] | None:
    """Return the SASL mechanisms that a listener offers, or None if it does not use SASL.

    │ i32 length │ i32 correlation id │ i16 error │ i32 count │ each: i16 length, name │
    """
    response = send_probe(address, frame(SASL_HANDSHAKE, 1, pack(">h", 0)), timeout_seconds)
    unsupported_mechanism = 33
    if not response or len(response) < 14 or not is_kafka(response):
        return None
    error, count = Struct(">hi").unpack_from(response, 8)
    if error != unsupported_mechanism:
        return None
    names, at = [], 14
    for _ in range(min(max(count, 0), 32)):
        size = int.from_bytes(response[at : at + 2], "big")
        names.append(response[at + 2 : at + 2 + size].decode(errors="replace"))
        at += 2 + size
    return [name for name in names if name]
