"""Errors of TLS, in sentences for a person.  No text holds a password or a part of a key."""

from __future__ import annotations


class TlsConfigError(ValueError):
    """A store that can't be read, or keys that contradict each other; one sentence that names the key and the file."""


class TlsFailed(Exception):
    """A connection on which the two sides did not come to speak TLS; the text is the reason, without its subject."""
