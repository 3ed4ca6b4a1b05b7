"""Channels over TLS: certificates of other brokers, and errors."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.core.kernel.cluster_view import Endpoint
from odradek.net.channels.channel import Channel
from odradek.net.channels.channel_requests import FailedRequest, FailureReason, RequestBuilder
from odradek.tls.ssl_contexts import Contexts, client_context, server_context
from odradek.tls.tls_config import TlsConfig
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.certificates import Authority, Known
from support.channel_peer import Peer, Sent, config, run, until
from support.serving import serving

pytestmark = pytest.mark.waits


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def server(directory: Path, known: Known, **texts: str) -> ssl.SSLContext:
    (directory / "key.pem").write_text(known.pem)
    return server_context(parsed({"keystore.type": "PEM", "keystore.location": str(directory / "key.pem")} | texts))


def client(directory: Path, authority: Authority, known: Known | None = None) -> Contexts:
    (directory / "trust.pem").write_text(authority.pem)
    texts = {"truststore.type": "PEM", "truststore.location": str(directory / "trust.pem")}
    if known is not None:
        (directory / "own.pem").write_text(known.pem)
        texts |= {"keystore.type": "PEM", "keystore.location": str(directory / "own.pem")}
    return Contexts(parsed(texts), client_context)


def parsed(texts: Mapping[str, str]) -> TlsConfig:
    return TlsConfig.parse({f"ssl.{key}": value for key, value in texts.items()})


def client_auth_settings(directory: Path, authority: Authority) -> dict[str, str]:
    (directory / "clients.pem").write_text(authority.pem)
    return {
        "client.auth": "required",
        "truststore.type": "PEM",
        "truststore.location": str(directory / "clients.pem"),
    }


async def failure(peer: Peer, tls: Contexts | None) -> FailedRequest:
    """Return the failure of a request, the same each time."""
    channel = Channel(
        asyncio.get_running_loop(), peer.endpoint, config(connect_timeout_ms=20_000), name="broker 2", tls=tls
    )
    sent = Sent(channel)
    sent.send()
    (first,) = await sent.all()
    sent.send()
    _, second = await sent.all()
    assert isinstance(first, FailedRequest) and first == second
    channel.close()
    return first


@pytest.mark.parametrize("shows_own", [False, True])
@pytest.mark.parametrize("in_flight_max", [1, 10])
def test_requests_are_answered_under_tls(
    authority: Authority, tmp_path: Path, shows_own: bool, in_flight_max: int
) -> None:
    texts = client_auth_settings(tmp_path, authority) if shows_own else {}
    context = server(tmp_path, authority.known(), **texts)
    tls = client(tmp_path, authority, authority.known("broker-1") if shows_own else None)

    async def work() -> None:
        async with Peer(context=context) as peer:
            channel = Channel(
                asyncio.get_running_loop(),
                peer.endpoint,
                config(in_flight_max=in_flight_max, discovers_versions=True),
                name="broker 2",
                tls=tls,
            )
            sent = Sent(channel)
            sent.send(500)
            assert await sent.all() == list(range(500))
            assert peer.connections == 1
            sent.send(5)
            channel.close()
            await sent.all()

    run(work)


def test_untrusted_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    async def work() -> None:
        async with Peer(context=server(tmp_path, authority.known())) as peer:
            failed = await failure(peer, client(tmp_path, Authority()))
            assert failed.reason is FailureReason.CANNOT_CONNECT
            assert failed.text.startswith("the broker's certificate is not trusted: ")

    run(work)


def test_certificate_of_another_host_is_refused(authority: Authority, tmp_path: Path) -> None:
    async def work() -> None:
        async with Peer(context=server(tmp_path, authority.known("elsewhere.example"))) as peer:
            failed = await failure(peer, client(tmp_path, authority))
            assert failed.reason is FailureReason.CANNOT_CONNECT
            assert failed.text.startswith("the broker's certificate does not match the address: ")

    run(work)


@pytest.mark.parametrize("shows_own", [False, True])
def test_broker_requires_a_client_certificate(authority: Authority, tmp_path: Path, shows_own: bool) -> None:
    """A TLS 1.3 client considers the handshake complete before the peer has checked the client's certificate."""
    texts = {"keystore.type": "PEM", "keystore.location": str(tmp_path / "key.pem")} | client_auth_settings(
        tmp_path, authority
    )
    (tmp_path / "key.pem").write_text(authority.known().pem)
    overrides = {f"ssl_{key.replace('.', '_')}": value for key, value in texts.items()}
    tls = client(tmp_path, authority, authority.known("broker-1") if shows_own else None)

    async def work() -> None:
        channel = Channel(
            asyncio.get_running_loop(),
            Endpoint("SSL", "127.0.0.1", broker.port, "SSL"),
            config(discovers_versions=True),
            name="broker 2",
            tls=tls,
        )
        outcomes: list[object] = []
        builder = RequestBuilder.of(MetadataRequest(topics=[]), MetadataResponse)
        channel.send(builder, outcomes.append)
        await until(lambda: outcomes)
        if shows_own:
            assert isinstance(outcomes[0], MetadataResponse)
        else:
            assert isinstance(outcomes[0], FailedRequest)
            assert outcomes[0].text == "the broker requires a client certificate: set ssl.keystore.location"
        channel.close()

    with serving(tmp_path, listeners="SSL://127.0.0.1:0", security_inter_broker_protocol="SSL", **overrides) as broker:
        run(work)


