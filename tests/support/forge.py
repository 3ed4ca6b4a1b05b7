"""Messages that are valid in form and arbitrary in content, generated from the wire schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from odradek.base.units import INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX
from odradek.wire.schema.layout import FieldLayout, StructLayout, layout
from odradek.wire.schema.primitives import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Primitive,
)

LENGTHS = (0, 1, 1, 1, 2, 3)
SMALL = (-2, -1, 0, 0, 0, 1, 1, 2, 3)
HIGHEST = {INT8: INT8_MAX, INT16: INT16_MAX, INT32: INT32_MAX, INT64: INT64_MAX}


class Forge:
    """A generator of messages; `strings`, `uuids`, `records` and `blobs` are the values of such fields.

    Values in `favourites`, by field name, are more frequent, so that many requests refer to existing objects.
    """

    def __init__(
        self,
        random: Random,
        strings: Sequence[str],
        uuids: Sequence[bytes],
        records: Sequence[bytes | None],
        favourites: Mapping[str, Sequence[object]],
        *,
        blobs: Sequence[bytes] = (b"",),
    ) -> None:
        self._random = random
        self._strings = strings
        self._uuids = uuids
        self._records = records
        self._favourites = favourites
        self._blobs = blobs

    def message(self, cls: type, version: int) -> object:
        return self._struct(layout(cls, version))

    def _struct(self, struct: StructLayout) -> object:
        present = {field.name: self._field(field) for field in struct.fields}
        tagged = {field.name: self._field(field) for field in struct.tagged if self._random.random() < 0.3}
        made: object = struct.cls(**self._required_but_absent(struct), **present, **tagged)
        return made

    def _required_but_absent(self, struct: StructLayout) -> dict[str, object]:
        """Return values for required fields that this version lacks, since the constructor needs them."""
        return {field.name: field.default for field in struct.absent if field.is_required}

    def _field(self, field: FieldLayout) -> object:
        if field.is_nullable and self._random.random() < 0.2:
            return None
        favourites = self._favourites.get(field.name)
        if favourites and self._random.random() < 0.8:
            return self._random.choice(favourites)
        if field.is_array:
            return [self._value(field.type) for _ in range(self._random.choice(LENGTHS))]
        return self._value(field.type)

    def _value(self, kind: Primitive | StructLayout) -> object:
        if isinstance(kind, StructLayout):
            return self._struct(kind)
        random = self._random
        if kind is BOOL:
            return random.random() < 0.5
        if kind is STRING:
            return random.choice(self._strings)
        if kind is UUID:
            return random.choice(self._uuids)
        if kind is RECORDS:
            return random.choice(self._records)
        if kind is BYTES:
            return random.choice(self._blobs)
        if kind is FLOAT64:
            return random.random()
        return self._number(HIGHEST[kind])

    def _number(self, highest: int) -> int:
        random = self._random
        if random.random() < 0.8:
            return random.choice(SMALL)
        return random.choice((highest, -highest - 1, random.randint(-highest - 1, highest)))
