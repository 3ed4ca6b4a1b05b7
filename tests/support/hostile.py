"""Requests that no client would send: valid in form with odd content, or with damaged bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from odradek.api.table import BY_KEY
from odradek.base.uuids import ZERO_UUID
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.record.crc import crc32c
from odradek.record.internal.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from odradek.wire.client_codec import encode_request
from support.forge import Forge

CASES = [(api.key, version) for api in BY_KEY.values() for version in api.versions]
NOW_MS = 1_700_000_000_000


def batch(codec: Codec = Codec.NONE, **fields: int) -> bytes:
    return bytes(encode_batch([(b"k", b"v", (("h", None),), NOW_MS)] * 3, codec=codec, **fields))  # type: ignore[arg-type]


BATCHES = [
    *(batch(codec) for codec in Codec),
    batch(producer_id=7, producer_epoch=0, base_sequence=0),
    *(batch(producer_id=0, producer_epoch=0, base_sequence=at, is_transactional=True) for at in (0, 3)),
    batch()[:-1],
    batch() + batch(),
    batch() + b"\0",
    batch()[:61],
    bytes(61),
    b"",
    b"rubbish",
    None,
]


# Positions and sizes of the header fields after the checksum.
_NUMBERS = {21: 2, 23: 4, 27: 8, 35: 8, 43: 8, 51: 2, 53: 4, 57: 4}
_CHECKED_FROM = 21


def warped_batch(random: Random) -> bytes:
    """Return a batch with one changed number of the header or byte of the records, but valid size and checksum."""
    data = bytearray(batch(random.choice(list(Codec))))
    if random.random() < 0.7:
        at, size = random.choice(list(_NUMBERS.items()))
        highest = (1 << 8 * size - 1) - 1
        number = random.choice((0, 1, -1, 2, highest, highest - 1, -highest - 1, random.randint(-highest, highest)))
        data[at : at + size] = number.to_bytes(size, "big", signed=True)
    else:
        data[random.randrange(61, len(data))] ^= 1 << random.randrange(8)
    data[17:21] = crc32c(data[_CHECKED_FROM:]).to_bytes(4, "big")
    return bytes(data)


STRINGS = [
    "t",
    "u",
    "v.w",
    "v_w",
    "a/b",
    "",
    ".",
    "x" * 249,
    "x" * 250,
    "\u00e9",
    "\0",
    "nowhere",
    "1",
    "-1",
    "compact",
]
CONFIGS = ["retention.ms", "cleanup.policy", "max.message.bytes", "compression.type", "flush.messages", "no.such"]


def forge_for(random: Random, topics: Mapping[str, bytes]) -> Forge:
    """Return a generator of requests for the existing topics, given with their ids."""
    names = [*topics, *topics, "new", "t"]
    favourites: dict[str, list[object]] = {
        "acks": [-1, 0, 1],
        "topic": [*names],
        "topic_name": [*names],
        "resource_name": [*names, "1", ""],
        "resource_type": [2, 4],
        "configuration_keys": [None, CONFIGS],
        "endpoint_type": [1],
        "replica_id": [-1],
        "session_epoch": [-1, 0, 1, 2],
        "session_id": [0, *range(1, 20)],
        "count": [2, 3],
        "broker_ids": [[1]],
        "name": [*names, *names, *CONFIGS],
        "index": [0],
        "partition": [0],
        "partition_index": [0],
        "current_leader_epoch": [-1, 0],
        "leader_epoch": [-1, 0, 1],
        "last_fetched_epoch": [-1, 0],
        "fetch_offset": [0, 1, 3, 4],
        "partition_max_bytes": [0, 1, 100, 1 << 20],
        "max_bytes": [0, 1, 100, 1 << 20],
        "timestamp": [*range(-6, 1), NOW_MS, NOW_MS + 1],
        "value": ["1000", "lz4", "compact", "2147483647"],
        "software_name": ["fuzz"],
        "timeout_ms": [0, 1000],
        "max_wait_ms": [0, 1, 500],
        **_GROUPS,
        **_TRANSACTIONS,
    }
    ids = [ZERO_UUID, b"\x05" * 16, *topics.values()]
    batches = [*BATCHES, *(warped_batch(random) for _ in range(5))]
    return Forge(random, [*STRINGS, *names], ids, batches, favourites, blobs=blobs(random, names))


_GROUPS: dict[str, list[object]] = {
    "group_id": ["g", "h", ""],
    "groups_names": [["g"], ["g", "h"]],
    "group_ids": [["g"], ["g", "h"]],
    "member_id": ["", "", "m", "n", "fuzz"],
    "group_instance_id": [None, "i"],
    "instance_id": [None, "i"],
    "protocol_type": ["consumer", "connect"],
    "session_timeout_ms": [6000, 10_000],
    "rebalance_timeout_ms": [0, 100, 60_000],
    "generation_id": [-1, 0, 1, 2],
    "generation_id_or_member_epoch": [-1, 0, 1, 2],
    "member_epoch": [-2, -1, 0, 1, 2],
    "server_assignor": [None, "uniform", "range"],
    "subscribed_topic_regex": ["t.*", "(a|b)*", "[", ""],
    "key_type": [0, 1],
    "coordinator_keys": [["g"], ["x"]],
    "states_filter": [["Stable"], ["empty"]],
}
_TRANSACTIONS: dict[str, list[object]] = {
    "transactional_id": ["x", "y"],
    "v3_and_below_transactional_id": ["x", "y"],
    "transactional_ids": [["x"], ["x", "y"]],
    "transaction_timeout_ms": [1000, 60_000, 0],
    "producer_id": [-1, 0, 1, 2],
    "v3_and_below_producer_id": [0, 1, 2],
    "producer_epoch": [-1, 0, 1],
    "v3_and_below_producer_epoch": [0, 1],
    "coordinator_epoch": [0, 1],
    "enable2_pc": [False],
    "transactional_id_pattern": [None, "x|y", "("],
}


def blobs(random: Random, topics: Sequence[str]) -> list[bytes]:
    """Return valid and invalid messages between group members."""
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=list(topics)), 1)
    return [b"", subscription, subscription, random.randbytes(20), b"\0\1\x7f\xff\xff\xff", bytes(100)]


def frame_of(message: object, version: int, correlation_id: int = 7) -> bytes:
    chunks = encode_request(message, version, correlation_id, "fuzz")
    return b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))


def mutated(random: Random, frame: bytes) -> bytes:
    """Return the request with changed, removed or added bytes; key, version and length stay valid."""
    body = bytearray(frame[8:])
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(body) + 1)
        match random.randrange(4):
            case 0 if at < len(body):
                body[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            case 1:
                del body[at : at + random.choice((1, 2, 4, 8))]
            case 2:
                body[at:at] = random.randbytes(random.choice((1, 2, 4)))
            case _:
                del body[at:]
    return (4 + len(body)).to_bytes(4, "big") + frame[4:8] + body
