"""Kafka's 16-byte ids: raw bytes on the wire, 22 characters of URL-safe base64 in files, znodes and to people."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NewType

Uuid = NewType("Uuid", bytes)

UUID_BYTES = 16
ZERO_UUID = Uuid(bytes(UUID_BYTES))
# Reserved by Kafka for the KRaft metadata topic; never given out.
METADATA_TOPIC_UUID = Uuid(bytes(UUID_BYTES - 1) + b"\x01")


def to_text(uuid: Uuid) -> str:
    """The 22-character form used by meta.properties, partition.metadata and the znodes."""
    return urlsafe_b64encode(uuid).rstrip(b"=").decode()


def from_text(text: str) -> Uuid:
    """The inverse of to_text.  Raises ValueError for anything that is not 16 bytes of URL-safe base64."""
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != UUID_BYTES:
        raise ValueError(f"{text!r} is not a 22-character base64 id")
    return Uuid(raw)


def to_hex(uuid: Uuid) -> str:
    """The form with hyphens that member ids end with."""
    text = uuid.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def is_usable(uuid: Uuid) -> bool:
    """True if a random id may be given out: not reserved, and its text can't be taken for a command-line option."""
    return uuid not in (ZERO_UUID, METADATA_TOPIC_UUID) and not to_text(uuid).startswith("-")
