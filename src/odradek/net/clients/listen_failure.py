"""Why an address can't be listened on, in one sentence for a person."""

from __future__ import annotations


class CannotListen(OSError):
    """An address that can't be bound; the text is one sentence for a person."""


def why_not(where: str, error: OSError, setting: str) -> str:
    """Returns one sentence on what keeps us from listening there."""
    import errno  # Only where something is wrong already.

    if error.errno == errno.EADDRINUSE:
        return f"Cannot listen on {where}: the port is in use; stop what uses it, or set another with {setting}."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"Cannot listen on {where}: this machine has no such address."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Cannot listen on {where}: not permitted; ports below 1024 are the system's."
    return f"Cannot listen on {where}: {error.strerror or error}."
