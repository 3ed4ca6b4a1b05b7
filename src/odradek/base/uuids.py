"""Kafka's 16-byte ids: raw bytes on the wire, elsewhere 22 characters of URL-safe base64."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NewType

Uuid = NewType("Uuid", bytes)

UUID_BYTES = 16
ZERO_UUID = Uuid(bytes(UUID_BYTES))
# Reserved by Kafka for the KRaft metadata topic; never assigned.
METADATA_TOPIC_UUID = Uuid(bytes(UUID_BYTES - 1) + b"\x01")


def to_text(uuid: Uuid) -> str:
    """Return the 22-character form used in meta.properties, partition.metadata and the znodes."""
    return urlsafe_b64encode(uuid).rstrip(b"=").decode()


def from_text(text: str) -> Uuid:
    """Return the id of its 22-character form, the inverse of to_text.

    Raise ValueError for anything except 16 bytes of URL-safe base64.
    """
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != UUID_BYTES:
        raise ValueError(f"{text!r} is not a 22-character base64 id")
    return Uuid(raw)


def to_hex(uuid: Uuid) -> str:
    """Return the hyphenated form that member ids end with."""
    text = uuid.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def is_usable(uuid: Uuid) -> bool:
    """Return whether a random id may be assigned.

    It must not be reserved, and its text must not look like a command-line option.
    """
    return uuid not in (ZERO_UUID, METADATA_TOPIC_UUID) and not to_text(uuid).startswith("-")
