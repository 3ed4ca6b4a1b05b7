"""The protocol's primitive types as Annotated aliases.

mypy sees int, str or bytes; the compiler of readers and writers sees the wire format. Numbers are big-endian. Strings,
bytes, records and arrays start with a length:

│ i16 or i32 length, -1 = null │ ...   in versions before the flexible ones (i16 for strings, i32 for the rest)
│ uvarint length + 1, 0 = null │ ...   "compact", in flexible versions (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol, TypeAlias

from odradek.base.uuids import ZERO_UUID, Uuid

Buffer: TypeAlias = bytes | bytearray | memoryview

AUTHORIZED_OPERATIONS_OMITTED = -(1 << 31)  # The operations were not requested (KIP-430).
STRING_BYTES_MAX = 32767  # In every version, although the compact form permits more.


class Splice(Protocol):
    """Bytes that are sent directly from a slice of a log file instead of being copied into an answer."""

    @property
    def size(self) -> int: ...


Splices: TypeAlias = list[tuple[int, Splice]]  # Position of each splice in the encoded bytes.
Chunk: TypeAlias = bytes | memoryview | Splice
IN_MEMORY = (bytes, memoryview)  # The chunks that are not splices.


@dataclass(frozen=True, slots=True)
class Primitive:
    """One wire type; `code` is its letter for the struct module, or that of its length if the size varies."""

    name: str
    code: str
    size: int
    zero: object
    is_fixed: bool = True


INT8 = Primitive("int8", "b", 1, 0)
INT16 = Primitive("int16", "h", 2, 0)
INT32 = Primitive("int32", "i", 4, 0)
INT64 = Primitive("int64", "q", 8, 0)
UINT16 = Primitive("uint16", "H", 2, 0)
UINT32 = Primitive("uint32", "I", 4, 0)
FLOAT64 = Primitive("float64", "d", 8, 0.0)
BOOL = Primitive("bool", "?", 1, False)  # Any byte except 0 is true, as in Kafka.
UUID = Primitive("uuid", "16s", 16, ZERO_UUID)
STRING = Primitive("string", "h", 2, "", is_fixed=False)
BYTES = Primitive("bytes", "i", 4, b"", is_fixed=False)
RECORDS = Primitive("records", "i", 4, None, is_fixed=False)

Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]
UInt16 = Annotated[int, UINT16]
UInt32 = Annotated[int, UINT32]
Float64 = Annotated[float, FLOAT64]
Bool = Annotated[bool, BOOL]
UuidField = Annotated[Uuid, UUID]
Str = Annotated[str, STRING]
Bytes = Annotated[bytes, BYTES]
# Read as a memoryview of the received bytes, and copied when written.
Records = Annotated[Buffer, RECORDS]
# The same, but a Splice is also permitted.
SplicedRecords = Annotated[Buffer | Splice, RECORDS]
