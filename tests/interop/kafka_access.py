"""A real Apache Kafka with access control: connections without a password have all permissions, others use ACLs."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from pathlib import Path

from kafka_peer import KafkaBroker

from odradek.core.kernel.access import ResourceType
from support.ports import free_port
from support.raw_client import RawClient, raw_frame
from support.rights import Rule

SASL_HANDSHAKE, SASL_AUTHENTICATE, CREATE_ACLS = 17, 36, 30
_PASSWORD = "secret"
_LITERAL, _ALLOW = 3, 3


class AccessKafka(KafkaBroker):
    """A broker with a second listener for `users`, who authenticate by SASL PLAIN."""

    def __init__(self, folder: Path, users: Collection[str], settings: Mapping[str, str]) -> None:
        controller = free_port()
        self.users_port = free_port()
        logins = "".join(f' user_{name}="{_PASSWORD}"' for name in users)
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        access = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required{logins};",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        }
        super().__init__(folder, settings={**settings, **access})
        users_at = f"SASL_PLAINTEXT://127.0.0.1:{self.users_port}"
        self._settings["listeners"] = f"PLAINTEXT://{self.address},{users_at},CONTROLLER://127.0.0.1:{controller}"
        self._settings["advertised.listeners"] = f"PLAINTEXT://{self.address},{users_at}"
        protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        self._settings["listener.security.protocol.map"] = protocols

    def grant(self, rules: Mapping[str, Collection[Rule]]) -> None:
        """Grant the permissions to each user."""
        bindings = [_binding(user, rule) for user, of_user in rules.items() for rule in of_user]
        with RawClient(self.port) as client:
            client.send(raw_frame(CREATE_ACLS, 1, struct.pack(">i", len(bindings)) + b"".join(bindings)))
            answer = client.read_frame()
        none_refused = struct.pack(">hh", 0, 0) * len(bindings)  # Each with a code and an empty message.
        assert answer[8:] == struct.pack(">i", len(bindings)) + none_refused, answer

    def connected(self, user: str) -> RawClient:
        """Return a connection of this user; "" does not authenticate."""
        if not user:
            return RawClient(self.port)
        client = RawClient(self.users_port)
        client.send(raw_frame(SASL_HANDSHAKE, 1, _text("PLAIN")))
        assert client.read_frame()[4:6] == b"\0\0"
        token = f"\0{user}\0{_PASSWORD}".encode()
        client.send(raw_frame(SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token))
        assert client.read_frame()[4:6] == b"\0\0"
        return client


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _binding(user: str, rule: Rule) -> bytes:
    resource = struct.pack(">b", ResourceType(rule.resource)) + _text(rule.name) + struct.pack(">b", _LITERAL)
    return resource + _text(f"User:{user}") + _text("*") + struct.pack(">bb", rule.operation, _ALLOW)
