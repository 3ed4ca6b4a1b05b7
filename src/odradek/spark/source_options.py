"""Options of the data source, checked once and converted to one frozen value.

Names, defaults and precedence are those of Spark's own Kafka source, so that migrating changes one word. Spark passes
the keys to a Python source in lower case; kafka.* keys belong to the client. Every error is one sentence that names the
option in the user's spelling.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from odradek.base.units import TopicPartition
from odradek.client.connection.client_config import ClientConfig, addresses
from odradek.client.connection.client_errors import ConfigurationError
from odradek.record.compression import Codec
from odradek.spark.checkpoint_offsets import EARLIEST, LATEST, BadOffsets, assignment_from_text, from_text
from odradek.spark.failures import PipelineError
from odradek.spark.kafka import client_config

MAX_TRIGGER_DELAY_MS = 15 * 60_000
POLL_TIMEOUT_MS = 120_000

# Settings that would break the handling of offsets and bytes; Spark's own source rejects the same ones.
REFUSED_KAFKA_SETTINGS = {
    "auto.offset.reset": "use startingOffsets instead",
    "key.deserializer": "keys are bytes; convert the column in the query",
    "value.deserializer": "values are bytes; convert the column in the query",
    "key.serializer": "keys are bytes or strings",
    "value.serializer": "values are bytes or strings",
    "enable.auto.commit": "offsets are stored in the checkpoint",
    "interceptor.classes": "interceptors are Java classes",
}


# Known to Spark's source or Kafka's clients, but without meaning here: there is no consumer group to name.
IGNORED = {"kafka.group.id", "kafka.compression.type", "kafka.acks"}
# The client decides about retries: kafka.retry.backoff.ms and kafka.default.api.timeout.ms.
ACCEPTED_NUMBERS = ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs")


class BadOption(PipelineError, ValueError):
    """Error for an invalid option or combination of options; the text is one sentence."""


class Mode(Enum):
    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    pattern: str


Selection = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True, slots=True)
class Everywhere:
    """EARLIEST or LATEST of every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """One offset for each partition; EARLIEST and LATEST are allowed."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """First record of every partition at or after one time, in milliseconds."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    timestamps: Mapping[TopicPartition, int]


Bound = Everywhere | AtOffsets | AtTime | AtTimes


@dataclass(frozen=True, slots=True)
class Pace:
    """Bounds of one trigger of a stream."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = MAX_TRIGGER_DELAY_MS


@dataclass(frozen=True, slots=True)
class Split:
    """Division of ranges into tasks."""

    parallelism: int | None = None
    min_partitions: int | None = None
    max_records: int | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    headers: bool = False
    key: bool = True
    value: bool = True


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for reading, pickled into every task."""

    client: ClientConfig
    columns: Columns = field(default_factory=Columns)
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = POLL_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class ReadOptions:
    reading: Reading
    selection: Selection
    starting: Bound
    ending: Bound
    missing_time_is_latest: bool = False  # startingOffsetsByTimestampStrategy
    pace: Pace = field(default_factory=Pace)
    split: Split = field(default_factory=Split)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    client: ClientConfig
    topic: str | None
    codec: Codec = Codec.NONE


T = TypeVar("T")


