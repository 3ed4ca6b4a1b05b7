"""HTTP server of the metrics: a few threads of its own, each with bounded waits."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

SCRAPES_MAX = 4  # Concurrent scrapes; further ones are rejected.
CLIENT_SECONDS_MAX = 10  # Timeout of a silent client.
BREATH_SECONDS = 0.1

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class HttpServer:
    """HTTP server that binds at construction, so that a port in use is reported first. Raises OSError."""

    def __init__(self, host: str, port: int, application: Application) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = _Server((host, port), family)
        self._server.set_app(application)
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._serve, name="odradek-metrics", daemon=True)
        self._is_stopped = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped = True
        if self._thread.is_alive():
            # shutdown wakes the accepting thread; the server's own way to stop would take up to half a second.
            self._server.socket.shutdown(socket.SHUT_RDWR)
            self._thread.join()
        self._server.server_close()

    def _serve(self) -> None:
        while not self._is_stopped:
            self._server.handle_request()


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_SECONDS_MAX

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: scrapes are not logged."""

    def address_string(self) -> str:
        return str(self.client_address[0])  # Without a reverse lookup.


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily) -> None:
        self.address_family = family
        self._free = threading.BoundedSemaphore(SCRAPES_MAX)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer would look up our own host name.
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(BREATH_SECONDS)  # Otherwise, accept would be retried in a busy loop.
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: a client that disconnects or stays silent is not our error."""
