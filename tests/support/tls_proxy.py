"""TLS in front of a plaintext broker: each connection is a thread that carries bytes both ways."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType

from odradek.tls.ssl_contexts import Contexts, server_context
from odradek.tls.tls_config import TlsConfig
from odradek.tls.tls_errors import TlsFailed
from odradek.tls.tls_session import Session
from support.waiting import readable

READ_BYTES = 64 * 1024
WAIT_SECONDS = 30


class TlsProxy:
    """A proxy that listens at `port` on loopback; `failures` are the reasons of failed connections."""

    def __init__(self, config: TlsConfig) -> None:
        self._contexts = Contexts(config, server_context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target_port = 0
        self.failures: list[str] = []
        self.subjects: list[str | None] = []

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def __enter__(self) -> TlsProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        session = Session(self._contexts.context())
        with client, suppress(OSError):
            try:
                self._shake_hands(client, session)
                self.subjects.append(session.subject)
                with socket.create_connection(("127.0.0.1", self.target_port)) as broker:
                    _carry(client, broker, session)
            except TlsFailed as reason:
                self.failures.append(str(reason))
                client.sendall(session.data_to_send())
                client.shutdown(socket.SHUT_WR)
                while client.recv(READ_BYTES):  # Closing with unread data would discard the alert.
                    pass

    @staticmethod
    def _shake_hands(client: socket.socket, session: Session) -> None:
        while not session.is_established:
            data = client.recv(READ_BYTES)
            if not data:
                session.receive_eof()
            session.receive(data)
            if session.is_established or session.bytes_to_send:
                client.sendall(session.data_to_send())


def _carry(client: socket.socket, broker: socket.socket, session: Session) -> None:
    space = bytearray(READ_BYTES)
    while True:
        while size := session.read_into(space):
            broker.sendall(memoryview(space)[:size])
        if session.has_peer_closed:
            return
        for stream in readable(client, broker, seconds=WAIT_SECONDS):
            data = stream.recv(READ_BYTES)
            if not data:
                return
            if stream is client:
                session.receive(data)
            else:
                session.write(data)
            client.sendall(session.data_to_send())
