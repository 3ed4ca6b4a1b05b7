"""TLS without a socket: two connected sessions, and one against a socket of Python's ssl."""

from __future__ import annotations

import random
import socket
import ssl
import threading

import pytest

from odradek.tls.ssl_contexts import client_context, server_context
from odradek.tls.tls_config import TlsConfig
from odradek.tls.tls_errors import TlsFailed
from odradek.tls.tls_session import Session
from support.certificates import Authority, Known


def server_config(known: Known, authority: Authority, **more: str) -> TlsConfig:
    texts = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": known.chain,
        "ssl.keystore.key": known.key,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
    }
    return TlsConfig.parse(texts | {name.replace("_", "."): text for name, text in more.items()})


def client_config(authority: Authority, known: Known | None = None, **more: str) -> TlsConfig:
    texts = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem}
    if known is not None:
        texts |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": known.chain,
            "ssl.keystore.key": known.key,
        }
    return TlsConfig.parse(texts | {name.replace("_", "."): text for name, text in more.items()})


class Pair:
    """A server and a client that exchange bytes in memory, `piece` bytes at a time."""

    def __init__(
        self, server: TlsConfig, client: TlsConfig, host_name: str = "localhost", piece: int = 1 << 20
    ) -> None:
        self.server = Session(server_context(server))
        self.client = Session(client_context(client), is_server=False, host_name=host_name)
        self.failures: dict[str, str] = {}
        self._piece = piece
        self.carry()

    def carry(self) -> None:
        while self.server.bytes_to_send or self.client.bytes_to_send:
            self._carry(self.server, self.client, "client")
            self._carry(self.client, self.server, "server")

    def _carry(self, source: Session, target: Session, name: str) -> None:
        data = source.data_to_send()
        try:
            for at in range(0, len(data), self._piece):
                target.receive(data[at : at + self._piece])
            if target.is_established:
                target.read_into(bytearray(1))  # An alert arrives with read data.
        except TlsFailed as reason:
            self.failures.setdefault(name, str(reason))


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize("protocols", ["TLSv1.2", "TLSv1.3"])
def test_data_arrives_for_any_piece_size(broker: Known, authority: Authority, piece: int, protocols: str) -> None:
    config = server_config(broker, authority, ssl_enabled_protocols=protocols)
    pair = Pair(config, client_config(authority), piece=piece)
    sent = random.Random(1).randbytes(20_000 if piece < 10 else 1_000_000)
    pair.client.write(sent)
    received = bytearray()
    space = bytearray(5_000)
    data = pair.client.data_to_send()
    for at in range(0, len(data), piece):
        pair.server.receive(data[at : at + piece])
        while size := pair.server.read_into(space):
            received += space[:size]
    assert received == sent
    pair.server.write(b"done")
    pair.client.receive(pair.server.data_to_send())
    assert pair.client.read() == b"done"
    assert pair.server.negotiated.startswith(protocols)


def test_sessions_with_a_shared_buffer_are_isolated(broker: Known, client: Known, authority: Authority) -> None:
    """Even the pending alert of a failed session never reaches the peer of another session."""
    shared = ssl.MemoryBIO()
    context = server_context(server_config(broker, authority, ssl_client_auth="requested"))
    servers = [Session(context, outgoing=shared) for _ in range(3)]
    known = [client, None, Authority().known("stranger")]
    clients = [
        Session(client_context(client_config(authority, one)), is_server=False, host_name="localhost") for one in known
    ]
    failed = []
    for _ in range(2):
        for server, one in zip(servers, clients, strict=True):
            try:
                server.receive(one.data_to_send())
            except TlsFailed:
                failed.append(server)
        for server, one in zip(servers[:2], clients, strict=False):
            one.receive(server.data_to_send())
        if not failed:
            clients[2].receive(servers[2].data_to_send())
    assert failed == [servers[2]] and servers[2].bytes_to_send
    for number, server in enumerate(servers[:2]):
        server.write(b"%d" % number * 50_000)
    for number, one in enumerate(clients[:2]):
        one.receive(servers[number].data_to_send())
        assert one.read() == b"%d" % number * 50_000
    with pytest.raises(TlsFailed, match="rejected the client certificate"):
        clients[2].receive(servers[2].data_to_send())
        clients[2].read()


