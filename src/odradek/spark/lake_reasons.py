"""Extraction of the reason from errors of delta-rs, which stacks causes and quotes an S3 server's XML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError

FAILURES = (OSError, DeltaError)

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r"\b(?:GET|PUT|POST|HEAD|DELETE) (https?://[^/\s]+)")
# AWS's metadata service for credentials: delta-rs queries it if none are configured.
_NO_CREDENTIALS = re.compile(r"\bIMDS\b|169\.254\.169\.254")
_SILENCE = re.compile(r"\bHTTP error\b|\btimed out\b")
_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:.*?<Message>([^<]*)</Message>)?", re.DOTALL)


class BadLake(Exception):
    """Error for a place that cannot be loaded into; one sentence."""


def reason_of(error: Exception) -> str:
    """Return the innermost cause, as one line that ends with a full stop."""
    text = _COLOURS.sub("", str(error))
    if _NO_CREDENTIALS.search(text):
        return "no credentials found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
    if match := _ANSWER.search(text):
        code, message = match[1], match[2]
        return f"{code}: {message}".rstrip(":. ") + "." if message else f"{code}."
    first, *causes = text.split("↳")
    # A message without causes may continue with advice, a cause with the text that it refers to.
    lines = [line.strip() for line in (causes[-1] if causes else first).splitlines() if line.strip()]
    cause = lines[0] if lines else type(error).__name__
    if address := _ADDRESS.search(text):
        cause = f"{address[1]}: {cause.rpartition(' - ')[2]}"  # Some causes are one line; this is its end.
    return f"{cause.rstrip('.')}."


def is_silence(error: BaseException | None) -> bool:
    """Return whether a store did not answer, as opposed to refusing: it may answer later."""
    return bool(_SILENCE.search(str(error))) and not _ANSWER.search(str(error))


@contextmanager
def failing_as(what: str) -> Iterator[None]:
    """Convert errors of delta-rs and the disk to a BadLake whose sentence starts with `what`."""
    try:
        yield
    except FAILURES as error:
        raise BadLake(f"{what}: {reason_of(error)}") from error
