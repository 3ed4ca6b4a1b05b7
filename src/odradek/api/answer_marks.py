"""An answer of which only some numbers change, cut at them: made once, and then packed instead of encoded."""

from __future__ import annotations

from struct import pack

from odradek.wire.api_keys import ApiKey
from odradek.wire.request import Request
from odradek.wire.response import encode_response

MARKS = (0x0123456789ABCDEF, 0x1122334455667788, 0x1032547698BADCFE)  # As no name could contain.
SIZE_BYTES = 4
FRONT_BYTES = 8  # The size, and the correlation id.


def around(api_key: ApiKey, version: int, sample: object, count: int) -> tuple[bytes, bytes]:
    """What comes before the first `count` MARKS in `sample`, without size and correlation id, and what comes after."""
    before, found, after = behind_front(api_key, version, sample).partition(pack(f">{count}q", *MARKS[:count]))
    assert found, "the numbers follow each other"
    return before, after


def behind_front(api_key: ApiKey, version: int, answer: object) -> bytes:
    """The frame without size and correlation id."""
    asked = Request(api_key, version, 0, None, memoryview(b""), 0, 0)
    whole = b"".join(chunk for chunk in encode_response(asked, answer) if isinstance(chunk, bytes))
    return whole[FRONT_BYTES:]
