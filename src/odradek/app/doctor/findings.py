"""Findings of an examination: one sentence that states a fact, and one of advice where useful."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """Severity of a finding.

    WRONG: a client would fail, at least in some places. NOTE: clients work, but something merits attention.
    """

    OK = "ok"
    NOTE = "note"
    WRONG = "WRONG"


class Finding(NamedTuple):
    """Result of one check.

    `check` names the subject: address, connection, ..., broker N, topics, log dirs, installation.
    """

    check: str
    state: State
    message: str
    advice: str | None = None


def ok(check: str, message: str) -> Finding:
    return Finding(check, State.OK, message)


def note(check: str, message: str, advice: str | None = None) -> Finding:
    return Finding(check, State.NOTE, message, advice)


def wrong(check: str, message: str, advice: str) -> Finding:
    """Create a finding of a problem, which always includes advice."""
    return Finding(check, State.WRONG, message, advice)


def works(findings: Sequence[Finding]) -> bool:
    return not any(finding.state is State.WRONG for finding in findings)


def listed(names: Sequence[object], shown_max: int = 5) -> str:
    """Format names as `a, b, c and 17 more`."""
    shown = ", ".join(map(str, names[:shown_max]))
    return shown if len(names) <= shown_max else f"{shown} and {len(names) - shown_max} more"
