"""One reader and one writer per message and version, compiled from generated source on first use.

decode(ProduceRequest, 9, body)          bytes to message
encode(ProduceResponse(...), 9)          message to bytes
reader, writer                           the compiled functions, for the hot path
reader_text, writer_text                 their source; tracebacks show it too
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
    """read(data, at) -> (message, position after it).  `left` bounds its array elements and tagged fields."""

    def __call__(self, data: Buffer, at: int, left: int = ..., /) -> tuple[T_co, int]: ...


Writer = Callable[[bytearray, T, Splices], None]

_READERS: dict[tuple[type, int], Reader[object]] = {}
_WRITERS: dict[tuple[type, int], Writer[object]] = {}


def reader(cls: type[T], version: int) -> Reader[T]:
    """read(data, at) -> (message, position after it).

    Raises Malformed.  Records are slices of `data`.  ValueError here for a version that the message never had.
    """
    found = _READERS.get((cls, version))
    if found is None:
        name = _function_name("read", cls, version)
        found = _READERS[cls, version] = _compiled(name, *reader_source(layout(cls, version), name))
    return cast("Reader[T]", found)


def writer(cls: type[T], version: int) -> Writer[T]:
    """write(out, message, splices): appends to both.

    Raises ValueError (or struct.error for a number out of range) for what this version can't carry; `out` is then of
    no use.  ValueError here for a version that the message never had.
    """
    found = _WRITERS.get((cls, version))
    if found is None:
        name = _function_name("write", cls, version)
        found = _WRITERS[cls, version] = _compiled(name, *writer_source(layout(cls, version), name, version))
    return cast("Writer[T]", found)


def decode(cls: type[T], version: int, data: Buffer, offset: int = 0) -> T:
    """Decodes a whole body.  Raises Malformed.

    Bytes after the message are ignored, as Apache Kafka 4.3.0 does for every API that was tried.
    """
    message, _ = reader(cls, version)(data, offset)
    return message


def decode_small(cls: type[T], version: int, data: Buffer, elements_max: int) -> T:
    """Decodes a body that has at most `elements_max` array elements and tagged fields together.

    Raises Malformed; TooManyElements, a Malformed, for a body with more, which may be whole all the same: `decode`
    tells.
    """
    message, _ = reader(cls, version)(data, 0, elements_max)
    return message


def encode(message: object, version: int) -> bytes:
    """Encodes a body.  Raises ValueError for a value that the version can't carry, and for a splice as records."""
    out, splices = bytearray(), cast("Splices", [])
    write = writer(type(message), version)
    try:
        write(out, message, splices)
    except struct_error as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from None
    if splices:
        raise ValueError(f"{type(message).__name__} holds a splice: only a response can be sent with one")
    return bytes(out)


def reader_text(cls: type, version: int) -> str:
    return reader_source(layout(cls, version), _function_name("read", cls, version))[0]


def writer_text(cls: type, version: int) -> str:
    return writer_source(layout(cls, version), _function_name("write", cls, version), version)[0]


def _function_name(verb: str, cls: type, version: int) -> str:
    return f"{verb}_{cls.__name__}_v{version}"


def _compiled(name: str, text: str, names: dict[str, object]) -> Callable[..., Any]:
    filename = f"<odradek.wire {name}>"
    # No modification time: the cache keeps such an entry for ever, and tracebacks find the lines.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), names)
    return cast("Callable[..., Any]", names[name])