class _Options:
    """Raw options with typed, checked access."""

    def __init__(self, raw: Mapping[str, str]) -> None:
        self.raw = {name.lower(): value for name, value in raw.items()}

    def text(self, name: str) -> str | None:
        value = self.raw.get(name.lower())
        return None if value is None else str(value).strip()

    def parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return parse(value)
        except BadOffsets as error:
            raise BadOption(f"Option {name}: {error}.") from None

    def number(self, name: str, lowest: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"-?\d{1,18}", value) or int(value) < lowest:
            raise BadOption(f"Option {name} must be an integer of at least {lowest}, not {value!r}.")
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        value = (self.text(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise BadOption(f"Option {name} must be true or false, not {value!r}.")
        return value == "true"

    def choice(self, name: str, default: str, *allowed: str) -> str:
        value = (self.text(name) or default).lower()
        if value not in allowed:
            raise BadOption(f"Option {name} must be {' or '.join(allowed)}, not {value!r}.")
        return value

    def client(self) -> ClientConfig:
        settings = {name: str(value) for name, value in self.raw.items() if name.startswith("kafka.")}
        for name, advice in REFUSED_KAFKA_SETTINGS.items():
            if f"kafka.{name}" in settings:
                raise BadOption(f"Option kafka.{name} cannot be set: {advice}.")
        servers = settings.get("kafka.bootstrap.servers", "").strip()
        if not servers:
            raise BadOption(
                "Option kafka.bootstrap.servers is missing: set it to a broker, for example localhost:9092."
            )
        try:
            addresses(servers)
        except ConfigurationError as error:
            raise BadOption(f"Option kafka.bootstrap.servers: {error}.") from None
        try:
            return client_config({name: value for name, value in settings.items() if name not in IGNORED}, "kafka.")
        except ConfigurationError as error:
            raise BadOption(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None


def read_options(raw: Mapping[str, str], mode: Mode) -> ReadOptions:
    """Parse the options of a reader. Raise BadOption."""
    options = _Options(raw)
    for name in ACCEPTED_NUMBERS:
        options.number(name, 0)
    return ReadOptions(
        reading=Reading(
            options.client(),
            columns_of(raw),
            options.flag("failOnDataLoss", True),
            options.number("kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
        ),
        selection=_selection(options),
        starting=_starting(options, mode),
        ending=_ending(options, mode),
        missing_time_is_latest=options.choice("startingOffsetsByTimestampStrategy", "error", "error", "latest")
        == "latest",
        pace=_pace(options),
        split=Split(
            options.number("parallelism"), options.number("minPartitions"), options.number("maxRecordsPerPartition")
        ),
    )


def columns_of(raw: Mapping[str, str]) -> Columns:
    """Parse the options of the schema, which Spark requests before the other options are checked."""
    options = _Options(raw)
    return Columns(
        options.flag("includeHeaders", False), options.flag("includeKey", True), options.flag("includeValue", True)
    )


def write_options(raw: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a writer. Raise BadOption."""
    options = _Options(raw)
    codec = options.choice("kafka.compression.type", "none", *(codec.name.lower() for codec in Codec))
    return WriteOptions(options.client(), options.text("topic") or None, Codec[codec.upper()])


def _selection(options: _Options) -> Selection:
    given = [name for name in ("assign", "subscribe", "subscribePattern") if options.text(name)]
    if len(given) != 1:
        found = f"{' and '.join(given)} are set" if given else "none is set"
        raise BadOption(f"Set exactly one of the options assign, subscribe and subscribePattern; {found}.")
    match given[0]:
        case "assign":
            return Assign(tuple(options.parsed("assign", assignment_from_text) or ()))
        case "subscribe":
            topics = sorted({topic.strip() for topic in (options.text("subscribe") or "").split(",")} - {""})
            if not topics:
                raise BadOption("Option subscribe contains no topic.")
            return Subscribe(tuple(topics))
        case _:
            return SubscribePattern(checked_pattern(options.text("subscribePattern") or ""))


def checked_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption(f"Invalid regular expression {text!r}: {error}.") from None
    return text


def _bound(options: _Options, side: str, default: int) -> Bound:
    """Parse one bound of the range, with Spark's precedence: one time for all, then times, then offsets."""
    timestamp = options.number(f"{side}Timestamp", 0)
    if timestamp is not None:
        return AtTime(timestamp)
    times = options.parsed(f"{side}OffsetsByTimestamp", from_text)
    if times is not None:
        return AtTimes(times)
    text = options.text(f"{side}Offsets")
    if text is None:
        return Everywhere(default)
    if text.lower() in ("earliest", "latest"):
        return Everywhere(EARLIEST if text.lower() == "earliest" else LATEST)
    return AtOffsets(options.parsed(f"{side}Offsets", lambda value: from_text(value, EARLIEST)) or {})


def _uses(bound: Bound, special: int) -> bool:
    if isinstance(bound, Everywhere):
        return bound.offset == special
    return isinstance(bound, AtOffsets) and special in bound.offsets.values()


def _starting(options: _Options, mode: Mode) -> Bound:
    bound = _bound(options, "starting", EARLIEST if mode is Mode.BATCH else LATEST)
    if mode is Mode.BATCH and _uses(bound, LATEST):
        raise BadOption("Option startingOffsets must not be latest (-1) in a batch query: it would read nothing.")
    return bound


def _ending(options: _Options, mode: Mode) -> Bound:
    if mode is Mode.STREAM:
        given = [
            name for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp") if options.text(name)
        ]
        if given:
            raise BadOption(f"Option {given[0]} is only valid in batch queries: a stream has no end.")
        return Everywhere(LATEST)
    bound = _bound(options, "ending", LATEST)
    if _uses(bound, EARLIEST):
        raise BadOption("Option endingOffsets must not be earliest (-2): the query would read nothing.")
    return bound


def _pace(options: _Options) -> Pace:
    most, least = options.number("maxOffsetsPerTrigger"), options.number("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise BadOption(f"Option minOffsetsPerTrigger ({least}) exceeds maxOffsetsPerTrigger ({most}).")
    delay = options.text("maxTriggerDelay")
    return Pace(most, least, MAX_TRIGGER_DELAY_MS if delay is None else duration_ms(delay, "Option maxTriggerDelay"))


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONG_UNITS = {
    "millisecond": "ms", "milliseconds": "ms", "second": "s", "seconds": "s", "sec": "s",
    "minute": "m", "minutes": "m", "hour": "h", "hours": "h", "day": "d", "days": "d",
}  # fmt: skip


def duration_ms(text: str, what: str) -> int:
    """Parse 15m, 10s, 500ms, "10 seconds"; a bare number is milliseconds, as in Spark. Raise BadOption."""
    found = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", text.strip().lower())
    unit = found and _UNITS_MS.get(_LONG_UNITS.get(found[2], found[2] or "ms"))
    if not found or not unit:
        raise BadOption(f"{what} must be a duration such as 15m, 10s or 500ms, not {text!r}.")
    return int(found[1]) * unit
