"""odradek.record.validation=records compared with Apache Kafka 4.4.0: the same batches are refused, fixed and stored.

The recording has each version of Produce (test_broker_differential_validated.py); this test has more batches.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from differential.base import fetch, fetch_part, produce, topic
from differential.batches import THEN_MS, headed, resealed
from differential.known import ABSENT, Known, differences
from differential.player import Player
from differential.settings import SETTINGS
from differential.steps import VALID, Scenario, request_step
from kafka_peer import REAL_KAFKA, KafkaBroker

from odradek.base.units import TimestampMs
from odradek.record.builder import RecordIn, encode_batch, encode_record, seal_batch
from odradek.record.compression import Codec
from odradek.record.record_batch import HEADER_BYTES
from support.serving import Serving

pytestmark = [*REAL_KAFKA, pytest.mark.own_peer("asks a running Apache Kafka the same as this broker")]
VERSION = 9
HOUR_MS = 3_600_000
OPTION = {"odradek.record.validation": "records"}
CODE = "*.error_code"
LEFT = [
    Known("record-errors", path="*log_start_offset", ours=ABSENT),
    Known("sentences", path="*error_message", kafka=ABSENT),
    Known("stumbles", "* rubbish*", CODE, "UNKNOWN_SERVER_ERROR", "INVALID_RECORD"),
    Known("stumbles", "* out of order", CODE, "UNKNOWN_SERVER_ERROR", "INVALID_RECORD"),
    Known("inner-offsets", "* NONE out of order", CODE, "NONE", "INVALID_RECORD"),
    Known("inner-offsets", "* NONE out of order: stored"),
    Known("inner-offsets", "* NONE mangled *", CODE, "NONE", "INVALID_RECORD"),
    *(Known("inner-offsets", f"* NONE mangled {number}: stored") for number in (77, 97)),
]


def out_of_order(codec: Codec) -> bytes:
    data = bytearray(HEADER_BYTES)
    for delta in (0, 2, 1):
        encode_record(data, delta, 0, b"k", b"v")
    then = TimestampMs(THEN_MS)
    return bytes(seal_batch(data, codec, count=3, base_timestamp=then, max_timestamp=then))


def batches(codec: Codec) -> dict[str, bytes]:
    records: list[RecordIn] = [(b"k%d" % i, b"v" * i, (("h", b"x"),), THEN_MS + i % 3) for i in range(20)]
    good = bytes(encode_batch(records, codec))
    keyless: list[RecordIn] = [(None if i % 3 else b"k", b"v", (), THEN_MS) for i in range(20)]
    late: list[RecordIn] = [(None if i % 3 else b"k", b"v", (), THEN_MS + 10**13 * (i % 2)) for i in range(20)]
    count = len(records)
    return {
        "good": good,
        "greatest time too high": headed(good, max_timestamp=THEN_MS + 10),
        "greatest time out of bounds": headed(good, max_timestamp=THEN_MS + 10**13),
        "greatest time too low": headed(good, max_timestamp=THEN_MS),
        "no greatest time": headed(good, max_timestamp=-1),
        "one too few": headed(good, records_count=count + 1, last_offset_delta=count),
        "one too many": headed(good, records_count=count - 1, last_offset_delta=count - 2),
        "out of order": out_of_order(codec),
        "no keys": bytes(encode_batch(keyless, codec)),
        "times of the future": bytes(encode_batch(late, codec)),
        "rubbish": resealed(bytearray(good[:HEADER_BYTES]) + bytes(len(good) - HEADER_BYTES)),
    }


def mangled() -> dict[str, bytes]:
    """Return damaged uncompressed batches, since codecs react differently to a changed byte."""
    random = Random(5)
    rows: list[RecordIn] = [(b"key", b"v" * 40, (("name", b"x"), ("n", None)), THEN_MS + i) for i in range(4)]
    made = {}
    for number in range(150):
        data = bytearray(encode_batch(rows))
        for _ in range(random.randint(1, 2)):
            data[random.randrange(HEADER_BYTES, len(data))] = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        made[f"mangled {number}"] = resealed(data)
    return made


def scenarios() -> list[Scenario]:
    """Produce each batch to a partition of its own, and then read all of them."""
    made = []
    for codec in Codec:
        cases = batches(codec) | (mangled() if codec is Codec.NONE else {})
        for name, settings in (("plain", {}), ("compact", {"cleanup_policy": "compact"})):
            at = f"{name}-{codec.name.lower()}"
            steps = [
                request_step(f"{codec.name} {text}", VALID, produce(VERSION, [(place, records)], at), VERSION)
                for place, (text, records) in enumerate(cases.items())
            ]
            for place, text in enumerate(cases):
                steps.append(
                    request_step(
                        f"{codec.name} {text}: stored", VALID, fetch(12, [fetch_part(place, 0, 10**6)], at), 12
                    )
                )
            made.append(Scenario(at, steps, [topic(at, len(cases), **settings)]))
    return made


def test_the_same_batches_are_refused_fixed_and_stored(tmp_path: Path) -> None:
    outcomes = []
    kafka = KafkaBroker(tmp_path / "kafka", settings=SETTINGS)
    (tmp_path / "ours").mkdir()
    for broker in (kafka, Serving(tmp_path / "ours", **SETTINGS, **OPTION)):
        with broker as serving:
            player = Player(serving.port)
            player.play_all(scenarios())
            player.close()
        outcomes.append(player.outcomes)
    theirs, ours = outcomes
    found = [
        difference
        for scenario in scenarios()
        for step in scenario.requests
        for difference in differences(
            f"{scenario.name} / {step.name}", theirs[scenario.name][step.name], ours[scenario.name][step.name]
        )
    ]
    new = [str(one) for one in found if not any(known.covers(one) for known in LEFT)]
    assert not new, f"{len(new)}\n" + "\n".join(new[:40])
    assert [known for known in LEFT if not any(map(known.covers, found))] == []
