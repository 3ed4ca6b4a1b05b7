"""Responses to a coordinator about a marker whose partition is lost before all replicas have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.request.outcome import Encoded
from odradek.api.table import BY_KEY, IN_CLUSTER
from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, TopicName, TopicPartition
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.wire.schema.api_keys import ApiKey
from support.led import ALL_THREE, Led

VERSIONS = (0, 1, 2)


@pytest.fixture(autouse=True)
def between_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the broker use the API table of a cluster."""
    key = int(ApiKey.WRITE_TXN_MARKERS)
    monkeypatch.setitem(BY_KEY, key, IN_CLUSTER[key])


def ends(led: Led, version: int) -> Encoded | ParkedRequest[Encoded]:
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0
    )
    return led.harness.send(WriteTxnMarkersRequest(markers=[marker]), version)


def error_of(led: Led, outcome: Encoded | ParkedRequest[Encoded], version: int) -> ErrorCode:
    answer = led.harness.decoded(led.harness.finished(outcome), version, WriteTxnMarkersResponse)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", VERSIONS)
def test_marker_of_a_lost_leader_returns_not_leader(tmp_path: Path, version: int) -> None:
    led = Led(tmp_path)
    outcome = ends(led, version)
    assert led.is_waiting(outcome)
    assert led.controller.send_leader_and_isr("t", leader=NO_BROKER, epoch=1, replicas=ALL_THREE) == {}
    assert not led.is_waiting(outcome)
    assert error_of(led, outcome, version) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", VERSIONS)
def test_storage_error_of_a_marker_depends_on_the_version(tmp_path: Path, version: int) -> None:
    led = Led(tmp_path)
    waiting = ends(led, version)
    assert led.is_waiting(waiting)
    led.harness.broker.partitions[TopicPartition(TopicName("t"), 0)].take_offline()
    expected = ErrorCode.KAFKA_STORAGE_ERROR if version else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(led, waiting, version) is expected
