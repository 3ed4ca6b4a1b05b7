"""Errors for malformed bytes: a peer that sends a Malformed message loses its connection.

The generated readers call the small constructors, so that each check is one line and each text is written once.
"""

from __future__ import annotations


class Malformed(ValueError):
    """Error for bytes that are not a valid message; the rest of the connection's data can't be trusted."""


class TooManyElements(Malformed):
    """Error for an array or tagged section with more elements than its bytes, or the reader's bound, allow."""


def cut_short(what: str, size: int, available: int) -> Malformed:
    return Malformed(f"{what} needs {size} bytes, but only {available} remain")


def string_too_long(what: str, size: int, available: int) -> Malformed:
    if size > available:
        return cut_short(what, size, available)
    return Malformed(f"{what} has {size} bytes, more than the maximum of 32767")


def null_refused(what: str) -> Malformed:
    return Malformed(f"{what} must not be null in this version")


def array_too_long(what: str, count: int, available: int) -> Malformed:
    return TooManyElements(f"{what} claims {count} elements in {available} bytes, more than a message can contain")


def too_many_tags(count: int, left: int) -> Malformed:
    return TooManyElements(f"{count} tagged fields exceed the remaining limit of {left} for a message")


def tag_mismatch(what: str, size: int, used: int) -> Malformed:
    return Malformed(f"tagged field {what} has {used} bytes instead of the declared {size}")
