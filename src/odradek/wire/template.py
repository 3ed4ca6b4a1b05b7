"""Templates: messages cut at some fields, to recognize or create messages that differ only there.

    │ piece │ field │ piece │ field │ ... │ piece │

A path such as "topics.partitions.fetch_offset" names a field in every partition of every topic. Paths that the version
does not have are omitted. A field is a number, or records together with their length.

The positions of numbers are found by writing the message with all their bits clear and with all set. The writer returns
the positions of records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, cast

from odradek.base.number_places import places
from odradek.wire.schema.api_keys import response_header_version
from odradek.wire.schema.compile import writer
from odradek.wire.schema.layout import FieldLayout, StructLayout, layout
from odradek.wire.schema.primitives import INT16, INT32, INT64, RECORDS, Chunk, Primitive, Splice, Splices
from odradek.wire.schema.schema import schema_of
from odradek.wire.schema.varint import read_uvarint, uvarint

NUMBERS = (INT16, INT32, INT64)
REST_BYTES_MIN = 16  # Fewer bytes are not a batch, and may be less than a length.
_SIZE_BYTES = 4
_FRONT = "ii"  # Of an answer: the size of the rest, and the correlation id.
_LENGTH = Struct(">i")

_LAYOUTS: dict[tuple[type, int], StructLayout] = {}


def _layout(cls: type, version: int) -> StructLayout:
    found = _LAYOUTS.get((cls, version))
    if found is None:
        found = _LAYOUTS[cls, version] = layout(cls, version)
    return found


class Cut:
    """The pieces of a message in one version, and the types of the fields between them."""

    def __init__(self, message: object, version: int, paths: Sequence[str]) -> None:
        """Cut the message at the fields of these paths; the message is modified temporarily."""
        shape = _layout(type(message), version)
        fields = list(_fields(shape, message, "", frozenset(paths)))
        written, found = _places(message, version, fields, 1 if shape.is_flexible else _LENGTH.size)
        self.version = version
        self.is_flexible = shape.is_flexible
        self.kinds = [kind for _, _, kind in fields]
        self.pieces: list[bytes] = []
        start = 0
        for at, size in found:
            assert at >= start, "fields are in the order of the schema"
            self.pieces.append(written[start:at])
            start = at + size
        self.pieces.append(written[start:])


_Field = tuple[Any, str, Primitive]  # An attribute of a struct of the message.


def _fields(shape: StructLayout, message: Any, path: str, paths: frozenset[str]) -> Iterator[_Field]:
    """Yield the fields of these paths in wire order."""
    for field in shape.fields:
        name = path + field.name
        if name in paths:
            assert isinstance(field.type, Primitive) and not field.is_array
            yield message, field.name, field.type
        elif isinstance(field.type, StructLayout):
            yield from _fields_within(field, field.type, getattr(message, field.name), f"{name}.", paths)


def _fields_within(
    field: FieldLayout, shape: StructLayout, value: Any, path: str, paths: frozenset[str]
) -> Iterator[_Field]:
    if not any(sought.startswith(path) for sought in paths):
        return
    for element in value if field.is_array else [value]:
        yield from _fields(shape, element, path, paths)


class _NoRecords:
    """A splice that marks the position of records."""

    size = 0


def _places(
    message: object, version: int, fields: list[_Field], length_bytes: int
) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the message with zeros in the fields, and the position and size of each field."""
    before = [getattr(owner, name) for owner, name, _ in fields]
    try:
        clear, _ = _written(message, version, fields, 0)
        full, records = _written(message, version, fields, -1)
    finally:
        for (owner, name, _), value in zip(fields, before, strict=True):
            setattr(owner, name, value)
    ends, numbers = (
        iter(records),
        iter(places(clear, full, [kind.size for _, _, kind in fields if kind is not RECORDS])),
    )
    found: list[tuple[int, int]] = []
    for _, _, kind in fields:
        if kind is RECORDS:
            found.append((next(ends) - length_bytes, length_bytes))
        else:
            assert kind in NUMBERS
            found.append((next(numbers), kind.size))
    return clear, found


def _written(message: object, version: int, fields: list[_Field], number: int) -> tuple[bytes, list[int]]:
    """Write the message with `number` in all fields; return it without records, and the record positions."""
    for owner, name, kind in fields:
        setattr(owner, name, _NoRecords() if kind is RECORDS else number)
    out, splices = bytearray(), cast("Splices", [])
    writer(type(message), version)(out, message, splices)
    return bytes(out), [at for at, _ in splices]


class NumbersTemplate:
    """Template of requests that differ only in some numbers: they have the same size and the same key."""

    def __init__(self, message: object, version: int, paths: Sequence[str]) -> None:
        cut = Cut(message, version, paths)
        code, mask, text = ">", b"", b""
        for piece, kind in zip(cut.pieces, cut.kinds, strict=False):
            code += f"{len(piece)}x{kind.code}"
            mask += b"\xff" * len(piece) + bytes(kind.size)
            text += piece + bytes(kind.size)
        last = cut.pieces[-1]
        numbers = Struct(f"{code}{len(last)}x")
        self.version = version
        self.size = numbers.size
        self._unpack = numbers.unpack
        self._mask = int.from_bytes(mask + b"\xff" * len(last), "big")
        self.own_key = int.from_bytes(text + last, "big")

    def is_like(self, other: NumbersTemplate) -> bool:
        """Return whether both have their numbers at the same positions; other contents may differ."""
        return self.version == other.version and self.size == other.size and self._mask == other._mask

    def key(self, body: bytes) -> int:
        """Return the constant part of a body of this size."""
        return int.from_bytes(body, "big") & self._mask

    def values(self, body: bytes) -> tuple[int, ...]:
        """Return the numbers of a body."""
        return self._unpack(body)


