"""Regular expressions of clients in RE2's syntax, as in Apache Kafka.

RE2 runs in time proportional to the pattern and to the text, and the size of a compiled pattern is bounded.  Python's
own `re` is no substitute: it has another syntax, and one pattern could block the broker forever.  RE2 is installed with
the extra `regex`, because it has no wheels for musl and most brokers never receive an expression.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from odradek.base.errors import ErrorCode, Refused
from odradek.base.extras import not_installed
from odradek.base.units import KIB

# Some thousands of instructions.  With ten thousand topics, the worst known pattern takes half a second; with RE2's own
# default it took three times as long.
PATTERN_MEMORY_BYTES = 256 * KIB


class Pattern:
    """Compiled expression.

    Raises Refused(INVALID_REGULAR_EXPRESSION) for an invalid one, for one that needs too much memory, and without RE2.
    """

    __slots__ = ("_compiled",)

    def __init__(self, text: str) -> None:
        re2 = _imported_re2(text)
        options = re2.Options()
        options.max_mem = PATTERN_MEMORY_BYTES
        options.never_capture = True
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            detail = f"invalid regular expression `{text}`: {_text(error)}"
            raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, detail) from None

    def matches(self, text: str) -> bool:
        """Return whether the expression matches the whole text."""
        return self._compiled.fullmatch(text) is not None


def _imported_re2(text: str) -> Any:
    """Import RE2 for this expression: on first use, so that a broker's start does not pay for it."""
    try:
        import re2
    except ImportError:
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"cannot evaluate regular expression `{text}`: {_no_re2()}"
        ) from None
    return re2


@cache  # It reads the metadata of installed packages, and clients may send many expressions.
def _no_re2() -> str:
    return f"the broker lacks the extra regex: {not_installed(['re2'], 'regex')}"


def _text(error: Exception) -> str:
    message = error.args[0] if error.args else ""
    return message.decode(errors="replace") if isinstance(message, bytes) else str(message)
