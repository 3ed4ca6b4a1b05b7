"""Regular expressions that clients send, in RE2's syntax, as Apache Kafka has it.

RE2 needs time in proportion to the pattern and to the text, never more, and what a pattern is compiled to is bounded.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import KIB

# Some thousands of instructions.  With ten thousand topics the worst pattern that was found takes half a second; with
# RE2's own default it was three times that.
PATTERN_MEMORY_BYTES = 256 * KIB


class Pattern:
    """One expression.  Raises Refused(INVALID_REGULAR_EXPRESSION) for a text that is none, or needs too much memory."""

    __slots__ = ("_compiled",)

    def __init__(self, text: str) -> None:
        import re2  # Here, as most brokers never see an expression, and each start would pay for the import.

        options = re2.Options()
        options.max_mem = PATTERN_MEMORY_BYTES
        options.never_capture = True
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            detail = f"`{text}` is no regular expression that can be used: {_text(error)}"
            raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, detail) from None

    def matches(self, text: str) -> bool:
        """True if the expression matches the whole text."""
        return self._compiled.fullmatch(text) is not None


def _text(error: Exception) -> str:
    told = error.args[0] if error.args else ""
    return told.decode(errors="replace") if isinstance(told, bytes) else str(told)
