"""The pytest plugin: a broker for the session and a topic for each test.

    def test_orders(kafka, kafka_topic):
        Producer({"bootstrap.servers": kafka.address}).produce(kafka_topic, b"one")

pytest loads this module in every session of every project that has Odradek installed.  It imports nothing that is not
loaded already: the broker comes with the first fixture that asks for it.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from odradek.testing.broker import Broker

INI = "kafka_configs"
MARKER = "kafka_topic"
NAME_CHARACTERS_MAX = 200  # Of the 249 that a topic's name may have.

_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(INI, "what the broker of the `kafka` fixture is configured to, a key=value on each line", "linelist")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}(partitions, configs): what the topic of this test is to be like")


@pytest.fixture(scope="session")
def kafka_configs(pytestconfig: pytest.Config) -> Mapping[str, Any]:
    """The broker's configuration.  Override it in a conftest.py, or set it in the ini file."""
    return dict(_pair(line) for line in pytestconfig.getini(INI))


@pytest.fixture(scope="session")
def kafka(kafka_configs: Mapping[str, Any]) -> Iterator[Broker]:
    """A broker in this process, for the whole session; under pytest-xdist each worker has its own."""
    from odradek.testing.broker import Broker

    with Broker(kafka_configs) as broker:
        yield broker


@pytest.fixture
def kafka_topic(kafka: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic that only this test has; it is deleted afterwards, and faults that are left are cleared."""
    marker = request.node.get_closest_marker(MARKER)
    name = _topic_name(request.node.name)
    kafka.create_topic(name, *(() if marker is None else marker.args), **({} if marker is None else marker.kwargs))
    yield name
    kafka.faults.clear()
    if kafka.is_running:
        from odradek.base.errors import Refused

        with suppress(Refused):  # The test may have deleted it.
            kafka.delete_topic(name)


def _pair(line: str) -> tuple[str, str]:
    name, separator, value = line.partition("=")
    if not separator:
        raise pytest.UsageError(f"{INI}: {line!r} is not key=value")
    return name.strip(), value.strip()


def _topic_name(test: str) -> str:
    """Returns a topic name of the test's, with '-' for what may not be in it, and a number for runs and retries."""
    plain = re.sub(r"[^a-zA-Z0-9._-]+", "-", test).strip("-.")
    return f"{plain[:NAME_CHARACTERS_MAX]}-{os.getpid()}-{next(_numbers)}"
