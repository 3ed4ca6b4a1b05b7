"""Conversion of configuration texts to values and back, by Kafka's rules.

Each text below was tried at a broker of 4.3.0.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.base.secret import Secret
from odradek.core.configs.config_rules import between
from odradek.core.configs.definition import ConfigError, ConfigType, Value, double, int_, parse_value, to_text

GOOD: list[tuple[ConfigType, str, Value]] = [
    (ConfigType.INT, " 2000000 ", 2_000_000),
    (ConfigType.INT, "+5", 5),
    (ConfigType.INT, "-2147483648", -(2**31)),
    (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
    (ConfigType.SHORT, "32767", 32767),
    (ConfigType.BOOLEAN, " TRUE ", True),
    (ConfigType.BOOLEAN, "false", False),
    (ConfigType.DOUBLE, "1e-2", 0.01),
    (ConfigType.DOUBLE, ".5", 0.5),
    (ConfigType.DOUBLE, "2d", 2.0),
    (ConfigType.LIST, "", ()),
    (ConfigType.LIST, " compact , delete", ("compact", "delete")),
    (ConfigType.LIST, "compact,compact", ("compact", "compact")),
    (ConfigType.STRING, " x ", "x"),
    (ConfigType.CLASS, "org.example.Policy", "org.example.Policy"),
    (ConfigType.PASSWORD, "hunter2", Secret("hunter2")),
]
BAD = [
    (ConfigType.INT, "", "Invalid value  for configuration k: Not a number of type INT"),
    (ConfigType.INT, "2147483648", "Invalid value 2147483648 for configuration k: Not a number of type INT"),
    (ConfigType.LONG, "1_0", "Invalid value 1_0 for configuration k: Not a number of type LONG"),
    (ConfigType.LONG, "0x10", "Invalid value 0x10 for configuration k: Not a number of type LONG"),
    (ConfigType.LONG, "9" * 10_000, f"Invalid value {'9' * 10_000} for configuration k: Not a number of type LONG"),
    (ConfigType.SHORT, "32768", "Invalid value 32768 for configuration k: Not a number of type SHORT"),
    (ConfigType.DOUBLE, "x", "Invalid value x for configuration k: Not a number of type DOUBLE"),
    (ConfigType.DOUBLE, "nan", "Invalid value nan for configuration k: Not a number of type DOUBLE"),
    (ConfigType.BOOLEAN, "yes", "Invalid value yes for configuration k: Expected value to be either true or false"),
]


@pytest.mark.parametrize(("type_", "text", "value"), GOOD)
def test_valid_text_is_parsed(type_: ConfigType, text: str, value: Value) -> None:
    parsed = parse_value("k", type_, text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(("type_", "text", "sentence"), BAD, ids=range(len(BAD)))
def test_invalid_text_is_refused_with_kafkas_message(type_: ConfigType, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_value("k", type_, text)
    assert str(error.value) == sentence


def test_secret_is_not_printed() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == "hunter2"
    assert to_text(secret) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1e-4, "1.0E-4"),
        (2e-5, "2.0E-5"),
        (0.001, "0.001"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (12345678.9, "1.23456789E7"),
        (-1.5e-10, "-1.5E-10"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
    ],
)
def test_doubles_print_as_in_java(value: float, text: str) -> None:
    assert to_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_survives_conversion_to_text(value: float) -> None:
    text = to_text(value)
    assert text is not None
    assert double("k", None).parse(text) == value


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """Any text becomes a value or a ConfigError, whatever the type."""
    for type_ in ConfigType:
        try:
            value = parse_value("k", type_, text)
        except ConfigError:
            continue
        shown = to_text(value)
        if shown is not None and type_ is not ConfigType.LIST:
            assert parse_value("k", type_, shown) == value


def test_value_outside_its_bounds_is_refused() -> None:
    key = int_("k", 1, between(1, 9))
    assert key.parse("9") == 9
    with pytest.raises(ConfigError, match=r"^Invalid value 0 for configuration k: Value must be at least 1$"):
        key.parse("0")
    with pytest.raises(ConfigError, match=r"^Invalid value 10 for configuration k: Value must be no more than 9$"):
        key.parse("10")
