"""How a session with ZooKeeper is opened: over TLS or in plain text, as whom, and whether its znodes get ACLs.

Nothing of kazoo is needed here, so that a configuration can be checked where kazoo is not installed.
"""

from __future__ import annotations

import ssl
from enum import Enum
from typing import NamedTuple, Protocol

from odradek.base.secret import Secret


class Scheme(Enum):
    """How a user is authenticated; the value is the scheme in the ACLs of what this user makes."""

    SASL = "sasl"  # DIGEST-MD5, as Kafka's brokers do it; the servers know the users.
    DIGEST = "digest"  # ZooKeeper's own: any name and password will do, and only both together open a znode again.


class Credentials(NamedTuple):
    """A user of ZooKeeper's."""

    scheme: Scheme
    user: str
    password: Secret


class Tls(Protocol):
    """What a connection needs to speak TLS."""

    def context(self) -> ssl.SSLContext:
        """Returns the context for the next connection; a certificate may have been replaced since the last one."""

    def reason(self, error: OSError) -> str:
        """Returns why a connection came to nothing, without its subject."""


class Access(NamedTuple):
    """How a session is opened.  `sets_acls` gives znodes the ACLs of Kafka's brokers with zookeeper.set.acl."""

    tls: Tls | None = None
    credentials: Credentials | None = None
    sets_acls: bool = False


OPEN = Access()
