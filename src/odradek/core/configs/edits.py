"""Configuration changes as requested by clients: per key, or as a full replacement.

A configuration is a map of texts, as in its znode.  APPEND and SUBTRACT work on the elements of a list; without a
setting they start from Kafka's default, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.core.configs.definition import ConfigKey, ConfigType, to_text


class Operation(IntEnum):
    """Codes of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class KeyEdit(NamedTuple):
    """One operation on one key; a DELETE ignores the value."""

    name: str
    operation: Operation
    value: str


class ConfigEdit(NamedTuple):
    """Operations on one configuration.  With `replaces_all`, every other key is deleted (AlterConfigs)."""

    keys: tuple[KeyEdit, ...]
    replaces_all: bool = False

    def applied(self, texts: Mapping[str, str], key_of: Callable[[str], ConfigKey | None]) -> dict[str, str]:
        """Return the texts after all operations.

        Raises Refused(INVALID_CONFIG) for a list operation on a key of another type.
        """
        after = {} if self.replaces_all else dict(texts)
        for name, operation, value in self.keys:
            if operation is Operation.SET:
                after[name] = value
            elif operation is Operation.DELETE:
                after.pop(name, None)
            else:
                after[name] = _edit_list(name, operation, value, after.get(name), key_of(name))
        return after


def _edit_list(name: str, operation: Operation, value: str, before: str | None, key: ConfigKey | None) -> str:
    if key is None or key.type is not ConfigType.LIST:
        text = f"Can't {operation.name} to key {name} because its type is not LIST."
        raise Refused(ErrorCode.INVALID_CONFIG, text)
    present = _elements(to_text(key.default) or "" if before is None else before)
    named = _elements(value) or [""]
    if operation is Operation.APPEND:
        for element in named:
            if element not in present:
                present.append(element)
    else:
        for element in named:
            if element in present:
                present.remove(element)  # The first of several, as in Kafka.
    return ",".join(present)


def _elements(text: str) -> list[str]:
    """Return the elements as split by Kafka: blanks are kept, and empty ones at the end are dropped."""
    elements = text.split(",")
    while elements and not elements[-1]:
        del elements[-1]
    return elements
