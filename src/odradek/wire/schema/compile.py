"""One reader and one writer per message and version, compiled from generated source on first use.

decode(ProduceRequest, 9, body)          bytes to message
encode(ProduceResponse(...), 9)          message to bytes
reader, writer                           the compiled functions, for the hot path
reader_text, writer_text                 their source, which tracebacks also show
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from struct import error as struct_error
from typing import Any, Protocol, TypeVar, cast

from odradek.wire.schema.layout import layout
from odradek.wire.schema.primitives import Buffer, Splices
from odradek.wire.schema.read_source import reader_source
from odradek.wire.schema.write_source import writer_source

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Reader(Protocol[T_co]):
    """A function read(data, at) -> (message, position after it).

    `left` bounds the total number of array elements and tagged fields.
    """

    def __call__(self, data: Buffer, at: int, left: int = ..., /) -> tuple[T_co, int]: ...


Writer = Callable[[bytearray, T, Splices], None]

_READERS: dict[tuple[type, int], Reader[object]] = {}
_WRITERS: dict[tuple[type, int], Writer[object]] = {}


def reader(cls: type[T], version: int) -> Reader[T]:
    """Return the compiled function read(data, at) -> (message, position after it).

    The function raises Malformed; records are slices of `data`. Raise ValueError for a version that the message never
    had.
    """
    found = _READERS.get((cls, version))
    if found is None:
        name = _function_name("read", cls, version)
        found = _READERS[cls, version] = _compiled(name, *reader_source(layout(cls, version), name))
    return cast("Reader[T]", found)


def writer(cls: type[T], version: int) -> Writer[T]:
    """Return the compiled function write(out, message, splices), which appends to both.

    The function raises ValueError (or struct.error for a number out of range) for values that this version can't
    represent; `out` is then unusable. Raise ValueError for a version that the message never had.
    """
    found = _WRITERS.get((cls, version))
    if found is None:
        name = _function_name("write", cls, version)
        found = _WRITERS[cls, version] = _compiled(name, *writer_source(layout(cls, version), name, version))
    return cast("Writer[T]", found)


def decode(cls: type[T], version: int, data: Buffer, offset: int = 0) -> T:
    """Decode a whole body, or raise Malformed.

    Bytes after the message are ignored, as Apache Kafka 4.3.0 does for every API tested.
    """
    message, _ = reader(cls, version)(data, offset)
    return message


def decode_small(cls: type[T], version: int, data: Buffer, elements_max: int) -> T:
    """Decode a body that has at most `elements_max` array elements and tagged fields in total.

    Raise Malformed. Raise TooManyElements, a subclass, for a body with more elements. Such a body may still be valid;
    use `decode` to find out.
    """
    message, _ = reader(cls, version)(data, 0, elements_max)
    return message


def encode(message: object, version: int) -> bytes:
    """Encode a body; raise ValueError for values the version can't represent, and for splices."""
    out, splices = bytearray(), cast("Splices", [])
    write = writer(type(message), version)
    try:
        write(out, message, splices)
    except struct_error as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from None
    if splices:
        raise ValueError(f"{type(message).__name__} contains a splice, which only a response supports")
    return bytes(out)


def reader_text(cls: type, version: int) -> str:
    return reader_source(layout(cls, version), _function_name("read", cls, version))[0]


def writer_text(cls: type, version: int) -> str:
    return writer_source(layout(cls, version), _function_name("write", cls, version), version)[0]


def _function_name(verb: str, cls: type, version: int) -> str:
    return f"{verb}_{cls.__name__}_v{version}"


def _compiled(name: str, text: str, names: dict[str, object]) -> Callable[..., Any]:
    filename = f"<odradek.wire {name}>"
    # Entries without a modification time are never removed from the cache, so tracebacks find the lines.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), names)
    return cast("Callable[..., Any]", names[name])
