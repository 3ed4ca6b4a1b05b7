"""Changes of a configuration as clients ask for them: one key after the other, or all of it replaced.

A configuration is a map of texts, as it lies in its znode.  APPEND and SUBTRACT work on the elements of a list; where
nothing is set they begin with Kafka's default, as Apache Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.core.configs.definition import ConfigKey, ConfigType, to_text


class Operation(IntEnum):
    """The codes of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class KeyEdit(NamedTuple):
    """One operation on one key; the value of a DELETE means nothing."""

    name: str
    operation: Operation
    value: str


class ConfigEdit(NamedTuple):
    """The operations on one configuration.  With `replaces_all` every other key is deleted (AlterConfigs)."""

    keys: tuple[KeyEdit, ...]
    replaces_all: bool = False

    def applied(self, texts: Mapping[str, str], key_of: Callable[[str], ConfigKey | None]) -> dict[str, str]:
        """Returns the texts after all operations.  Raises Refused(INVALID_CONFIG) for a list's on what is no list."""
        after = {} if self.replaces_all else dict(texts)
        for name, operation, value in self.keys:
            if operation is Operation.SET:
                after[name] = value
            elif operation is Operation.DELETE:
                after.pop(name, None)
            else:
                after[name] = _of_list(name, operation, value, after.get(name), key_of(name))
        return after


def _of_list(name: str, operation: Operation, value: str, before: str | None, key: ConfigKey | None) -> str:
    if key is None or key.type is not ConfigType.LIST:
        text = f"Can't {operation.name} to key {name} because its type is not LIST."
        raise Refused(ErrorCode.INVALID_CONFIG, text)
    present = _elements(to_text(key.default) or "" if before is None else before)
    named = _elements(value) or [""]
    if operation is Operation.APPEND:
        for one in named:
            if one not in present:
                present.append(one)
    else:
        for one in named:
            if one in present:
                present.remove(one)  # The first of several, as in Kafka.
    return ",".join(present)


def _elements(text: str) -> list[str]:
    """Splits as Kafka does: blanks belong to an element, and empty ones at the end are none."""
    elements = text.split(",")
    while elements and not elements[-1]:
        del elements[-1]
    return elements
