"""Description of a message in one version: its layout as a grammar, and the generated code."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.wire.catalog import APIS, HEADERS
from odradek.wire.schema.api_keys import request_header_version, response_header_version
from odradek.wire.schema.compile import reader_text, writer_text
from odradek.wire.schema.layout import FieldLayout, StructLayout, layout, versions_text
from odradek.wire.schema.primitives import Primitive
from odradek.wire.schema.schema import schema_of

_NAME_WIDTH = 42


def catalog_text() -> str:
    """Return one line per API: number, name, versions, first flexible version."""
    lines = [f"{'key':>3}  {'API':<{_NAME_WIDTH}}{'versions':<10}flexible from"]
    for key, (request, _) in APIS.items():
        schema = schema_of(request)
        lines.append(f"{key:>3}  {key.title:<{_NAME_WIDTH}}{versions_text(schema):<10}{schema.flexible_from}")
    for header in HEADERS:
        schema = schema_of(header)
        lines.append(f"{'':>3}  {schema.name:<{_NAME_WIDTH}}{versions_text(schema):<10}{schema.flexible_from}")
    return "\n".join(lines) + "\n"


def classes_named(name: str) -> tuple[type, ...]:
    """Return the messages of an API, or one message, by name, in any case; raise ValueError if unknown."""
    folded = name.casefold()
    for key, pair in APIS.items():
        if key.title.casefold() == folded:
            return pair
    for each in (cls for pair in (*APIS.values(), HEADERS) for cls in pair):
        if each.__name__.casefold() == folded:
            return (each,)
    raise ValueError(f"unknown message {name!r}: `python -m odradek.wire list` shows the known messages")


def explain(name: str, version: int) -> str:
    """Return layout, reader and writer of an API's messages or of one message.

    Raise ValueError for an unknown name.
    """
    return "\n\n".join(_explained(cls, version) for cls in classes_named(name))


def _explained(cls: type, version: int) -> str:
    grammar = "\n".join(_struct_lines(layout(cls, version), 1))
    text = f"{_title(cls, version)}\n\n{grammar}\n\n{reader_text(cls, version)}\n{writer_text(cls, version)}"
    return text.rstrip() + "\n"


def _title(cls: type, version: int) -> str:
    schema = schema_of(cls)
    parts = [f"{schema.name} version {version} of {versions_text(schema)}"]
    if schema.api_key is not None:
        header_version = request_header_version if schema.kind == "request" else response_header_version
        parts += [f"API key {schema.api_key}", f"{schema.kind} header {header_version(schema.api_key, version)}"]
    parts.append("flexible" if schema.is_flexible(version) else "not flexible")
    return ", ".join(parts)


def _struct_lines(struct: StructLayout, depth: int) -> Iterator[str]:
    for field in struct.fields:
        yield from _field_lines(field, field.name, depth)
    if struct.is_flexible:
        yield "  " * depth + ("tagged fields:" if struct.tagged else "tagged fields: none known")
        for field in struct.tagged:
            yield from _field_lines(field, f"{field.field.life.tag}: {field.name}", depth + 1)


def _field_lines(field: FieldLayout, label: str, depth: int) -> Iterator[str]:
    indented = "  " * depth + label
    yield f"{indented:<{_NAME_WIDTH}}{_type_text(field)}"
    if isinstance(field.type, StructLayout):
        yield from _struct_lines(field.type, depth + 1)


def _type_text(field: FieldLayout) -> str:
    if isinstance(field.type, Primitive):
        name, sized = field.type.name, not field.type.is_fixed
    else:
        name, sized = field.type.cls.__name__, False
    compact = "compact " if field.is_compact else ""
    element = f"{compact}{name}" if sized else name
    text = f"{compact}array of {element}" if field.is_array else element
    return f"{text}, or null" if field.is_nullable else text
