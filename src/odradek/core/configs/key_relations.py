"""Relations between broker keys that Apache Kafka checks at its start, with its messages.

The rules of listeners are in the shell, which parses them; those of KRaft are not implemented.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odradek.core.configs.values import TypedValues

MIB = 1 << 20
_CODECS = range(5)
_NO_MORE_THAN, _NO_LESS_THAN = "must be less than or equal to", "must be greater than or equal to"
_AGE_KEYS = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")


def problems(configs: TypedValues) -> Iterator[str]:
    """Yield a sentence for each rule that the values break."""
    for rule in _RULES:
        yield from rule(configs)


def _identity(configs: TypedValues) -> Iterator[str]:
    broker_id, node_id = configs.int("broker.id"), configs.int("node.id")
    if node_id != broker_id and min(broker_id, node_id) >= 0:
        yield "You must set `node.id` to the same value as `broker.id`."
    generated = configs.bool("broker.id.generation.enable")
    if broker_id < 0 and configs.bool("zookeeper.metadata.migration.enable"):
        yield (
            "broker.id generation is incompatible with ZooKeeper migration. Please stop using it before enabling "
            "migration (set broker.id to a value greater or equal to 0)."
        )
    # Higher ids are reserved for generation, so another broker could get the same one.
    under_zookeeper = configs.optional_str("zookeeper.connect") and not configs.list("process.roles")
    if under_zookeeper and generated and broker_id > configs.int("reserved.broker.max.id"):
        yield "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id"


def _logs(configs: TypedValues) -> Iterator[str]:
    for name in _AGE_KEYS:
        value = configs.optional_int(name)
        if value is not None:
            if value == 0:
                yield f"{name} must be unlimited (-1) or, greater than or equal to 1"
            break
    size = "log.cleaner.dedupe.buffer.size"
    if configs.int(size) < MIB * max(configs.int("log.cleaner.threads"), 1):
        yield f"{size} must be at least 1MB per cleaner thread."


def _cordoned(configs: TypedValues) -> Iterator[str]:
    name = "cordoned.log.dirs"
    cordoned, log_dirs = configs.list(name), configs.list("log.dirs") or configs.list("log.dir")
    if "*" in cordoned:
        if len(cordoned) > 1:
            yield f"When {name} is set to *, it must not contain other values"
        return
    missing = [directory for directory in cordoned if directory not in log_dirs]
    if missing:
        text = f"All entries in {name} must be present in log.dirs or log.dir. Missing entries :"
        yield f"{text} {', '.join(missing)}"


def _replicas(configs: TypedValues) -> Iterator[str]:
    wait = configs.int("replica.fetch.wait.max.ms")
    if configs.int("replica.socket.timeout.ms") < wait:
        yield (
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary "
            "socket timeouts"
        )
    if configs.int("replica.lag.time.max.ms") < wait:
        yield (
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent "
            "frequent changes in ISR"
        )


def _offsets(configs: TypedValues) -> Iterator[str]:
    for name in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        if configs.int(name) not in _CODECS:
            yield f"{name}: Unknown compression type id: {configs.int(name)}"
    name, factor = "offsets.commit.required.acks", "offsets.topic.replication.factor"
    if not -1 <= configs.int(name) <= configs.int(factor):
        yield f"{name} must be greater or equal to -1 and less or equal to {factor}"


def _connections(configs: TypedValues) -> Iterator[str]:
    queued, request_max = configs.int("queued.max.request.bytes"), configs.int("socket.request.max.bytes")
    if 0 < queued < request_max:
        yield "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
    delay, idle = configs.int("connection.failed.authentication.delay.ms"), configs.int("connections.max.idle.ms")
    if idle > 0 and delay >= idle:
        yield (
            f"connection.failed.authentication.delay.ms={delay} should always be less than "
            f"connections.max.idle.ms={idle} to prevent failed authentication responses from timing out"
        )
    limit, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    texts = configs.str(overrides)
    if configs.int(limit) == 0 and not texts:
        yield f"{limit} can be set to zero only if {overrides} property is set."
    pairs = [pair.rpartition(":") for pair in texts.split(",")] if texts else []
    if not all(host.strip() and count.strip().isdecimal() for host, _, count in pairs):
        yield f"{overrides} must be a list of host:count pairs."


def _groups(configs: TypedValues) -> Iterator[str]:
    if "classic" not in configs.list("group.coordinator.rebalance.protocols"):
        yield "Disabling the 'classic' protocol is not supported."
    for kind in ("consumer", "share", "streams"):
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            yield from _between(configs, f"group.{kind}.", what)
        session, beat = f"group.{kind}.session.timeout.ms", f"group.{kind}.heartbeat.interval.ms"
        if configs.int(beat) >= configs.int(session):
            yield f"{beat} must be less than {session}"
    for what in ("delivery.count.limit", "record.lock.duration.ms", "partition.max.record.locks"):
        yield from _between(configs, "group.share.", what)
    sessions, members = "group.share.max.share.sessions", "group.share.max.size"
    if configs.int(sessions) < configs.int(members):
        yield f"{sessions} {_NO_LESS_THAN} {members}"
    most, number = "group.streams.max.standby.replicas", "group.streams.num.standby.replicas"
    if configs.int(number) > configs.int(most):
        yield f"{number} {_NO_MORE_THAN} {most}"


def _between(configs: TypedValues, prefix: str, what: str) -> Iterator[str]:
    low, name, high = f"{prefix}min.{what}", f"{prefix}{what}", f"{prefix}max.{what}"
    least, value, most = map(configs.int, (low, name, high))
    if most < least:
        yield f"{high} {_NO_LESS_THAN} {low}"
    elif value < least:
        yield f"{name} {_NO_LESS_THAN} {low}"
    elif value > most:
        yield f"{name} {_NO_MORE_THAN} {high}"


_RULES: tuple[Callable[[TypedValues], Iterator[str]], ...] = (
    _identity,
    _logs,
    _cordoned,
    _replicas,
    _offsets,
    _connections,
    _groups,
)
