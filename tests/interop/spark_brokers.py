"""The brokers of the Spark tests: Odradek, and a real Apache Kafka, fetched with Maven and run with Java.

They are those of the client's tests (client_peers.py), in the form that Spark's tests use.
"""

from __future__ import annotations

from functools import cache

import client_peers
import pytest
from client_peers import folder
from kafka_peer import CONTROL, missing
from spark_support import Kafka

__all__ = ["BROKERS", "STARTERS", "apache_kafka", "folder", "odradek"]


@cache
def odradek() -> Kafka:
    return Kafka(client_peers.odradek(), is_odradek=True)


@cache
def apache_kafka() -> Kafka:
    if reason := missing():
        pytest.skip(reason)
    return Kafka(client_peers.apache_kafka(), is_odradek=False)


STARTERS = {"odradek": odradek, "apache-kafka": apache_kafka}
BROKERS = ["odradek", pytest.param("apache-kafka", marks=CONTROL)]