def test_client_certificate_identifies_the_client(broker: Known, client: Known, authority: Authority) -> None:
    config = server_config(broker, authority, ssl_client_auth="required")
    pair = Pair(config, client_config(authority, client))
    assert pair.failures == {}
    assert pair.server.subject is not None
    assert pair.server.subject.startswith("CN=client one,")
    assert pair.server.subject.endswith("O=Odradek")


@pytest.mark.parametrize("protocols", ["TLSv1.2", "TLSv1.3"])
def test_wrong_client_certificate_is_reported_on_both_sides(
    broker: Known, client: Known, authority: Authority, protocols: str
) -> None:
    required = server_config(broker, authority, ssl_client_auth="required", ssl_enabled_protocols=protocols)
    requested = server_config(broker, authority, ssl_client_auth="requested", ssl_enabled_protocols=protocols)
    stranger = Authority()

    without_certificate = Pair(required, client_config(authority))
    assert without_certificate.failures["server"] == "the client sent no certificate, but ssl.client.auth is required"
    newest = "the broker requires a client certificate: set ssl.keystore.location"
    older = "the peer found no TLS version, cipher suite or certificate that both accept"
    assert without_certificate.failures["client"] == (newest if protocols == "TLSv1.3" else older)

    unknown = Pair(required, client_config(authority, stranger.known("client")))
    assert unknown.failures["server"].startswith("the client's certificate is not trusted: unable to get local issuer")
    assert unknown.failures["client"] == "the broker rejected the client certificate: unknown certificate authority"

    old = Pair(required, client_config(authority, authority.known("client", expired=True)))
    assert old.failures["server"] == "the client's certificate is not trusted: certificate has expired"
    assert old.failures["client"] == "the broker rejected the client certificate: certificate has expired"

    without = Pair(requested, client_config(authority))
    assert (without.failures, without.server.subject) == ({}, None)
    wrong = Pair(requested, client_config(authority, stranger.known("client")))
    assert wrong.failures["server"].startswith("the client's certificate is not trusted"), (
        "as Kafka: none is better than wrong"
    )


def test_untrusted_broker_certificate_is_refused(broker: Known, authority: Authority) -> None:
    stranger = Authority()
    pair = Pair(server_config(broker, authority), client_config(stranger))
    assert pair.failures["client"].startswith("the broker's certificate is not trusted: unable to get local issuer")
    assert pair.failures["server"] == "the client rejected this broker's certificate: unknown certificate authority"

    pair = Pair(server_config(broker, authority), client_config(authority), host_name="elsewhere.example")
    expected = "the broker's certificate does not match the address: certificate is not valid for 'elsewhere.example'"
    assert pair.failures["client"] == expected
    pair = Pair(server_config(broker, authority), client_config(authority), host_name="127.0.0.2")
    assert pair.failures["client"].endswith("certificate is not valid for '127.0.0.2'")

    anyone = client_config(authority, ssl_endpoint_identification_algorithm="")
    assert Pair(server_config(broker, authority), anyone, host_name="elsewhere.example").failures == {}

    pair = Pair(server_config(authority.known(expired=True), authority), client_config(authority))
    assert pair.failures["client"] == "the broker's certificate is not trusted: certificate has expired"
    assert pair.failures["server"] == "the client rejected this broker's certificate: certificate has expired"


@pytest.mark.parametrize(
    "data", [b"\x00\x00\x00\x23\x00\x12\x00\x03", b"GET / HTTP/1.1\r\n", b"\x00", b"SSH-2.0-OpenSSH\r\n"]
)
def test_plain_text_is_detected(broker: Known, authority: Authority, data: bytes) -> None:
    session = Session(server_context(server_config(broker, authority)))
    with pytest.raises(TlsFailed, match="the client does not use TLS, but this listener requires it"):
        session.receive(data)
    with pytest.raises(TlsFailed, match="does not use TLS"):
        session.receive(b"more")
    assert session.data_to_send() == b""


