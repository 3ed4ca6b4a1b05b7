"""Reasons why an address cannot be listened on, as one sentence for people."""

from __future__ import annotations


class CannotListen(OSError):
    """Failure to bind an address; the text is one sentence for people."""


def listen_error_text(where: str, error: OSError, setting: str) -> str:
    """Return one sentence with the reason why listening at the address failed."""
    import errno  # Needed only after a failure.

    if error.errno == errno.EADDRINUSE:
        return f"Cannot listen on {where}: the port is in use; stop its process, or set another port with {setting}."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"Cannot listen on {where}: this machine does not have this address."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Cannot listen on {where}: permission denied; ports below 1024 need root privileges."
    return f"Cannot listen on {where}: {error.strerror or error}."
