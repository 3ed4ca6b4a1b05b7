"""Access to configuration values by name, under their types."""

from __future__ import annotations

import builtins

from odradek.base.secret import Secret
from odradek.core.configs.definition import Value


class TypedValues:
    """Values by name, under the type that the caller expects; a wrong type is a bug, not an error."""

    __slots__ = ()

    def value(self, name: builtins.str) -> Value:
        """Return the value; raise KeyError for an unknown name."""
        raise NotImplementedError

    def int(self, name: builtins.str) -> builtins.int:
        value = self.value(name)
        assert isinstance(value, int) and not isinstance(value, bool), (name, value)
        return value

    def optional_int(self, name: builtins.str) -> builtins.int | None:
        return None if self.value(name) is None else self.int(name)

    def float(self, name: builtins.str) -> builtins.float:
        value = self.value(name)
        assert isinstance(value, float), (name, value)
        return value

    def bool(self, name: builtins.str) -> builtins.bool:
        value = self.value(name)
        assert isinstance(value, bool), (name, value)
        return value

    def str(self, name: builtins.str) -> builtins.str:
        value = self.value(name)
        assert isinstance(value, str), (name, value)
        return value

    def optional_str(self, name: builtins.str) -> builtins.str | None:
        return None if self.value(name) is None else self.str(name)

    def list(self, name: builtins.str) -> tuple[builtins.str, ...]:
        """Return the elements; none if nothing is set."""
        value = self.value(name)
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def secret(self, name: builtins.str) -> Secret | None:
        value = self.value(name)
        assert value is None or isinstance(value, Secret), name
        return value
