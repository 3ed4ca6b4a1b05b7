"""Log lines: one bounded line for each event, whatever its text, with fields."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.app.commands.serve_command import parse
from odradek.app.logging import log_format as logs
from odradek.core.configs.definition import ConfigError

ANYTHING = st.text(st.characters(codec=None, exclude_categories=()), max_size=50)
EVENT_START = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ \S+: ")


def record(message: str, *arguments: object, error: BaseException | None = None, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord(
        "odradek.test",
        logging.WARNING,
        "",
        0,
        message,
        arguments,
        (type(error), error, error.__traceback__) if error is not None else None,
    )
    made.created = 1_700_000_000.0419
    vars(made).update(fields)
    return made


def text(*arguments: object, error: BaseException | None = None, **fields: object) -> str:
    return logs.TextFormatter().format(record("%s" * len(arguments), *arguments, error=error, **fields))


def as_json(*arguments: object, error: BaseException | None = None, **fields: object) -> dict[str, object]:
    line = logs.JsonFormatter().format(record("%s" * len(arguments), *arguments, error=error, **fields))
    assert line.isascii()
    assert line.isprintable(), "one line, and nothing that moves a cursor"
    return cast(dict[str, object], json.loads(line))


def failed(words: str) -> Exception:
    try:
        raise ValueError(words)
    except ValueError as error:
        return error


def test_text_line_has_time_level_logger_and_fields() -> None:
    line = text("it is closed", connection="127.0.0.1:5", client_id="a b", correlation_id=7, software=None)
    assert line == (
        "2023-11-14T22:13:20.041Z WARNING odradek.test: it is closed | "
        'connection=127.0.0.1:5 client_id="a b" correlation_id=7'
    )


def test_json_line_has_all_fields() -> None:
    assert as_json("it is closed", connection="127.0.0.1:5", client_id=None, correlation_id=7) == {
        "time": "2023-11-14T22:13:20.041Z",
        "level": "WARNING",
        "logger": "odradek.test",
        "message": "it is closed",
        "connection": "127.0.0.1:5",
        "client_id": None,
        "correlation_id": 7,
    }


@given(ANYTHING, ANYTHING)
def test_any_text_is_logged_as_one_printable_line(message: str, client_id: str) -> None:
    """No client can forge a line, or move the cursor of a terminal."""
    assert text(message, client_id=client_id).isprintable()


@given(ANYTHING, ANYTHING)
def test_any_text_is_logged_as_one_json_line(message: str, client_id: str) -> None:
    event = as_json(message, client_id=client_id)
    assert event.keys() == {"time", "level", "logger", "message", "client_id"}


@given(ANYTHING)
def test_traceback_cannot_forge_an_event(words: str) -> None:
    lines = text("failed", error=failed(words)).split("\n")
    assert [bool(EVENT_START.match(line)) for line in lines] == [True] + [False] * (len(lines) - 1)
    assert all(line.isprintable() for line in lines)


def test_forged_event_is_escaped() -> None:
    forged = "x\n2023-11-14T22:13:20.041Z INFO odradek.test: all is well\x1b[2K\x85\u2028\u202e"
    assert r"x\n2023-11-14" in text(forged)
    assert r"well\x1b[2K\x85\u2028\u202e" in text("closed", client_id=forged)


def test_traceback_is_one_json_field() -> None:
    event = as_json("failed", error=failed("because"))
    assert event["message"] == "failed"
    exception = cast(str, event["exception"])
    assert exception.startswith("Traceback (most recent call last):\n")
    assert exception.endswith("\nValueError: because")


def test_lines_are_limited_in_length() -> None:
    huge = "x" * 1_000_000
    bound = logs.MESSAGE_CHARACTERS_MAX + logs.FIELD_CHARACTERS_MAX + logs.TRACEBACK_CHARACTERS_MAX + 1000
    line = text(huge, client_id=huge, error=failed(huge + "the end"))
    assert len(line) < bound
    assert line.endswith("the end"), "of a traceback the end says what happened"
    assert f"({1_000_000 - logs.FIELD_CHARACTERS_MAX} more)" in line
    assert len(json.dumps(as_json(huge, client_id=huge, error=failed(huge)))) < bound


def test_log_levels_are_parsed() -> None:
    assert logs.parse_levels(["warning", "odradek.request=DEBUG"]) == {"": "WARNING", "odradek.request": "DEBUG"}


@pytest.mark.parametrize("wrong", ["LOUD", "odradek=", "odradek=7", "=", ""])
def test_invalid_log_level_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="use LEVEL or LOGGER=LEVEL"):
        logs.parse_levels([wrong])


def test_invalid_log_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="use text or json"):
        logs.install("xml", [])


def test_json_is_imported_only_if_configured() -> None:
    assert "json" not in vars(sys.modules["odradek.app.logging.log_format"])


def test_field_value_cannot_forge_another_field() -> None:
    """Parsing key="value" with the usual escapes returns the original text, and no additional fields."""
    client_id = 'x\\" api=Produce client_id="y'
    match = re.search(r'client_id="((?:[^"\\]|\\.)*)"$', text("closed", client_id=client_id))
    assert match is not None
    assert re.sub(r"\\(.)", r"\1", match[1]) == client_id


def test_serve_parses_log_options() -> None:
    options = parse(["--log-format", "json", "--log-level=WARNING", "--log-level", "odradek.request=DEBUG"])
    assert options is not None
    assert (options.log_format, options.log_levels) == ("json", ("WARNING", "odradek.request=DEBUG"))
    assert parse(["--log-level"]) is None
    plain = parse([])
    assert plain is not None
    assert (plain.log_format, plain.log_levels) == ("text", ())
