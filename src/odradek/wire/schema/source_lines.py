"""Generation of Python source lines, shared by the generators of readers and writers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from struct import Struct

from odradek.wire.schema.schema import Field

_LETTERS = {"16s": "U", "?": "T"}  # Names can't contain a question mark.


class Source:
    """The source of one function and its global names."""

    def __init__(self, names: dict[str, object]) -> None:
        self.names = names
        self.lines: list[str] = []
        self._indent = 0
        self._variables = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self._indent + line)

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        self.emit(line)
        self._indent += 1
        yield
        self._indent -= 1

    def variable(self, stem: str) -> str:
        self._variables += 1
        return f"{stem}{self._variables}"

    def name_of(self, cls: type) -> str:
        self.names[cls.__name__] = cls
        return cls.__name__

    def struct_call(self, method: str, codes: list[str]) -> str:
        """Return the name of `Struct(">" + codes).method`, legible in the source: unpack_from_hi, pack_i3qB."""
        runs = [(code, len(list(group))) for code, group in groupby(codes)]
        name = f"{method}_" + "".join(_LETTERS.get(code, code) + (str(n) if n > 1 else "") for code, n in runs)
        self.names[name] = getattr(Struct(">" + "".join(codes)), method)
        return name

    def default_of(self, field: Field, owner: type) -> str:
        """Return an expression for the field's default."""
        default = field.default
        if default is None or isinstance(default, bool | int | float | str | list) or default == b"":
            return repr(default)
        name = f"DEFAULT_{owner.__name__}_{field.name}"
        self.names[name] = default
        return name

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def bytes_of(codes: list[str]) -> int:
    return Struct(">" + "".join(codes)).size
