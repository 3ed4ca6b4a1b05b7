"""The reason within what delta-rs says when it fails: it stacks up causes, and an S3 server answers in XML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError

FAILURES = (OSError, DeltaError)

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r"\b(?:GET|PUT|POST|HEAD|DELETE) (https?://[^/\s]+)")
# Where AWS tells its own machines their credentials: delta-rs asks there when it was given none.
_NO_CREDENTIALS = re.compile(r"\bIMDS\b|169\.254\.169\.254")
_SILENCE = re.compile(r"\bHTTP error\b|\btimed out\b")
_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:.*?<Message>([^<]*)</Message>)?", re.DOTALL)


class BadLake(Exception):
    """Raised for a place that cannot be loaded into; one sentence."""


def reason_of(error: Exception) -> str:
    """Returns the innermost cause, as one line that ends with a full stop."""
    text = _COLOURS.sub("", str(error))
    if _NO_CREDENTIALS.search(text):
        return "no credentials were found, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
    if answered := _ANSWER.search(text):
        code, message = answered[1], answered[2]
        return f"{code}: {message}".rstrip(":. ") + "." if message else f"{code}."
    first, *causes = text.split("↳")
    # A message of one part may go on with advice, a cause with the text that it is about.
    lines = [line.strip() for line in (causes[-1] if causes else first).splitlines() if line.strip()]
    cause = lines[0] if lines else type(error).__name__
    if address := _ADDRESS.search(text):
        cause = f"{address[1]}: {cause.rpartition(' - ')[2]}"  # Some causes are one line, of which this is the end.
    return f"{cause.rstrip('.')}."


def is_silence(error: BaseException | None) -> bool:
    """True if a store did not answer, rather than refuse: it may answer later."""
    return bool(_SILENCE.search(str(error))) and not _ANSWER.search(str(error))


@contextmanager
def failing_as(what: str) -> Iterator[None]:
    """Has what delta-rs and the disk raise told in one sentence that begins with `what`."""
    try:
        yield
    except FAILURES as error:
        raise BadLake(f"{what}: {reason_of(error)}") from error
