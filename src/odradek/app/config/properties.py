r"""Java's properties format, the format of server.properties.

    # comment                      ! comment
    key=value      key: value      key value
    long.key = one line, \
               continued (leading blanks are dropped)
    path = C\:\\data \u00e9        escapes: \t \n \r \f \uXXXX, and \x is x for any other x

Trailing blanks are part of the value. The last value of a repeated key is used. A key without a value has the empty
value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from odradek.core.configs.definition import ConfigError

_BLANKS = " \t\f"
# The key ends at the first unescaped blank, = or :. Blanks and one = or : may precede the value.
_KEY = re.compile(r"((?:[^\\ \t\f=:]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.|$)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """Read a properties file. Raise ConfigError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"Cannot read the configuration file {path}: {error.strerror or error}.") from error
    try:
        text = data.decode()
    except UnicodeDecodeError:  # The format's old encoding, valid for all bytes.
        text = data.decode("latin-1")
    return parse_properties(text, str(path))


def parse_properties(text: str, source: str) -> dict[str, str]:
    """Parse a text that errors call `source`. Raise ConfigError for a broken Unicode escape."""
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None, "the expression matches any line"
        key, value = (_unescape(part, f"line {number} of {source}") for part in match.groups())
        found[key] = value
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of its first line, line) without comments and with continuations joined."""
    pending, start = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = natural.lstrip(_BLANKS)
        if not pending:
            start = number
            if not line or line[0] in "#!":
                continue
        line = pending + line
        if _is_continued(line):
            pending = line[:-1]
        else:
            pending = ""
            yield start, line
    if pending:
        yield start, pending


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str, where: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        escape = match[1]
        if escape == "u":
            raise ConfigError(f"Malformed \\uxxxx encoding in {where}.")
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _CONTROL.get(escape, escape)

    return _ESCAPE.sub(replaced, text) if "\\" in text else text
