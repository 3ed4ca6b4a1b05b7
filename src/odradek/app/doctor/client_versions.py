"""Check of client compatibility by API versions alone, as clients decide it themselves.

The version ranges come from the named client versions: ApiKeys of the Java client, and the schemas and classes of the
Python clients. The debug log of librdkafka shows only the newest versions that it uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.app.doctor.findings import Finding, listed, note, ok, wrong
from odradek.client.connection.versions import ApiRange
from odradek.wire.schema.api_keys import ApiKey

Ranges = Mapping[int, ApiRange]

USES: dict[str, tuple[ApiKey, ...]] = {
    "produce": (ApiKey.METADATA, ApiKey.PRODUCE),
    "consume": (ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH),
    "groups": (
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
    ),
    "idempotence": (ApiKey.INIT_PRODUCER_ID,),
}
GROUPS_ADVICE = "Assign partitions manually (assign() instead of subscribe())."
IDEMPOTENCE_ADVICE = "Set enable.idempotence=false in Java producers 3.0 and newer, where the default is true."


class Client(NamedTuple):
    """Client and its version ranges of the APIs that it needs."""

    name: str
    ranges: Ranges

    def lacks(self, use: str, apis: Ranges) -> list[str]:
        """Return the names of the APIs of this use that share no version with the broker."""
        return [name_of(key) for key in USES[use] if not overlap(self.ranges[key], apis.get(key))]


def client(name: str, ranges: str) -> Client:
    """Create a client from its version ranges, given in the order of KEYS."""
    pairs = (each.split("-") for each in ranges.split())
    return Client(name, {key: ApiRange(int(low), int(high)) for key, (low, high) in zip(KEYS, pairs, strict=True)})


KEYS = (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.FETCH, *USES["groups"], *USES["idempotence"])
CLIENTS = (
    client("Java 4.3", "0-13 3-13 1-11 4-18  0-6 0-9 0-5 0-4 0-5 2-10 1-10  0-5"),
    client("librdkafka 2.16", "0-13 0-10 0-7 0-16  0-2 0-5 0-3 0-3 0-1 0-9 0-9  0-4"),
    client("kafka-python 3.0", "0-13 3-13 1-11 4-18  0-6 0-9 0-5 0-4 0-5 2-10 1-10  0-6"),
    client("aiokafka 0.14", "0-5 0-8 0-5 0-11  0-1 0-5 0-3 0-1 0-1 0-3 0-3  0-0"),
)


def overlap(client_range: ApiRange, broker_range: ApiRange | None) -> bool:
    return (
        broker_range is not None
        and client_range.lowest <= broker_range.highest
        and broker_range.lowest <= client_range.highest
    )


def name_of(key: ApiKey) -> str:
    return "".join(word.capitalize() for word in key.name.split("_"))


def examine_clients(apis: Ranges) -> Iterable[Finding]:
    """Check that each client can produce and consume, then check the optional uses."""
    missing = {one.name: one.lacks("produce", apis) + one.lacks("consume", apis) for one in CLIENTS}
    fine = [name for name, lacks in missing.items() if not lacks]
    for name, lacks in missing.items():
        if lacks and fine:
            message = f"{name} has no common version of {listed(list(dict.fromkeys(lacks)))} with this broker"
            yield note("clients", message, "Use an older version of the client, or upgrade the broker.")
    if not fine:
        lacks = sorted({api for some in missing.values() for api in some})
        advice = "Use the address of a broker: no client can produce to this service and consume from it."
        yield wrong("clients", f"no client has a common version of {listed(lacks)} with this broker", advice)
        return
    yield ok("clients", f"{listed(fine)} can produce and consume")
    capable = [one for one in CLIENTS if one.name in fine]
    yield optional_use("groups", "consumer groups", capable, apis, GROUPS_ADVICE)
    yield optional_use("idempotence", "idempotent producers", capable, apis, IDEMPOTENCE_ADVICE)


def optional_use(use: str, what: str, capable: Sequence[Client], apis: Ranges, advice: str) -> Finding:
    """Check that the clients support a use which not every client needs."""
    lacks_by_client = {one.name: one.lacks(use, apis) for one in capable}
    lacks = sorted({api for some in lacks_by_client.values() for api in some})
    if not lacks:
        return ok(use, f"{'all of these clients' if len(capable) > 1 else capable[0].name} can use {what}")
    incapable = [name for name, lacking in lacks_by_client.items() if lacking]
    clients = "no client can use" if len(incapable) == len(capable) else f"{listed(incapable)} cannot use"
    return note(use, f"{clients} {what}: {listed(lacks)} missing or too old", advice)
