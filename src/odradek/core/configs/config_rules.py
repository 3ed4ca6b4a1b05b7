"""Validation rules of values, under the names that the tables use; error texts are Kafka's.

The text of a rule ("[1,...]") is its form in Kafka's documentation, and the tables are tested against it.
"""

from __future__ import annotations

import re

from odradek.core.configs.definition import Rule, Value, invalid, to_text
from odradek.core.kernel.metadata_version import metadata_version


def between(low: float, high: float | None = None) -> Rule:
    """Return a rule for a number with inclusive bounds."""
    assert high is None or low <= high

    def check(name: str, value: Value) -> str | None:
        assert isinstance(value, (int, float)), "only numeric keys have ranges"
        if value < low:
            return invalid(name, to_text(value) or "", f"Value must be at least {low}")
        if high is not None and value > high:
            return invalid(name, to_text(value) or "", f"Value must be no more than {high}")
        return None

    return Rule(f"[{low},...]" if high is None else f"[{low},...,{high}]", check)


def between_or(low: int, high: int, special: int) -> Rule:
    assert low <= high and not low <= special <= high

    def check(name: str, value: Value) -> str | None:
        assert isinstance(value, int), "only numeric keys have ranges"
        if value == special or low <= value <= high:
            return None
        return invalid(name, str(value), f"Value must be between {low} and {high} or equal to {special}")

    return Rule(f"[{low},...,{high}] or {special}", check)


def one_of(*allowed: str) -> Rule:
    """Return a rule for a string, or each string of a list, out of a few."""
    expected = f"String must be one of: {', '.join(allowed)}"

    def check(name: str, value: Value) -> str | None:
        elements = value if isinstance(value, tuple) else (value,)
        return next((invalid(name, str(e), expected) for e in elements if e not in allowed), None)

    return Rule(f"[{', '.join(allowed)}]", check)


def one_of_any_case(*allowed: str) -> Rule:
    def check(name: str, value: Value) -> str | None:
        if str(value).upper() in allowed:
            return None
        return invalid(name, str(value), f"String must be one of (case insensitive): {', '.join(allowed)}")

    return Rule(f"(case insensitive) [{', '.join(allowed)}]", check)


def _check_not_empty(name: str, value: Value) -> str | None:
    return None if value else invalid(name, to_text(value) or "", "String must be non-empty")


def _check_not_empty_list(name: str, value: Value) -> str | None:
    # Kafka's message.
    return None if value else f"Configuration '{name}' must not be empty. Valid values include: any non-empty value"


def _accept_any(_name: str, _value: Value) -> str | None:
    return None


_THROTTLED = re.compile(r"([0-9]+:[0-9]+)?")


def _check_throttled_replicas(name: str, value: Value) -> str | None:
    assert isinstance(value, tuple)
    if "".join(value) == "*" or all(map(_THROTTLED.fullmatch, value)):
        return None
    form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    reason = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
    return invalid(name, f"[{', '.join(value)}]", reason)


_RELEASE = re.compile(r"\d+\.\d+(\.\d+)*(-IV\d+)?")


def _check_release(name: str, value: Value) -> str | None:
    ok = _RELEASE.fullmatch(str(value))
    return None if ok else invalid(name, str(value), "Version must be a release of Kafka such as 3.9 or 3.9-IV0")


def _check_supported(name: str, value: Value) -> str | None:
    if metadata_version(str(value)) is not None:
        return None
    return invalid(name, str(value), "Version must be one from 0.11.0 to 3.9, such as 2.8 or 2.8-IV1")


NOT_EMPTY = Rule("non-empty string", _check_not_empty)
NOT_NULL = Rule("non-null string", _accept_any)  # Text from a file is never null.
# Repeated elements are dropped when a list is parsed, so there is nothing left to reject.
UNIQUE = Rule("list", _accept_any)
NOT_EMPTY_LIST = Rule("list", _check_not_empty_list)
ANY_LIST = Rule("non-empty list", _accept_any)  # Kafka's name for it, although an empty default is valid.
THROTTLED_REPLICAS = Rule("pid:bid,... or *", _check_throttled_replicas, keeps_repeats=True)
RELEASE = Rule("[release/IBP version strings]", _check_release)
SUPPORTED_RELEASE = RELEASE._replace(check=_check_supported)  # Versions of the inter-broker protocol supported here.

AT_LEAST_MINUS_2, AT_LEAST_MINUS_1, AT_LEAST_0, AT_LEAST_1 = map(between, (-2, -1, 0, 1))
CLEANUP_POLICY = one_of("compact", "delete")
COMPRESSION_TYPE = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
DECOMPRESSED_MESSAGE_BYTES = 2_147_483_639  # Kafka's default: the longest array that every JVM can allocate.
RECORD_VALIDATION = one_of("header", "records")
TIMESTAMP_TYPE = one_of("CreateTime", "LogAppendTime")
SECURITY_PROTOCOL = one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
