"""Copies of a message with one field at an extreme, for every field and every extreme of its type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from odradek.base.units import INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX
from odradek.wire.schema.layout import FieldLayout, StructLayout, layout
from odradek.wire.schema.primitives import BOOL, INT8, INT16, INT32, INT64, STRING, UUID

NAMES = ("../../evil", "", ".", "..", "é" * 100, "x" * 249, "x" * 250, "\0", "nowhere")


def _numbers(highest: int) -> tuple[int, ...]:
    return (-highest - 1, -3, -2, -1, 0, 1, highest - 1, highest)


VALUES: dict[object, tuple[object, ...]] = {
    BOOL: (False, True),
    STRING: NAMES,
    UUID: (bytes(16), b"\xff" * 16),
    INT8: _numbers(INT8_MAX),
    INT16: _numbers(INT16_MAX),
    INT32: _numbers(INT32_MAX),
    INT64: _numbers(INT64_MAX),
}


def extremes_of(message: object, version: int) -> Iterator[Any]:
    """Yield copies of the message, each with one field changed; of lists of structs, the first one is changed."""
    for change in _changes(layout(type(message), version), lambda root: root):
        copy = deepcopy(message)
        if change(copy):
            yield copy


Change = Callable[[Any], bool]


def _changes(struct: StructLayout, find: Callable[[Any], Any]) -> Iterator[Change]:
    for field in (*struct.fields, *struct.tagged):
        if isinstance(field.type, StructLayout):
            yield from _changes(field.type, _first(find, field.name))
            if field.is_array:
                yield from (_set(find, field.name, _repeated(count)) for count in (0, 2))
        else:
            for value in _values(field):
                yield _set(find, field.name, _constant(value))


def _first(find: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    def found(root: Any) -> Any:
        parent = find(root)
        value = None if parent is None else getattr(parent, name)
        return (value[0] if value else None) if isinstance(value, list) else value

    return found


def _values(field: FieldLayout) -> list[object]:
    some = VALUES.get(field.type, ())
    if not field.is_array:
        return [*some, *([None] if field.is_nullable else [])]
    return [[], *([one] for one in some), *([one, one] for one in some[-2:])]


def _constant(value: object) -> Callable[[Any], object]:
    return lambda _: value


def _repeated(count: int) -> Callable[[Any], object]:
    return lambda before: [*before[:1]] * count


def _set(find: Callable[[Any], Any], name: str, value: Callable[[Any], object]) -> Change:
    def change(root: Any) -> bool:
        parent = find(root)
        if parent is None:
            return False
        setattr(parent, name, value(getattr(parent, name)))
        return True

    return change