def test_random_data_after_a_tls_prefix_is_refused(broker: Known, authority: Authority) -> None:
    rest = random.Random(3)
    for _ in range(200):
        session = Session(server_context(server_config(broker, authority)))
        try:
            session.receive(b"\x16\x03" + rest.randbytes(rest.randrange(300)))
        except TlsFailed as reason:
            assert str(reason)
        assert not session.is_established


def test_disconnect_in_the_handshake_is_described(broker: Known, authority: Authority) -> None:
    context = server_context(server_config(broker, authority))
    silent = Session(context)
    assert silent.unfinished("timed out") == "the peer timed out before sending data"
    with pytest.raises(TlsFailed, match="the peer disconnected before sending data"):
        silent.receive_eof()
    half = Session(context)
    half.receive(b"\x16\x03\x01")
    assert half.unfinished("timed out") == "the peer timed out during the TLS handshake"
    with pytest.raises(TlsFailed, match="the peer disconnected during the TLS handshake"):
        half.receive_eof()


def test_both_ends_send_close_notify(broker: Known, authority: Authority) -> None:
    pair = Pair(server_config(broker, authority), client_config(authority))
    pair.client.write(b"last words")
    pair.client.close()
    pair.server.receive(pair.client.data_to_send())
    assert pair.server.read() == b"last words"
    assert pair.server.has_peer_closed
    pair.server.receive_eof()
    pair.server.close()
    pair.client.receive(pair.server.data_to_send())
    assert pair.client.read() == b""
    assert pair.client.has_peer_closed


def test_truncated_stream_is_not_a_clean_end(broker: Known, authority: Authority) -> None:
    pair = Pair(server_config(broker, authority), client_config(authority))
    pair.client.write(b"half a request")
    pair.server.receive(pair.client.data_to_send())
    pair.server.read()
    with pytest.raises(TlsFailed, match="the client disconnected"):
        pair.server.receive_eof()


def test_modified_data_is_detected(broker: Known, authority: Authority) -> None:
    pair = Pair(server_config(broker, authority), client_config(authority))
    pair.client.write(b"a request")
    data = bytearray(pair.client.data_to_send())
    data[-1] ^= 1
    pair.server.receive(data)
    with pytest.raises(TlsFailed, match=r"decryption failed or bad record mac|record layer failure"):
        pair.server.read()
    assert pair.server.data_to_send(), "an alert for the peer"


def test_session_interoperates_with_pythons_ssl_socket(broker: Known, client: Known, authority: Authority) -> None:
    context = client_context(client_config(authority, client))
    ours, theirs = socket.socketpair()
    pieces: list[bytes] = []

    def speak() -> None:
        with context.wrap_socket(theirs, server_hostname="localhost") as stream:
            stream.sendall(b"x" * 300_000)
            while data := stream.recv(65_536):
                pieces.append(data)

    thread = threading.Thread(target=speak)
    thread.start()
    session = Session(server_context(server_config(broker, authority, ssl_client_auth="required")))
    received = 0
    while received < 300_000:
        data = ours.recv(50_000)
        assert data
        session.receive(data)
        received += len(session.read())
        ours.sendall(session.data_to_send())
    session.write(b"y" * 300_000)
    session.close()
    ours.sendall(session.data_to_send())
    thread.join(10)
    ours.close()
    assert b"".join(pieces) == b"y" * 300_000
    assert session.subject is not None
    assert "CN=client one" in session.subject


def test_context_serves_several_sessions(broker: Known, authority: Authority) -> None:
    context = server_context(server_config(broker, authority))
    outer = client_context(client_config(authority))
    for _ in range(3):
        server, client = Session(context), Session(outer, is_server=False, host_name="localhost")
        while server.bytes_to_send or client.bytes_to_send:
            if data := client.data_to_send():
                server.receive(data)
            if data := server.data_to_send():
                client.receive(data)
        assert server.is_established
        assert client.is_established
    assert ssl.HAS_TLSv1_3
