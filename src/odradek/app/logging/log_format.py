"""How log lines look: text for a person, or JSON for whoever collects them.  One event is one line.

    2026-11-21T14:31:12.345Z WARNING odradek.net.clients.client_connection: 127.0.0.1:51234 is closed: ...
    {"time": "2026-11-21T14:31:12.345Z", "level": "WARNING", "logger": ..., "message": ..., "connection": ..., ...}

What a client said (its id, its software, a topic's name) may hold anything and be long: whatever does not print is
escaped, so that nobody forges a line or moves a terminal's cursor, and everything is cut at a bound.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Mapping

from odradek.core.configs.definition import ConfigError

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
REQUESTS = "odradek.request"  # The logger of the request log.
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

MESSAGE_CHARACTERS_MAX = 4_000
FIELD_CHARACTERS_MAX = 400
TRACEBACK_CHARACTERS_MAX = 20_000

# The fields of every record; any other was given as extra=.
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NEEDS_QUOTES = frozenset(' "=|\\')


def install(format_: str, levels: Iterable[str]) -> None:
    """Logs to standard error.  `levels` are LEVEL, for everything, or LOGGER=LEVEL.  Raises ConfigError."""
    if format_ not in FORMATS:
        raise ConfigError(f"--log-format {format_!r} is not known: it may be {' or '.join(FORMATS)}.")
    chosen = parse_levels(levels)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format_ == JSON else TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    logging.getLogger("kazoo").setLevel(logging.WARNING)  # It has a line for each connection.
    for name, level in chosen.items():
        logging.getLogger(name).setLevel(level)


def parse_levels(texts: Iterable[str]) -> Mapping[str, str]:
    """Returns the level of each logger; "" is every logger.  Raises ConfigError."""
    levels = {}
    for text in texts:
        logger, _, level = text.rpartition("=")
        if level.upper() not in LEVELS:
            raise ConfigError(
                f"--log-level {text!r} is not understood: write LEVEL or LOGGER=LEVEL, "
                f"LEVEL one of {', '.join(LEVELS)}."
            )
        levels[logger.strip()] = level.upper()
    return levels


class TextFormatter(logging.Formatter):
    """Writes `time LEVEL logger: message | field=value ...`; a traceback follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{iso_time(record.created)} {record.levelname} {record.name}: {_message(record)}"
        fields = " ".join(f"{name}={_quoted(value)}" for name, value in _fields(record).items() if value is not None)
        if fields:
            line = f"{line} | {fields}"
        # No line of a traceback looks like the begin of an event: what an exception says may be a client's words.
        return "\n    ".join([line, *_traceback(self, record)])


class JsonFormatter(logging.Formatter):
    """Writes one object on one line, in ASCII; `exception` holds the traceback."""

    def __init__(self) -> None:
        super().__init__()
        import json  # Only where it is asked for.

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
    """Writes a time in UTC, with milliseconds."""
    milliseconds = int(seconds * 1000)
    second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    return f"{second}.{milliseconds % 1000:03}Z"


def printable(text: str) -> str:
    """Returns the text with everything escaped that does not print or would end a line."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def bounded(text: str, characters_max: int) -> str:
    more = len(text) - characters_max
    return text if more <= 0 else f"{text[:characters_max]}... ({more} more)"


def _message(record: logging.LogRecord) -> str:
    return printable(bounded(record.getMessage(), MESSAGE_CHARACTERS_MAX))


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: _field(value) for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}


def _field(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return bounded(str(value), FIELD_CHARACTERS_MAX)


def _quoted(value: object) -> str:
    """Returns the value so written that one can tell where it ends."""
    text = str(value)
    if not text or not _NEEDS_QUOTES.isdisjoint(text):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return printable(text)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """Returns the traceback's lines; the last of them if it is long, since those say what happened."""
    if not record.exc_info:
        return []
    text = formatter.formatException(record.exc_info)
    more = len(text) - TRACEBACK_CHARACTERS_MAX
    if more > 0:
        text = f"({more} more) ...{text[more:]}"
    return [printable(line) for line in text.split("\n")]
