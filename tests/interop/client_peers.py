"""Brokers for the client's tests, each started once in the process and stopped with it.

Running brokers can be set in the environment: ODRADEK_TEST_BROKER and ODRADEK_TEST_KAFKA, as host:port.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from kafka_peer import CONTROL, KafkaBroker

from odradek.client.connection.client_config import ClientConfig
from odradek.testing import Broker


@cache
def odradek() -> str:
    if given := os.environ.get("ODRADEK_TEST_BROKER"):
        return given
    return Broker().start().address  # It ends with the process.


@cache
def apache_kafka() -> str:
    if given := os.environ.get("ODRADEK_TEST_KAFKA"):
        return given
    broker = KafkaBroker(folder())
    atexit.register(broker.stop)
    broker.start()
    return broker.address


def folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="odradek-test-"))
    atexit.register(shutil.rmtree, made, True)  # ignore_errors
    return made


def quick_config(address: str, **settings: int) -> ClientConfig:
    """Return a config with shorter timeouts than the defaults, so that a failing test does not take an hour."""
    quick = {"api_timeout_ms": 90_000, "delivery_timeout_ms": 90_000, "retry_backoff_ms": 20}
    return ClientConfig(address, **(quick | settings))  # type: ignore[arg-type]  # All ints.


STARTERS: dict[str, Callable[[], str]] = {"odradek": odradek, "apache-kafka": apache_kafka}
BROKERS = ["odradek", pytest.param("apache-kafka", marks=CONTROL)]
