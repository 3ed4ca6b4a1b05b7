"""The protocol's primitive types, each as an Annotated alias: mypy sees int, str or bytes, the compiler the wire form.

Numbers are big-endian.  Strings, bytes and records carry a length in front, and so do arrays:

│ i16 or i32 length, -1 = null │ ...   in versions before the flexible ones (i16 for strings, i32 for the rest)
│ uvarint length + 1, 0 = null │ ...   "compact", in flexible versions (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol, TypeAlias

from odradek.base.uuids import ZERO_UUID, Uuid

Buffer: TypeAlias = bytes | bytearray | memoryview

AUTHORIZED_OPERATIONS_OMITTED = -(1 << 31)  # Nobody asked for them (KIP-430).
STRING_BYTES_MAX = 32767  # In every version, although the compact form could say more.


class Splice(Protocol):
    """Bytes that are sent from where they lie (a slice of a log file) instead of being copied into an answer."""

    @property
    def size(self) -> int: ...


Splices: TypeAlias = list[tuple[int, Splice]]  # Position in the encoded bytes where each belongs.
Chunk: TypeAlias = bytes | memoryview | Splice
IN_MEMORY = (bytes, memoryview)  # The chunks that are no splices.


@dataclass(frozen=True, slots=True)
class Primitive:
    """One wire type.  `code` is its letter for the struct module, or its length's letter where the size varies."""

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
BOOL = Primitive("bool", "?", 1, False)  # Any byte but 0 is true, as in Kafka.
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
# Read: a memoryview of the received bytes.  Written: copied.
Records = Annotated[Buffer, RECORDS]
# The same, but a Splice may be given too.
SplicedRecords = Annotated[Buffer | Splice, RECORDS]
