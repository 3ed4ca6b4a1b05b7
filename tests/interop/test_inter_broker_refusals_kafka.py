"""Responses to inter-broker requests that are refused as a whole, compared with Apache Kafka 3.9.1's classes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_zookeeper import OLD_KAFKA, V3, old_jars

from odradek.api.cluster import controlled_shutdown, leader_and_isr, stop_replica, update_metadata
from odradek.api.cluster.alter_partition_requests import to_message
from odradek.api.request.call import Call, Peer
from odradek.api.table import IN_CLUSTER
from odradek.api.transactions import allocate_producer_ids
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, CorrelationId, TimestampMs
from odradek.core.broker.broker import Broker
from odradek.core.controller.events import ShutDown
from odradek.core.kernel.cluster_view import Endpoint
from odradek.core.kernel.moment import Moment
from odradek.wire.messages.stop_replica import StopReplicaResponse
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.compile import decode, encode
from support.between_brokers import CASES
from support.controller_values import IDS, ValueMaker, proposals, sent

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("asks a running Apache Kafka the same as this broker")]

PROGRAM = Path(__file__).parent / "java" / "Refusals.java"
ROUNDS = 20
SECONDS_MAX = 300
CODES = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR)


def test_kafka_refuses_with_the_same_bytes() -> None:
    lines, expected, versions = list[str](), list[bytes](), list[tuple[ApiKey, int]]()
    for key, version, code, body in requests():
        answer = IN_CLUSTER[key].refuse(call(version), body, code)
        lines.append(f"{int(key)}\t{version}\t{int(code)}\t{encode(body, version).hex()}")
        expected.append(encode(answer, version))
        versions.append((key, version))
    for (key, version), ours, kafkas in zip(versions, expected, java_responses(lines), strict=True):
        if (key, version) == (ApiKey.STOP_REPLICA, 0):  # Kafka's class groups the partitions by topic.
            assert in_order(ours) == in_order(kafkas)
        else:
            assert ours == kafkas, (key, version)


def in_order(data: bytes) -> tuple[int, list[tuple[str, int, int]]]:
    answer = decode(StopReplicaResponse, 0, data)
    return answer.error_code, sorted(
        (one.topic_name, one.partition_index, one.error_code) for one in answer.partition_errors
    )


def requests() -> Iterator[tuple[ApiKey, int, ErrorCode, object]]:
    for key, version in CASES:
        maker = ValueMaker(f"refused {key.name} {version}")
        codes = [*CODES]
        if key in (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA):
            codes += [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_CONTROLLER_EPOCH]
        for number in range(ROUNDS):
            yield key, version, codes[number % len(codes)], message(maker, key, version)


def message(maker: ValueMaker, key: ApiKey, version: int) -> object:
    match key:
        case ApiKey.LEADER_AND_ISR:
            # For topics without an id Kafka's class returns the first one only.
            become = maker.become(version)._replace(topic_ids=IDS)
            return leader_and_isr.to_message(sent(become), become, version, "INSIDE")
        case ApiKey.STOP_REPLICA:
            stop = maker.stops(version)
            return stop_replica.to_message(sent(stop), stop, version)
        case ApiKey.UPDATE_METADATA:
            update = maker.update(version)
            return update_metadata.to_message(sent(update), update, version)
        case ApiKey.CONTROLLED_SHUTDOWN:
            return controlled_shutdown.to_message(ShutDown(BrokerId(1), 5))
        case ApiKey.ALTER_PARTITION:
            return to_message(proposals(maker, version, BrokerId(1)), BrokerId(1), 5, IDS, version)
        case _:
            return allocate_producer_ids.to_message(BrokerId(1), 5)


def call(version: int) -> Call:
    """Return a call with the version, which is all that a refusal uses."""
    peer = Peer("PLAINTEXT", Endpoint("PLAINTEXT", "h", 1), None, "h:2")
    no_broker: Broker = None  # type: ignore[assignment]
    return Call(no_broker, peer, version, "tests", CorrelationId(1), Moment(TimestampMs(0), 0))


def java_responses(lines: list[str]) -> list[bytes]:
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{old_jars(V3)}/*", str(PROGRAM)]
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    return [bytes.fromhex(line) for line in done.stdout.split("\n")[:-1]]
