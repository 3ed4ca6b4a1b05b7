"""Options of a ZooKeeper session: TLS or plain text, credentials, and ACLs of znodes.

This module does not need kazoo, so that a configuration can be checked without it.
"""

from __future__ import annotations

import ssl
from enum import Enum
from typing import NamedTuple, Protocol

from odradek.base.secret import Secret


class Scheme(Enum):
    """A user's authentication scheme; the value is the scheme in the ACLs of znodes this user creates."""

    SASL = "sasl"  # DIGEST-MD5, as in Kafka's brokers; the servers know the users.
    DIGEST = "digest"  # ZooKeeper's own: any name and password are accepted, but a znode opens only with the same pair.


class Credentials(NamedTuple):
    """The credentials of a ZooKeeper user."""

    scheme: Scheme
    user: str
    password: Secret


class Tls(Protocol):
    """The TLS interface of a connection."""

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection; a certificate may have been replaced since the last."""

    def reason(self, error: OSError) -> str:
        """Return the reason for a failed connection, without its subject."""


class Access(NamedTuple):
    """Options of a session; `sets_acls` sets the ACLs of Kafka's brokers with zookeeper.set.acl."""

    tls: Tls | None = None
    credentials: Credentials | None = None
    sets_acls: bool = False


OPEN = Access()
