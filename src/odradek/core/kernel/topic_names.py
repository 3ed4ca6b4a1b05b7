"""Validation of topic names, which become folders, znodes and metric names."""

from __future__ import annotations

import re

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import TOPIC_NAME_CHARACTERS_MAX
from odradek.base.units import TopicName

METADATA_TOPIC = "__cluster_metadata"  # KRaft's own log: no cluster may have a topic of that name.
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def checked(name: str) -> TopicName:
    """Return the name as a TopicName; raise Refused(INVALID_TOPIC_EXCEPTION) with the reason otherwise."""
    if not name:
        raise _invalid("a topic name may not be empty")
    if name in (".", ".."):
        raise _invalid("a topic name may not be '.' or '..'")
    if len(name) > TOPIC_NAME_CHARACTERS_MAX:
        raise _invalid(f"a topic name has at most {TOPIC_NAME_CHARACTERS_MAX} characters, this one {len(name)}")
    if not _LEGAL.fullmatch(name):
        raise _invalid(f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'")
    return TopicName(name)


def _invalid(detail: str) -> Refused:
    return Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, detail)
