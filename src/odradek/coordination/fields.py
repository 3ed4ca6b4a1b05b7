"""Typed access to the fields of JSON in a znode; errors name the field instead of a traceback.

Unknown fields are ignored, because a newer Kafka may have written them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from odradek.base.units import INT32_MAX, INT64_MAX

_LOG = logging.getLogger(__name__)

Json = Mapping[str, object]
T = TypeVar("T")


class BadZnodeError(ValueError):
    """A znode whose content is not in Kafka's format."""


def readable(path: str, decode: Callable[[bytes], T], data: bytes) -> T | None:
    """Return the content of a znode, or log an error and return None if it can't be read.

    An unreadable znode stops only the work that depends on it.
    """
    try:
        return decode(data)
    except BadZnodeError as bad:
        _LOG.error("failed to read %s: %s", path, bad)
        return None


def encode(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Fields:
    """One JSON object; `what` names it in errors."""

    def __init__(self, what: str, value: Json) -> None:
        self._what = what
        self._value = value

    @classmethod
    def parse(cls, what: str, data: bytes) -> Fields:
        try:
            value = json.loads(data)
        except UnicodeDecodeError as error:
            raise BadZnodeError(f"{what} is not JSON: byte {error.start} is not valid UTF-8.") from error
        except (ValueError, RecursionError) as error:
            raise BadZnodeError(f"{what} is not JSON: {str(error)[:200]}.") from error
        if not isinstance(value, dict):
            raise BadZnodeError(f"{what} is not a JSON object.")
        return cls(what, value)

    def bad(self, name: str, expected: str) -> BadZnodeError:
        found = f"{self._value[name]!r:.100}" if name in self._value else "nothing"
        return BadZnodeError(f"{self._what} has {found} for {name}, which must be {expected}.")

    def has(self, name: str) -> bool:
        """Return whether the field is present and not null."""
        return self._value.get(name) is not None

    def int32(self, name: str, default: int | None = None) -> int:
        return self._integer(name, default, INT32_MAX)

    def int64(self, name: str, default: int | None = None) -> int:
        """Read a number, also one written as a string, as Kafka writes longs."""
        return self._integer(name, default, INT64_MAX)

    def _integer(self, name: str, default: int | None, bound: int) -> int:
        if default is not None and not self.has(name):
            return default
        value = self._value.get(name)
        if isinstance(value, str) and bound == INT64_MAX and value.lstrip("-").isdecimal() and len(value) <= 20:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not -bound - 1 <= value <= bound:
            raise self.bad(name, "an integer")
        return value

    def text(self, name: str) -> str:
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self.bad(name, "a string")
        return value

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if self.has(name) else None

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a list of strings; empty if absent."""
        value = self._value.get(name) or []
        if not isinstance(value, list) or not all(isinstance(element, str) for element in value):
            raise self.bad(name, "a list of strings")
        return tuple(value)

    def int32s(self, name: str) -> tuple[int, ...]:
        value = self._value.get(name)
        if not isinstance(value, list) or not all(map(_is_int32, value)):
            raise self.bad(name, "a list of integers")
        return tuple(value)

    def inner(self, name: str) -> Fields:
        """Read an object; empty if absent."""
        value = self._value.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.bad(name, "an object")
        return Fields(f"{name} of {self._what}", value)

    def objects(self, name: str) -> list[Fields]:
        value = self._value.get(name)
        if not isinstance(value, list) or not all(isinstance(element, dict) for element in value):
            raise self.bad(name, "a list of objects")
        return [Fields(f"{name} of {self._what}", element) for element in value]

    def names(self) -> list[str]:
        return list(self._value)

    def text_map(self) -> dict[str, str]:
        return {name: self.text(name) for name in self._value}

    def replicas(self) -> dict[int, tuple[int, ...]]:
        """Read {"0": [1, 2], "1": [2]}: broker ids by partition."""
        found = {}
        for name in self._value:
            if not name.isdecimal() or len(name) > 10 or int(name) > INT32_MAX:
                raise BadZnodeError(f"{self._what} has a partition {name[:100]!r}, which must be a number.")
            found[int(name)] = self.int32s(name)
        return dict(sorted(found.items()))


def _is_int32(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -INT32_MAX - 1 <= value <= INT32_MAX
