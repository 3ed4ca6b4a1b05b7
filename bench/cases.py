"""The list of what is measured.  A case is plain data; kinds.py finds who makes load of it, run.py repeats it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Who answers, and with which topic settings.  Odradek syncs before it answers acks=all on a partition without
# followers, Kafka does not; so each is measured both ways.  (To set flush.messages at all is to tell Odradek when to
# sync, so it no longer does for every answer.)  What coordinators keep is written like acks=all, to topics of their
# own: odradek-relaxed is a broker that has the same setting for all topics, kafka-strict one that syncs all of them.
TARGETS: dict[str, tuple[str, dict[str, str]]] = {
    "odradek": ("odradek", {}),
    "odradek-unsynced": ("odradek", {"flush.messages": "9223372036854775807"}),
    "odradek-relaxed": ("odradek-relaxed", {}),
    "odradek-validated": ("odradek", {"odradek.record.validation": "records"}),
    "kafka": ("kafka", {}),
    "kafka-synced": ("kafka", {"flush.messages": "1"}),
    "kafka-strict": ("kafka-strict", {}),
    "bound": ("bound", {}),
}
PLAIN = ("odradek", "kafka", "bound")
ACKS_ALL = ("odradek-unsynced", "kafka", "odradek", "kafka-synced")
VALIDATED = ("odradek", "odradek-validated")
COORDINATED = ("odradek-relaxed", "kafka", "odradek", "kafka-strict")
GROUPS = (
    "start",
    "small",
    "produce",
    "validated",
    "consume",
    "latency",
    "partitions",
    "many",
    "sessions",
    "librdkafka",
    "groups",
    "commits",
    "idempotent",
    "transactions",
)

LARGE_BATCH_BYTES = 1_000_000  # Just below librdkafka's default batch.size, and Kafka's max.message.bytes.
SMALL_BATCH_BYTES = 16_384  # The Java producer's default batch.size.
STORED_BATCH_BYTES = 65_536
IN_FLIGHT = 5  # The Java producer's default max.in.flight.requests.per.connection.


@dataclass(frozen=True, slots=True)
class Case:
    """`kind` is the function that makes the load (kinds.py)."""

    group: str
    name: str
    kind: str
    targets: tuple[str, ...] = PLAIN
    value_bytes: int = 100
    batch_bytes: int = LARGE_BATCH_BYTES
    acks: int = 1
    codec: str = "none"
    clients: int = 1
    partitions: int = 1
    named: int = 1  # By one request.
    window: int = IN_FLIGHT
    is_quick: bool = False  # Also in a quick run.
    is_cold: bool = False
    keeps_topic: bool = False  # One topic for all repetitions: 2,000 partitions take their time to make.
    rate: int = 0  # Records a second, where they are sent on a schedule.
    client: str = ""  # Of transactions: frames, librdkafka or java.
    has_offsets: bool = False  # Transactions commit an offset, too.
    is_consumer: bool = False  # A group of KIP-848's protocol.


def cases() -> list[Case]:
    records = [*_small(), *_produce(), *_validated(), *_consume(), *_latency(), *_partitions(), *_many(), *_sessions()]
    return [*_start(), *records, *_librdkafka(), *_groups(), *_commits(), *_idempotent(), *_transactions()]


def _start() -> Iterator[Case]:
    yield Case("start", "start, memory, first seconds", "start", is_quick=True)


def _small() -> Iterator[Case]:
    single = {"value_bytes": 100, "batch_bytes": 1}
    yield Case("small", "50 in flight", "produce", window=50, is_quick=True, **single)
    yield Case("small", "one at a time", "produce", window=1, is_quick=True, **single)
    yield Case(
        "small", "50 in flight, 6 connections", "produce", window=50, clients=6, partitions=6, is_quick=True, **single
    )
    yield Case("small", "50 in flight, acks=all", "produce", ACKS_ALL, window=50, acks=-1, is_quick=True, **single)
    yield Case("small", "one at a time, acks=all", "produce", ACKS_ALL, window=1, acks=-1, **single)


def _produce() -> Iterator[Case]:
    for value_bytes in (100, 1024, 10_240):
        for acks in (1, -1):
            for codec in ("none", "lz4"):
                for clients in (1, 6):
                    yield Case(
                        "produce",
                        f"{size(value_bytes)}, acks={'all' if acks < 0 else acks}{_codec(codec)}{_producers(clients)}",
                        "produce",
                        ACKS_ALL if acks < 0 else PLAIN,
                        value_bytes=value_bytes,
                        acks=acks,
                        codec=codec,
                        clients=clients,
                        partitions=clients,
                        is_quick=codec == "none" and clients == 1 and value_bytes < 10_000 and acks == 1,
                    )
    for clients in (1, 6):
        yield Case(
            "produce",
            f"100 B in batches of 16 KiB, acks=1{_producers(clients)}",
            "produce",
            batch_bytes=SMALL_BATCH_BYTES,
            clients=clients,
            partitions=clients,
            is_quick=clients == 1,
        )


def _validated() -> Iterator[Case]:
    shapes = {
        "100 B, one a batch": (100, 1),
        "100 B, batches of 16 KiB": (100, SMALL_BATCH_BYTES),
        "100 B, batches of 1 MB": (100, LARGE_BATCH_BYTES),
        "10 KiB, batches of 1 MB": (10_240, LARGE_BATCH_BYTES),
    }
    for name, (value_bytes, batch_bytes) in shapes.items():
        for codec in ("none", "lz4", "zstd"):
            for clients in (1, 6):
                yield Case(
                    "validated",
                    f"{name}{_codec(codec)}{_producers(clients)}",
                    "produce",
                    VALIDATED,
                    value_bytes=value_bytes,
                    batch_bytes=batch_bytes,
                    codec=codec,
                    clients=clients,
                    partitions=clients,
                    window=50 if batch_bytes == 1 else IN_FLIGHT,
                    is_quick=codec != "zstd" and clients == 1 and value_bytes == 100,
                )


def _consume() -> Iterator[Case]:
    for value_bytes in (100, 1024, 10_240):
        for clients in (1, 6):
            yield Case(
                "consume",
                f"{size(value_bytes)}, hot, {_consumers(clients)}",
                "consume",
                value_bytes=value_bytes,
                batch_bytes=STORED_BATCH_BYTES,
                clients=clients,
                partitions=clients,
                is_quick=clients == 1 and value_bytes < 10_000,
            )
    for clients in (1, 6):
        yield Case(
            "consume",
            f"1 KiB, cold, {_consumers(clients)}",
            "consume",
            value_bytes=1024,
            batch_bytes=STORED_BATCH_BYTES,
            clients=clients,
            partitions=clients,
            is_cold=True,
            is_quick=clients == 1,
        )


def _latency() -> Iterator[Case]:
    yield Case("latency", "1,000 records/s, acks=1", "latency", batch_bytes=1, is_quick=True)
    yield Case("latency", "1,000 records/s, acks=all", "latency", ACKS_ALL, batch_bytes=1, acks=-1)


def _partitions() -> Iterator[Case]:
    for partitions in (1, 100, 2000):
        yield Case(
            "partitions",
            f"{partitions:,} partition{'s' if partitions > 1 else ''}",
            "produce",
            ("odradek", "kafka"),
            batch_bytes=1200,
            partitions=partitions,
            window=50,
            is_quick=partitions < 2000,
            keeps_topic=True,
        )


def _many() -> Iterator[Case]:
    both = ("odradek", "kafka")
    for clients in (1, 10, 100, 1000, 2000):
        for kind, activity in (("producers", "produce"), ("waiters", "wait for")):
            yield Case(
                "many",
                f"{clients:,} {activity} one record at a time",
                f"many_{kind}",
                both,
                batch_bytes=1,
                clients=clients,
                is_quick=clients in (10, 1000),
            )
    yield Case("many", "100 consume 1,000 records/s", "many_waiters", both, batch_bytes=1, clients=100, rate=1000)


def _sessions() -> Iterator[Case]:
    both = ("odradek", "kafka")
    for partitions in (1, 8, 32, 1000):
        of = f"{partitions:,} partition{'s' if partitions > 1 else ''}"
        for kind, what in (("deliveries", f"a record in one of {of}"), ("nothing_new", f"nothing in {of}")):
            yield Case(
                "sessions",
                what,
                f"sessions_{kind}",
                both,
                batch_bytes=1,
                partitions=partitions,
                is_quick=partitions in (1, 32),
                keeps_topic=True,
            )
    for named in (1, 2, 8):
        yield Case(
            "sessions",
            f"produce a record to {named} partition{'s' if named > 1 else ''} at once",
            "produce",
            both,
            batch_bytes=1,
            partitions=8,
            named=named,
            is_quick=named == 8,
        )


def _librdkafka() -> Iterator[Case]:
    for value_bytes in (100, 1024):
        for kind in ("produce", "consume"):
            yield Case(
                "librdkafka",
                f"{kind} {size(value_bytes)}",
                f"librdkafka_{kind}",
                ("odradek", "kafka"),
                value_bytes=value_bytes,
                is_quick=value_bytes == 100,
            )


def _groups() -> Iterator[Case]:
    for protocol, is_consumer in (("classic", False), ("KIP-848", True)):
        yield Case(
            "groups",
            f"200 members, {protocol}",
            "groups",
            ("odradek", "kafka"),
            clients=200,
            partitions=200 if is_consumer else 1,
            is_consumer=is_consumer,
            keeps_topic=True,
            is_quick=True,
        )


def _commits() -> Iterator[Case]:
    """A disk that has to be waited for takes no thousand records a second, one at a time, with others beside them.

    kafka-strict would sync what is written with acks=1, too.
    """
    for acks, rate, targets in ((1, 1000, COORDINATED[:-1]), (-1, 250, COORDINATED)):
        yield Case(
            "commits",
            f"{rate:,} records/s, acks={'all' if acks < 0 else acks}",
            "commits",
            targets,
            batch_bytes=1,
            acks=acks,
            rate=rate,
            keeps_topic=True,
            is_quick=acks == 1,
        )


def _idempotent() -> Iterator[Case]:
    targets = ("odradek-unsynced", "kafka")
    for name, batch_bytes in (
        ("one record a request", 1),
        ("batches of 16 KiB", SMALL_BATCH_BYTES),
        ("batches of 1 MB", LARGE_BATCH_BYTES),
    ):
        yield Case(
            "idempotent", name, "idempotent", targets, batch_bytes=batch_bytes, acks=-1, is_quick=batch_bytes == 1
        )
    yield Case("idempotent", "librdkafka", "librdkafka_idempotent", targets, acks=-1)


def _transactions() -> Iterator[Case]:
    for client in ("frames", "librdkafka", "java"):
        for partitions, has_offsets in ((1, False), (4, False), (1, True)):
            if has_offsets and client == "frames":
                continue
            yield Case(
                "transactions",
                f"{client}, {partitions} partition{'s' if partitions > 1 else ''}{', offsets' if has_offsets else ''}",
                "transactions",
                COORDINATED,
                partitions=partitions,
                acks=-1,
                client=client,
                has_offsets=has_offsets,
                is_quick=client != "java" and partitions == 1 and not has_offsets,
            )


def size(value_bytes: int) -> str:
    return f"{value_bytes // 1024} KiB" if value_bytes >= 1024 else f"{value_bytes} B"


def _codec(codec: str) -> str:
    return "" if codec == "none" else f", {codec}"


def _producers(clients: int) -> str:
    return f", {clients} producers" if clients > 1 else ""


def _consumers(clients: int) -> str:
    return f"{clients} consumer{'s' if clients > 1 else ''}"
