"""Ids that a broker gives to the members and producers of a scenario: taken from responses, put into later requests."""

from __future__ import annotations

import re
from typing import Any

from differential.batches import resealed
from differential.steps import member_uuid, producer, short_member
from odradek.record.record_batch import HEADER_BYTES, MAGIC, BatchHeader

UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SHORT_TEXT = re.compile(r"[0-9A-Za-z_-]{22}")
UUID_CHARACTERS = 36
GIVEN_PRODUCER_IDS = range(1_000_000)  # Invented ids of the scenarios are larger.
PRODUCER_ID_AT = 43  # From the start of a batch.


class Learned:
    """The ids of members and producers by their names, for one scenario."""

    def __init__(self) -> None:
        self._members: dict[str, str] = {}  # By placeholder.
        self._producers: dict[bytes, bytes] = {}
        self._member_names: dict[str, str] = {}
        self._producer_names: dict[int, str] = {}

    def learn(self, name: str, answer: Any) -> None:
        """Take the member id or producer id from a response."""
        member_id, producer_id = getattr(answer, "member_id", None), getattr(answer, "producer_id", -1)
        if member_id and UUID_TEXT.fullmatch(member_id[-UUID_CHARACTERS:]):
            self._learn_member(name, member_uuid(name), member_id[-UUID_CHARACTERS:])
        elif member_id and SHORT_TEXT.fullmatch(member_id):
            self._learn_member(name, short_member(name), member_id)
        if producer_id >= 0:
            self._producers[producer(name).to_bytes(8)] = producer_id.to_bytes(8)
            self._producer_names[producer_id] = f"producer {name}"

    def _learn_member(self, name: str, placeholder: str, real: str) -> None:
        self._members[placeholder] = real
        self._member_names[real] = f"<{name}>"

    def put_into(self, frame: bytes) -> bytes:
        for placeholder, member_id in self._members.items():
            frame = frame.replace(placeholder.encode(), member_id.encode())
        for pattern, producer_id in self._producers.items():
            frame = _with_producer(frame, pattern, producer_id)
        return frame

    def producer(self, producer_id: int) -> object:
        """Return the name of a producer id, if it has one."""
        return self._producer_names.get(producer_id, producer_id)

    def any_producer(self, producer_id: int) -> object:
        """Return the name of a producer id, or a common name for unknown ids."""
        name = self.producer(producer_id)
        return "a producer" if name in GIVEN_PRODUCER_IDS else name

    def member(self, text: str, *, is_id: bool) -> str:
        """Return the text with member names in place of ids. With `is_id`, the text is the id of some member."""
        for placeholder, member_id in self._members.items():
            if member_id in text:
                return text.replace(member_id, self._member_names[member_id])
            if placeholder in text:
                return text.replace(placeholder, "<one never learned>")
        if is_id and SHORT_TEXT.fullmatch(text):
            return "<an id>"
        return UUID_TEXT.sub("<a uuid>", text)


def _with_producer(frame: bytes, pattern: bytes, producer_id: bytes) -> bytes:
    """Return the frame with another producer id in place of the pattern, and valid checksums of its batches."""
    out = bytearray(frame)
    at = frame.find(pattern)
    while at >= 0:
        out[at : at + 8] = producer_id
        start = at - PRODUCER_ID_AT
        size = _size_of_batch(frame, start)
        if size:
            out[start : start + size] = resealed(out[start : start + size])
        at = frame.find(pattern, at + 1)
    return bytes(out)


def _size_of_batch(frame: bytes, start: int) -> int:
    """Return the size of a batch, or 0 without a whole batch with a valid checksum."""
    if start < 0 or len(frame) < start + HEADER_BYTES:
        return 0
    header = BatchHeader(frame, start)
    batch = frame[start : start + header.size]
    if header.magic != MAGIC or header.size < HEADER_BYTES or resealed(batch) != batch:
        return 0
    return header.size
