"""The broker of a package built without a compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.waits]

WITHOUT_MOVER = """
import sys
sys.modules["odradek.net.native.mover"] = None  # Importing it fails from here on.

from confluent_kafka import Consumer, Producer, TopicPartition
from odradek.net.native.movers import HAS_MOVER
from odradek.testing import Broker

assert not HAS_MOVER
value = bytes(900_000)
with Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(4):
        producer.produce("t", value)
        assert producer.flush(120) == 0
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "nobody", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("t", 0, 0)])
    messages = consumer.consume(4, 120)
    assert [message.value() for message in messages] == [value] * 4
print("all there")
"""


def test_large_records_are_served_without_a_mover() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MOVER], capture_output=True, text=True, timeout=280, check=False
    )
    assert "all there" in done.stdout, done.stderr
