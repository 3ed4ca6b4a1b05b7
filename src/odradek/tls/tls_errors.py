"""Errors of TLS with messages for users, which never contain a password or a part of a key."""

from __future__ import annotations


class TlsConfigError(ValueError):
    """Error for an unreadable store or contradictory keys, with the key and the file."""


class TlsFailed(Exception):
    """Failed TLS handshake or connection; the text is the reason without a subject."""
