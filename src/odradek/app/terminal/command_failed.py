"""Failure of a command: one sentence that says what failed, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.app.terminal.output import remark
from odradek.base.errors import Refused
from odradek.client.connection.client_errors import (
    ClientError,
    ConfigurationError,
    ConnectionLost,
    KafkaUnavailable,
    UnknownTopic,
)

FAILED, USAGE_ERROR = 1, 2


class CommandFailed(Exception):
    """Error with one sentence for the user, and the command's exit status."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.status = status


def status_of(error: Exception) -> int:
    return USAGE_ERROR if isinstance(error, ConfigurationError | UnicodeEncodeError) else FAILED


def report_failures(failures: Iterable[ClientError]) -> int:
    """Print one sentence for each part of a command that failed. Return the exit status."""
    sentences = dict.fromkeys(sentence_of(failure) or str(failure) for failure in failures)
    for sentence in sentences:
        remark(sentence)
    return FAILED if sentences else 0


def sentence_of(error: Exception) -> str | None:
    """Return the sentence for an error outside this program, or None for a bug in the program."""
    match error:
        case ConfigurationError():
            return str(error)
        case ConnectionLost():
            return str(error)
        case KafkaUnavailable():
            return f"{error}; is the broker running, and is --bootstrap-server right?"
        case UnknownTopic():
            return f"{error}; to list all topics, run odradek topic list"
        case ClientError() | Refused():
            return str(error)
        case OSError():
            name = f"{error.filename}: " if error.filename else ""
            return name + (error.strerror or str(error) or type(error).__name__).lower()
        case UnicodeEncodeError(object=str(text), reason="surrogates not allowed"):
            return f"{text!a} is not UTF-8"  # Python maps command-line bytes that are not UTF-8 to surrogates.
        case _:
            return None
