"""An answer of which only some numbers change, cut at them: made once, and then packed instead of encoded."""

from __future__ import annotations

from struct import pack

from odradek.wire.api_keys import ApiKey
from odradek.wire.request import Request
from odradek.wire.response import encode_response

MARKS = (0x0123456789ABCDEF, 0x1122334455667788, 0x1032547698BADCFE)  # As no name could contain.
SIZE_BYTES = 4
_FRONT_BYTES = 8  # The size, and the correlation id.


def around(api_key: ApiKey, version: int, sample: object, count: int) -> tuple[bytes, bytes]:
    """What comes before the first `count` MARKS in `sample`, without size and correlation id, and what comes after."""
    asked = Request(api_key, version, 0, None, memoryview(b""), 0, 0)
    whole = b"".join(chunk for chunk in encode_response(asked, sample) if isinstance(chunk, bytes))
    before, found, after = whole.partition(pack(f">{count}q", *MARKS[:count]))
    assert found, "the numbers follow each other"
    return before[_FRONT_BYTES:], after
