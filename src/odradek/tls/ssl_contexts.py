"""Contexts of Python's ssl module for servers and clients, recreated after a change of their files.

Python's ssl module reads a private key only from a file. This module uses a file in memory without a name in any
directory: other processes can't find it, and it disappears with its descriptor.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.tls import ciphers, stores
from odradek.tls.stores import Identity
from odradek.tls.tls_config import ClientAuth, TlsConfig
from odradek.tls.tls_errors import TlsConfigError

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0  # Interval between checks of the files.

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """Create a server's context, or raise TlsConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, config)
    identity = stores.identity(config)
    if identity is None:
        raise TlsConfigError(
            f"{config.named('ssl.keystore.location')} is not set: a TLS listener requires a certificate."
        )
    _load(context, identity)
    # A client that only writes and then closes has not read its session tickets. Its system would reset the connection,
    # and the last data would be lost. Few Kafka clients resume a session.
    context.num_tickets = 0
    context.verify_mode = _VERIFY[config.client_auth]
    if config.client_auth is not ClientAuth.NONE:
        trusted = stores.trusted(config)
        if trusted is None:
            # Kafka would trust every certificate that a browser trusts, that is, anyone with a web server.
            raise TlsConfigError(
                f"{config.named('ssl.client.auth')} is {config.client_auth.value}, but "
                f"{config.named('ssl.truststore.location')} is not set: it contains the trusted certificates."
            )
        _trust(context, trusted, config)
    return context


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """Create a client's context; without a truststore, it trusts the system's authorities.

    Raise TlsConfigError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_versions(context, config, newest=config.protocol)
    context.check_hostname = config.checks_host_name
    identity = stores.identity(config)
    if identity is not None:
        _load(context, identity)
    trusted = stores.trusted(config)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, trusted, config)
    return context


class Contexts:
    """The context for new connections, recreated after a change of its files.

    If a new file can't be used, the context stays unchanged and an error is logged.
    """

    def __init__(
        self,
        config: TlsConfig,
        make: Callable[[TlsConfig], ssl.SSLContext],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the first context, or raise TlsConfigError."""
        self._config = config
        self._make = make
        self._clock = clock
        self._stamps = self._read_stamps()
        self._checked_at = clock()
        self._context = make(config)

    def context(self) -> ssl.SSLContext:
        now = self._clock()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            # Checked before they are read: a change during the read is noticed the next time.
            stamps = self._read_stamps()
            if stamps != self._stamps:
                self._stamps = stamps
                self._reload()
        return self._context

    def _reload(self) -> None:
        files = ", ".join(self._config.files)
        try:
            self._context = self._make(self._config)
        except TlsConfigError as error:
            log.error("failed to reload %s; the previous certificates stay in use: %s", files, error)
        else:
            log.info("reloaded %s: new connections use the new certificates", files)

    def _read_stamps(self) -> list[tuple[int, int, int, int] | None]:
        return [_stamp(path) for path in self._config.files]


def _stamp(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _set_versions(context: ssl.SSLContext, config: TlsConfig, newest: str = "TLSv1.3") -> None:
    versions = [_VERSIONS[name] for name in config.enabled_protocols]
    context.minimum_version = min(versions)
    context.maximum_version = min(max(versions), _VERSIONS[newest])
    if context.minimum_version > context.maximum_version:
        raise TlsConfigError(
            f"{config.named('ssl.protocol')} is {newest}, and {config.named('ssl.enabled.protocols')} "
            f"{', '.join(config.enabled_protocols)}: no protocol remains."
        )
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    ciphers.choose(context, config)


def _trust(context: ssl.SSLContext, certificates: str, config: TlsConfig) -> None:
    where = config.named("ssl.truststore." + ("location" if config.truststore.location else "certificates"))
    # Java trusts the certificates of a truststore directly, including a server's own certificate or an intermediate
    # authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError):
        path = f" {config.truststore.location}" if config.truststore.location else ""
        raise TlsConfigError(f"{where}{path} contains an invalid certificate.") from None


def _load(context: ssl.SSLContext, identity: Identity) -> None:
    secret = identity.key_password

    def password() -> str:
        # OpenSSL would prompt on the terminal.
        return "" if secret is None else secret.reveal()

    with _in_memory((identity.chain + identity.key).encode("latin-1")) as path:
        try:
            context.load_cert_chain(path, password=password)
        except (ssl.SSLError, ValueError, OSError) as error:
            raise TlsConfigError(_load_error(identity, error)) from None


def _load_error(identity: Identity, error: Exception) -> str:
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"{identity.where}: the private key does not match the first certificate."
    if getattr(error, "reason", None) in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        return f"{identity.where}: a certificate is too weak: it has a short key or an old signature algorithm."
    if identity.key_password is not None and "ENCRYPTED" in identity.key:
        return f"{identity.where}: ssl.key.password does not decrypt the private key, or the certificate is invalid."
    return f"{identity.where}: the certificate or its private key is invalid."


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """Yield a temporary path from which this process can read `data`."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:  # Only this user may read it.
            file.write(data)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
