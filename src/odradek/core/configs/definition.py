"""Definition of a configuration key, and conversion of text to typed values and back, as in Kafka.

The tables (core/configs/topic_keys.py, core/configs/broker_*.py) are lists of ConfigKey built by the small functions at
the end, one key per line.  Values enter as text (a properties file, a CreateTopics request) and leave as text
(DescribeConfigs), so parsing and printing are inverse to each other.  Surprising: doubles print as in Java ("1.0E-4"),
most lists lose repeated elements, and a secret never leaves as text at all.  It uses NamedTuples throughout: a
dataclass adds a millisecond or more to the broker's start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

from odradek.base.secret import Secret
from odradek.base.units import INT16_MAX, INT32_MAX, INT64_MAX


class ConfigError(ValueError):
    """Invalid configuration; the text is one sentence that names the key and its valid values."""


def raise_all(problems: Sequence[str]) -> None:
    """Raise ConfigError for all problems at once, one per line, if there are any."""
    if len(problems) == 1:
        raise ConfigError(problems[0])
    if problems:
        raise ConfigError("\n  ".join((f"{len(problems)} problems in the configuration:", *problems)))


class ConfigType(IntEnum):
    """Types of values, with the numbers of DescribeConfigs version 3 and up (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class UpdateMode(Enum):
    """Update modes of broker keys: fixed at the start, or dynamic for one or for all brokers (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
READ_ONLY, PER_BROKER, CLUSTER_WIDE = UpdateMode.READ_ONLY, UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE


Value = bool | int | float | str | tuple[str, ...] | Secret | None


class Rule(NamedTuple):
    """Condition for a parsed value.

    `text` is Kafka's name of the rule; `check` returns the problem, or None.  A list loses its repeated elements and
    may have no empty ones, except under a rule that `keeps_repeats`: such a list stays as written.
    """

    text: str
    check: Callable[[str, Value], str | None]
    keeps_repeats: bool = False


class ConfigKey(NamedTuple):
    """One key.  Retired keys are accepted for old files and clients; Kafka 4 does not know them any more."""

    name: str
    type: ConfigType
    default: Value
    rule: Rule | None
    importance: Importance = MEDIUM
    mode: UpdateMode = READ_ONLY
    internal: bool = False
    retired: bool = False

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """Parse a text to a typed value; raise ConfigError with Kafka's message if it is invalid."""
        value = parse_value(self.name, self.type, text)
        if isinstance(value, tuple) and not (self.rule is not None and self.rule.keeps_repeats):
            if "" in value:
                raise ConfigError(f"Configuration '{self.name}' values must not be empty.")
            value = tuple(dict.fromkeys(value))
        problem = self.rule.check(self.name, value) if self.rule is not None else None
        if problem is not None:
            raise ConfigError(problem)
        return value


class ConfigSource(IntEnum):
    """Sources of values, with the protocol's numbers."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class Synonym(NamedTuple):
    """One value of a key.

    The first synonym is effective; each other would be effective without those before it.
    """

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key in an answer.  `value` is None if nothing is set, and always for a secret."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    type_code: ConfigType
    documentation: str | None


_NUMBER_MAX = {ConfigType.SHORT: INT16_MAX, ConfigType.INT: INT32_MAX, ConfigType.LONG: INT64_MAX}
# int() alone would also accept "1_000", and float() "nan".
_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[dDfF]?")
_NUMBER_CHARACTERS_MAX = 100


def invalid(name: str, value: str, reason: str) -> str:
    return f"Invalid value {value} for configuration {name}: {reason}"


def parse_value(name: str, type_: ConfigType, text: str) -> Value:
    text = text.strip()
    if type_ in _NUMBER_MAX:
        return _parse_integer(name, type_, text)
    if type_ is ConfigType.DOUBLE:
        return _parse_double(name, text)
    if type_ is ConfigType.BOOLEAN:
        return _parse_boolean(name, text)
    if type_ is ConfigType.LIST:
        return tuple(element.strip() for element in text.split(",")) if text else ()
    return Secret(text) if type_ is ConfigType.PASSWORD else text


def _parse_integer(name: str, type_: ConfigType, text: str) -> int:
    high = _NUMBER_MAX[type_]
    if len(text) <= _NUMBER_CHARACTERS_MAX and _INTEGER.fullmatch(text) and -high - 1 <= int(text) <= high:
        return int(text)
    raise ConfigError(invalid(name, text, f"Not a number of type {type_.name}"))


def _parse_double(name: str, text: str) -> float:
    match = _DOUBLE.fullmatch(text)
    if match is None or len(text) > _NUMBER_CHARACTERS_MAX:
        raise ConfigError(invalid(name, text, "Not a number of type DOUBLE"))
    return float(match[1])


def _parse_boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(invalid(name, text, "Expected value to be either true or false"))
    return text.lower() == "true"


def to_text(value: Value) -> str | None:
    """Return a value as DescribeConfigs shows it; None for a secret."""
    if value is None or isinstance(value, Secret):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _java_double(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    from decimal import Decimal  # Rare, and 1 ms of start-up.

    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    fraction = text[1:].rstrip("0") or "0"
    return f"{'-' if sign else ''}{text[0]}.{fraction}E{exponent + len(text) - 1}"


class _Type:
    """Factory of keys of one type; the tables consist of calls to it."""

    def __init__(self, type_: ConfigType) -> None:
        self._type = type_

    def __call__(
        self,
        name: str,
        default: Value,
        rule: Rule | None = None,
        importance: Importance = MEDIUM,
        mode: UpdateMode = READ_ONLY,
        *,
        internal: bool = False,
        retired: bool = False,
    ) -> ConfigKey:
        return ConfigKey(name, self._type, default, rule, importance, mode, internal, retired)


boolean = _Type(ConfigType.BOOLEAN)
string = _Type(ConfigType.STRING)
int_ = _Type(ConfigType.INT)
short = _Type(ConfigType.SHORT)
long = _Type(ConfigType.LONG)
double = _Type(ConfigType.DOUBLE)
list_ = _Type(ConfigType.LIST)
class_ = _Type(ConfigType.CLASS)
password = _Type(ConfigType.PASSWORD)
