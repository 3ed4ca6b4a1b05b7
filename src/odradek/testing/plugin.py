"""The pytest plugin: a broker for the session and a topic for each test; and a cluster for a test that asks for one.

    def test_orders(kafka, kafka_topic):
        Producer({"bootstrap.servers": kafka.address}).produce(kafka_topic, b"one")

pytest loads this module in every session of every project that has Odradek installed.  It imports nothing that is not
loaded already: the broker comes with the first fixture that asks for it.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from odradek.testing.embedded_broker import Broker
    from odradek.testing.embedded_cluster import Cluster
    from odradek.testing.shared import Shared

INI = "kafka_configs"
MARKER = "kafka_topic"
NAME_CHARACTERS_MAX = 200  # Of the 249 that a topic's name may have.

_SHARED: pytest.StashKey[Shared] = pytest.StashKey()  # There while the session has its broker.
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
def kafka(kafka_configs: Mapping[str, Any], pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A broker in this process, for the whole session; under pytest-xdist each worker has its own."""
    from odradek.testing.embedded_broker import Broker
    from odradek.testing.shared import Shared

    with Broker(kafka_configs) as broker:
        shared = pytestconfig.stash[_SHARED] = Shared(broker)
        yield broker
        del pytestconfig.stash[_SHARED]
        complaint = shared.complaint()
        if complaint is not None:  # The last test stopped it.
            pytest.fail(complaint, pytrace=False)


@pytest.fixture
def kafka_topic(kafka: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic that only this test has; it is deleted afterwards."""
    marker = request.node.get_closest_marker(MARKER)
    name = _topic_name(request.node.name)
    kafka.create_topic(name, *(() if marker is None else marker.args), **({} if marker is None else marker.kwargs))
    yield name
    if kafka.is_running:
        from odradek.base.errors import Refused

        with suppress(Refused):  # The test may have deleted it.
            kafka.delete_topic(name)


@pytest.fixture
def kafka_cluster(kafka_configs: Mapping[str, Any]) -> Iterator[Cluster]:
    """Three brokers that only this test has, so that it may stop them."""
    from odradek.testing.embedded_cluster import Cluster

    with Cluster(kafka_configs) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Keeps the faults that a fixture for several tests asks for, until it ends."""
    shared = request.config.stash.get(_SHARED, None)
    before = [] if shared is None else shared.broker.faults.left
    result = yield
    shared = request.config.stash.get(_SHARED, None)  # The fixture may have asked for the broker.
    if shared is not None and fixturedef.scope != "function":
        shared.keep(fixturedef, before)
    return result


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    shared = request.config.stash.get(_SHARED, None)
    if shared is not None:
        shared.ended(fixturedef)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Leaves the session's broker to the next test as this one found it.

    Faults of the test end before its fixtures do, which may need the broker, and those of the fixtures after them.
    """
    shared = item.config.stash.get(_SHARED, None)
    if shared is None:
        return (yield)
    shared.test = item.name
    shared.clear()
    try:
        result = yield
    except BaseException as error:
        complaint = _look_after(item.config)
        if complaint is not None:
            error.add_note(complaint)
        raise
    complaint = _look_after(item.config)
    if complaint is not None:
        pytest.fail(complaint, pytrace=False)
    return result


def _look_after(config: pytest.Config) -> str | None:
    """Mends what the test has left of the session's broker; returns what it has to be told."""
    shared = config.stash.get(_SHARED, None)
    if shared is None:  # That was the last test.
        return None
    shared.clear()
    complaint = shared.complaint()
    if complaint is not None:
        shared.start()
    return complaint


def _pair(line: str) -> tuple[str, str]:
    name, separator, value = line.partition("=")
    if not separator:
        raise pytest.UsageError(f"{INI}: {line!r} is not key=value")
    return name.strip(), value.strip()


def _topic_name(test: str) -> str:
    """Returns a topic name of the test's, with '-' for what may not be in it, and a number for runs and retries."""
    plain = re.sub(r"[^a-zA-Z0-9._-]+", "-", test).strip("-.")
    return f"{plain[:NAME_CHARACTERS_MAX]}-{os.getpid()}-{next(_numbers)}"
