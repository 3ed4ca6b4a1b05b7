"""Name resolution and connection attempts: each address is tried separately, in the system's order."""

from __future__ import annotations

import errno
import socket
import threading
import time
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from queue import Empty, SimpleQueue

from odradek.client.connection.broker_connection import reason_of
from odradek.client.connection.client_config import Address

UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL)


class Unresolved(Exception):
    """Error for a name without addresses; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Attempt to connect to one address: the duration in milliseconds, or the reason of the failure."""

    ip: str
    port: int
    connect_ms: float | None = None
    failure: str | None = None

    @property
    def address(self) -> Address:
        return self.ip, self.port

    @property
    def is_connected(self) -> bool:
        return self.failure is None


def resolve(host: str, port: int, timeout_seconds: float) -> list[str]:
    """Return the addresses of a name in the order in which the system tries them. Raise Unresolved."""
    outcome: SimpleQueue[list[str] | Exception] = SimpleQueue()
    # A lookup cannot be interrupted. A slow one is abandoned in a daemon thread, so the process can still exit.
    threading.Thread(target=_resolve_host, args=(host, port, outcome), daemon=True).start()
    try:
        found = outcome.get(timeout=timeout_seconds)
    except Empty:
        raise Unresolved(f"no name server answered within {timeout_seconds:g} s") from None
    if isinstance(found, OSError):
        raise Unresolved(reason_of(found))
    if isinstance(found, Exception):
        raise Unresolved("it is not a valid host name")
    return found


def _resolve_host(host: str, port: int, outcome: SimpleQueue[list[str] | Exception]) -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        outcome.put(list(dict.fromkeys(str(address[0]) for *_, address in found)))
    except (OSError, ValueError) as error:  # ValueError: a label is empty, too long or not text.
        outcome.put(error)


def attempt(ip: str, port: int, timeout_seconds: float) -> Attempt:
    """Connect to an address and disconnect."""
    began = time.monotonic()
    try:
        with socket.create_connection((ip, port), timeout_seconds) as connected:
            if connected.getsockname() == connected.getpeername():  # Connected to itself (client/connection).
                return Attempt(ip, port, failure="refused")
    except OSError as error:
        return Attempt(ip, port, failure=_failure(error, timeout_seconds))
    return Attempt(ip, port, (time.monotonic() - began) * 1000)


def _failure(error: OSError, timeout_seconds: float) -> str:
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return f"no answer within {timeout_seconds:g} s"
    if error.errno == errno.ECONNREFUSED:
        return "refused"
    if error.errno in UNREACHABLE:
        return "unreachable"
    return reason_of(error)


def as_ip(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address, or None if the host is a name."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return whether the host is a loopback address or a name for one."""
    ip = as_ip(host)
    if ip is None:
        return host.lower().rstrip(".") in ("localhost", "localhost.localdomain")
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return (mapped or ip).is_loopback


def kind(ip: str) -> str:
    return "IPv6" if ":" in ip else "IPv4"
