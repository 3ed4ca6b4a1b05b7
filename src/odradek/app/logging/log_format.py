"""Format of log lines: text for people or JSON for log collectors, one line for each event.

    2026-11-21T14:31:12.345Z WARNING odradek.net.clients.client_connection: 127.0.0.1:51234 is closed: ...
    {"time": "2026-11-21T14:31:12.345Z", "level": "WARNING", "logger": ..., "message": ..., "connection": ..., ...}

Text from clients (client id, software name, topic name) may contain any characters and be long. Unprintable characters
are escaped, so that no client can forge a line or move a terminal's cursor, and every part is cut at a limit.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Mapping

from odradek.core.configs.definition import ConfigError

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
REQUESTS = "odradek.request"  # Logger of the request log.
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

MESSAGE_CHARACTERS_MAX = 4_000
FIELD_CHARACTERS_MAX = 400
TRACEBACK_CHARACTERS_MAX = 20_000

# Fields of every record; any other field came from extra=.
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NEEDS_QUOTES = frozenset(' "=|\\')


def install(format_: str, levels: Iterable[str]) -> None:
    """Log to standard error. `levels` are LEVEL, for all loggers, or LOGGER=LEVEL. Raise ConfigError."""
    if format_ not in FORMATS:
        raise ConfigError(f"Invalid --log-format {format_!r}: use {' or '.join(FORMATS)}.")
    chosen = parse_levels(levels)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format_ == JSON else TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    logging.getLogger("kazoo").setLevel(logging.WARNING)  # It logs every connection.
    for name, level in chosen.items():
        logging.getLogger(name).setLevel(level)


def parse_levels(texts: Iterable[str]) -> Mapping[str, str]:
    """Return the level of each logger; "" means every logger. Raise ConfigError."""
    levels = {}
    for text in texts:
        logger, _, level = text.rpartition("=")
        if level.upper() not in LEVELS:
            raise ConfigError(
                f"Invalid --log-level {text!r}: use LEVEL or LOGGER=LEVEL, with one of {', '.join(LEVELS)}."
            )
        levels[logger.strip()] = level.upper()
    return levels


class TextFormatter(logging.Formatter):
    """Formatter of `time LEVEL logger: message | field=value ...`, followed by an indented traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{iso_time(record.created)} {record.levelname} {record.name}: {_message(record)}"
        fields = " ".join(f"{name}={_quoted(value)}" for name, value in _fields(record).items() if value is not None)
        if fields:
            line = f"{line} | {fields}"
        # Indented, so that no line looks like the start of an event: an exception may quote a client's text.
        return "\n    ".join([line, *_traceback(self, record)])


class JsonFormatter(logging.Formatter):
    """Formatter of one ASCII JSON object on one line; `exception` contains the traceback."""

    def __init__(self) -> None:
        super().__init__()
        import json  # Only if requested.

        self._encode = json.JSONEncoder(ensure_ascii=True, default=str).encode

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": iso_time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
            **{name: printable(value) if isinstance(value, str) else value for name, value in _fields(record).items()},
        }
        traceback = _traceback(self, record)
        if traceback:
            event["exception"] = "\n".join(traceback)
        return self._encode(event)


def iso_time(seconds: float) -> str:
    """Format a time in UTC, with milliseconds."""
    milliseconds = int(seconds * 1000)
    second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    return f"{second}.{milliseconds % 1000:03}Z"


def printable(text: str) -> str:
    """Return the text with unprintable characters and line ends escaped."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def bounded(text: str, characters_max: int) -> str:
    more = len(text) - characters_max
    return text if more <= 0 else f"{text[:characters_max]}... ({more} more)"


def _message(record: logging.LogRecord) -> str:
    return printable(bounded(record.getMessage(), MESSAGE_CHARACTERS_MAX))


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: _field(value) for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


def _field(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return bounded(str(value), FIELD_CHARACTERS_MAX)


def _quoted(value: object) -> str:
    """Return the value, quoted if its end would be ambiguous."""
    text = str(value)
    if not text or not _NEEDS_QUOTES.isdisjoint(text):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return printable(text)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """Return the traceback's lines; cut a long one at the front, because the last lines give the error."""
    if not record.exc_info:
        return []
    text = formatter.formatException(record.exc_info)
    more = len(text) - TRACEBACK_CHARACTERS_MAX
    if more > 0:
        text = f"({more} more) ...{text[more:]}"
    return [printable(line) for line in text.split("\n")]
