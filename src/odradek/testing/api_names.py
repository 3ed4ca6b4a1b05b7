"""Lookup of APIs and error codes by name, with suggestions for unknown names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum
from typing import TypeVar

from odradek.api.table import BY_KEY
from odradek.base.errors import ErrorCode
from odradek.wire.schema.api_keys import ApiKey

Number = TypeVar("Number", bound=IntEnum)


def api_named(name: str | ApiKey) -> ApiKey:
    """Return the API of a name in any spelling: ListOffsets, list_offsets.

    Raise ValueError with a list of all APIs.
    """
    key = name if isinstance(name, ApiKey) else _find(name, ApiKey)
    supported = [ApiKey(number) for number in sorted(BY_KEY)]
    if key is None or key not in supported:
        what = f"unknown API {name!r}" if key is None else f"{key.title} is not supported by this broker"
        raise ValueError(f"{what}; the APIs are {', '.join(one.title for one in supported)}")
    return key


def error_named(name: str | ErrorCode) -> ErrorCode:
    """Return the error code of a name.

    Raise ValueError with similar names, or with all names.
    """
    code = name if isinstance(name, ErrorCode) else _find(name, ErrorCode)
    if code is None:
        raise ValueError(f"unknown error {name!r}; {_suggestion(str(name), [one.name for one in ErrorCode])}")
    if code is ErrorCode.NONE:
        raise ValueError("NONE is not an error; a broker without faults returns none")
    return code


def _find(name: str, names: type[Number]) -> Number | None:
    return {_normalize(one.name): one for one in names}.get(_normalize(name))


def _normalize(name: str) -> str:
    return name.replace("_", "").lower()


def _suggestion(name: str, names: Iterable[str]) -> str:
    names = list(names)
    matches = get_close_matches(name.upper(), names, n=3, cutoff=0.7)
    return f"did you mean {' or '.join(matches)}?" if matches else f"the names are {', '.join(names)}"