class RecordsTemplate:
    """Template of requests that differ only in their records."""

    def __init__(self, message: object, version: int, paths: Sequence[str]) -> None:
        cut = Cut(message, version, paths)
        assert all(kind is RECORDS for kind in cut.kinds) and cut.kinds
        self.version = version
        self.is_flexible = cut.is_flexible
        self.beginning = cut.pieces[0]
        self.rest = cut.pieces[1:]

    @property
    def end_bytes(self) -> int:
        """Return the size of the part after the last records."""
        return len(self.rest[-1])

    def records(self, body: memoryview) -> list[memoryview] | None:
        """Return the records of a body with this beginning, or None if the rest differs, or raise Malformed."""
        found, at, size = [], len(self.beginning), len(body)
        for piece in self.rest:
            start, end = self._next(body, at, size)
            at = end + len(piece)
            if not start or at > size or body[end:at] != piece:
                return None
            found.append(body[start:end])
        return found if at == size else None

    def only_records(self, body: memoryview, size: int) -> int:
        """Return the start of the records in a body of `size` bytes, of which only the front may have arrived.

        Return 0 if there is more than one piece after them, or if they do not fill the body. Raise Malformed.
        """
        if len(self.rest) > 1:
            return 0
        start, end = self._next(body, len(self.beginning), len(body))
        return start if end + self.end_bytes == size else 0

    def _next(self, body: memoryview, at: int, size: int) -> tuple[int, int]:
        """Return the start and end of the records whose length is at `at`; zeros if there is no room for any."""
        if size - at < REST_BYTES_MIN:
            return 0, 0
        if not self.is_flexible:
            start = at + _LENGTH.size
            return start, start + max(_LENGTH.unpack_from(body, at)[0], 0)
        first, second = body[at], body[at + 1]
        if first > 127 > second:
            start = at + 2
            return start, start + (first & 127 | second << 7) - 1
        length, start = read_uvarint(body, at)
        return start, start + max(length - 1, 0)


class AnswerTemplate:
    """Template of an answer frame, into which numbers and records are packed.

    A row contains the numbers between two pieces, usually those of one partition.
    """

    def __init__(self, sample: object, version: int, paths: Sequence[str]) -> None:
        api_key = schema_of(type(sample)).api_key
        assert api_key is not None, "the message is not a response"
        cut = Cut(sample, version, paths)
        cut.pieces[0] = bytes(response_header_version(api_key, version)) + cut.pieces[0]
        self._is_flexible = cut.is_flexible
        self._sections = [_Section(_FRONT)]
        for piece, kind in zip(cut.pieces, cut.kinds, strict=False):
            self._sections[-1].add(piece, kind)
            if kind is RECORDS:
                self._sections.append(_Section(""))
        self._sections[-1].add(cut.pieces[-1], RECORDS)
        self._size = sum(section.finished() for section in self._sections) - _SIZE_BYTES
        self._row_size = max((len(row) for section in self._sections for row in section.kinds), default=0)

    def frame(self, correlation_id: int, rows: list[tuple[int, ...]]) -> bytes:
        """Return the frame of an answer without records."""
        section, rows = self._sections[0], self._as_written(rows)
        if len(rows) == 1:
            return section.pack(self._size, correlation_id, section.pieces[0], *rows[0], section.last)
        numbers: list[object] = [self._size, correlation_id]
        for number, row in enumerate(rows):
            numbers.append(section.pieces[number])
            numbers.extend(row)
        numbers.append(section.last)
        return section.pack(*numbers)

    def frame_with(self, correlation_id: int, rows: list[tuple[int, ...]], records: list[Splice]) -> list[Chunk]:
        """Return the frame of an answer with one row and records for each partition."""
        sections, rows = self._sections, self._as_written(rows)
        size = self._size
        lengths: list[bytes] = []
        for splice in records:
            records_size = splice.size
            length = uvarint(records_size + 1) if self._is_flexible else _LENGTH.pack(records_size)
            lengths.append(length)
            size += len(length) + records_size
        chunks: list[Chunk] = []
        text = b""
        for number, splice in enumerate(records):
            section, row = sections[number], rows[number]
            if number:
                text += section.pack(section.pieces[0], *row, section.last) + lengths[number]
            else:
                text = section.pack(size, correlation_id, section.pieces[0], *row, section.last) + lengths[0]
            if splice.size:
                chunks.append(text)
                chunks.append(splice)
                text = b""
        text += sections[-1].last
        if text:
            chunks.append(text)
        return chunks

    def _as_written(self, rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the rows, without the last number of each if the version does not have it."""
        if not rows or len(rows[0]) == self._row_size:
            return rows
        return [row[: self._row_size] for row in rows]


class _Section:
    """The part of a frame between two records: pieces, and a row of numbers after each but the last."""

    def __init__(self, front: str) -> None:
        self._code = f">{front}"
        self.pieces: list[bytes] = []
        self.kinds: list[list[Primitive]] = []
        self.last = b""

    def add(self, piece: bytes, kind: Primitive) -> None:
        if kind is RECORDS:
            self.last = piece
        elif piece or not self.kinds:
            self.pieces.append(piece)
            self.kinds.append([kind])
        else:
            self.kinds[-1].append(kind)

    def finished(self) -> int:
        """Complete the section and return its size in bytes."""
        for piece, row in zip(self.pieces, self.kinds, strict=True):
            self._code += f"{len(piece)}s" + "".join(kind.code for kind in row)
        whole = Struct(f"{self._code}{len(self.last)}s")
        self.pack = whole.pack
        return whole.size
