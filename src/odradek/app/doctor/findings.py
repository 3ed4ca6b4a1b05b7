"""Findings of an examination: one sentence of what is, and where it helps one of what to change."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """WRONG: a client would not work, or not everywhere.  NOTE: it works, and somebody may wonder about something."""

    OK = "ok"
    NOTE = "note"
    WRONG = "WRONG"


class Finding(NamedTuple):
    """`check` is what was looked at: address, connection, ..., broker N, topics, log dirs, installation."""

    check: str
    state: State
    says: str
    advice: str | None = None


def ok(check: str, says: str) -> Finding:
    return Finding(check, State.OK, says)


def note(check: str, says: str, advice: str | None = None) -> Finding:
    return Finding(check, State.NOTE, says, advice)


def wrong(check: str, says: str, advice: str) -> Finding:
    """Makes the finding of something wrong, which never comes without what to do."""
    return Finding(check, State.WRONG, says, advice)


def works(findings: Sequence[Finding]) -> bool:
    return not any(finding.state is State.WRONG for finding in findings)


def listed(names: Sequence[object], shown_max: int = 5) -> str:
    """Lists names as `a, b, c and 17 more`."""
    shown = ", ".join(map(str, names[:shown_max]))
    return shown if len(names) <= shown_max else f"{shown} and {len(names) - shown_max} more"
