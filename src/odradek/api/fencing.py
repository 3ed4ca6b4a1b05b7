"""PRODUCER_FENCED, and what it is to clients that came before it (KIP-588)."""

from __future__ import annotations

from odradek.base.errors import ErrorCode


def fenced_as(code: ErrorCode, version: int, since: int) -> ErrorCode:
    """The code, as a request of this version may be told it; `since` is the first that knows PRODUCER_FENCED."""
    is_too_new = code is ErrorCode.PRODUCER_FENCED and version < since
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_too_new else code