def test_mismatch_of_plain_text_and_tls_is_reported(authority: Authority, tmp_path: Path) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async def work() -> None:
        server_ = await asyncio.start_server(plain, "127.0.0.1", 0)
        peer = Peer()
        peer.port = server_.sockets[0].getsockname()[1]
        failed = await failure(peer, client(tmp_path, authority))
        assert failed == FailedRequest(FailureReason.CANNOT_CONNECT, "the peer does not use TLS")
        server_.close()
        async with Peer(context=server(tmp_path, authority.known())) as secure:
            assert (await failure(secure, None)).reason in (
                FailureReason.INVALID_RESPONSE,
                FailureReason.CONNECTION_LOST,
            )

    run(work)


@pytest.mark.parametrize("data", [b"", b"\x16"])
def test_peer_stalled_in_the_handshake_is_closed(
    authority: Authority, tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "odradek.net.channels.channel")

    async def work() -> None:
        closed = 0

        async def stop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal closed
            writer.write(data)
            try:
                await reader.read()
            finally:
                closed += 1
                writer.transport.abort()

        listening = await asyncio.start_server(stop, "127.0.0.1", 0)
        peer = Peer()
        peer.port = listening.sockets[0].getsockname()[1]
        channel = Channel(
            asyncio.get_running_loop(),
            peer.endpoint,
            config(connect_timeout_ms=100),
            name="broker 2",
            tls=client(tmp_path, authority),
        )
        sent = Sent(channel)
        sent.send(2)
        assert await sent.all() == [FailedRequest(FailureReason.CANNOT_CONNECT, "timed out")] * 2
        await until(lambda: closed == 1)
        sent.send()
        await asyncio.sleep(0.05)
        channel.close()  # During the handshake.
        await sent.all()
        await until(lambda: closed == 2)
        listening.close()

    run(work)


def test_request_is_resent_after_a_lost_tls_connection(authority: Authority, tmp_path: Path) -> None:
    async def at_first(request, writer) -> None:  # type: ignore[no-untyped-def]
        if request.connection < 2:
            writer.write(request.frame()[:-2])
            writer.transport.abort()
        else:
            writer.write(request.frame())

    async def work() -> None:
        async with Peer(at_first, context=server(tmp_path, authority.known())) as peer:
            channel = Channel(
                asyncio.get_running_loop(),
                peer.endpoint,
                config(retries=True, in_flight_max=3),
                name="broker 2",
                tls=client(tmp_path, authority),
            )
            sent = Sent(channel)
            sent.send(10)
            assert await sent.all() == list(range(10))
            channel.close()

    run(work)
