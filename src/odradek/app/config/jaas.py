r"""JAAS files, which contain the user and the password that Kafka's brokers use at ZooKeeper.

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="kafka"
        password="secret";
    };

A section has a name and modules, each with a flag and options. A section ends with `};`, a module with `;`. Comments
are Java comments. Java replaces ${name} with a system property; Odradek has none and keeps the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from odradek.core.configs.definition import ConfigError

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/              # Between tokens.
    | "(?P<quoted>(?:[^"\\\n]|\\.)*)"
    | (?P<mark>[{};=])
    | (?P<word>[^\s{};="]+)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}
FLAGS = ("required", "requisite", "sufficient", "optional")


class Module(NamedTuple):
    """Login module with its options; its repr shows no password."""

    class_name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Module({self.class_name})"


def read_jaas(path: Path) -> Mapping[str, tuple[Module, ...]]:
    """Return the sections of a file by name. Raise ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"Cannot read the JAAS file {path}: {(error.strerror or str(error)).lower()}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"Cannot read the JAAS file {path}: it is not valid UTF-8.") from None
    return parse_jaas(text, str(path))


def parse_jaas(text: str, source: str) -> Mapping[str, tuple[Module, ...]]:
    """Parse a text that errors call `source`. Raise ConfigError.

    Errors do not quote the text, because it contains passwords.
    """
    return _Parser(text, source).sections()


class _Token(NamedTuple):
    text: str
    is_mark: bool
    line: int


class _Parser:
    """Parser of the remaining tokens of a text."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._tokens = self._scan(text)
        self._next = next(self._tokens, None)
        self._line = 1

    def sections(self) -> Mapping[str, tuple[Module, ...]]:
        found: dict[str, tuple[Module, ...]] = {}
        while self._next is not None:
            name = self._word("a section name")
            self._mark("{")
            modules = []
            while not self._is_at("}"):
                modules.append(self._module())
            self._mark("}")
            self._mark(";")
            found[name] = tuple(modules)
        return found

    def _module(self) -> Module:
        class_name = self._word("a login module class")
        if self._word("a control flag, such as required").lower() not in FLAGS:
            raise self._syntax_error(f"one of {', '.join(FLAGS)}")
        options: dict[str, str] = {}
        while not self._is_at(";"):
            name = self._word("an option name or ;")
            self._mark("=")
            options[name] = self._word("an option value")
        self._mark(";")
        return Module(class_name, options)

    def _is_at(self, mark: str) -> bool:
        return self._next is not None and self._next.is_mark and self._next.text == mark

    def _mark(self, mark: str) -> None:
        if not self._is_at(mark):
            raise self._syntax_error(mark, at_next=True)
        self._advance()

    def _word(self, expected: str) -> str:
        if self._next is None or self._next.is_mark:
            raise self._syntax_error(expected, at_next=True)
        return self._advance()

    def _advance(self) -> str:
        token = self._next
        assert token is not None, "the caller checked that there is a token"
        self._line = token.line
        self._next = next(self._tokens, None)
        return token.text

    def _syntax_error(self, expected: str, *, at_next: bool = False) -> ConfigError:
        line = self._next.line if at_next and self._next is not None else self._line
        return ConfigError(f"Invalid JAAS file {self._source}: expected {expected} in line {line}.")

    def _scan(self, text: str) -> Iterator[_Token]:
        position, line = 0, 1
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ConfigError(f'Invalid JAAS file {self._source}: unterminated " in line {line}.')
            if match["quoted"] is not None:
                yield _Token(_ESCAPE.sub(lambda one: _CONTROL.get(one[1], one[1]), match["quoted"]), False, line)
            elif match.lastgroup is not None:
                yield _Token(match[0], match.lastgroup == "mark", line)
            line += match[0].count("\n")
            position = match.end()
