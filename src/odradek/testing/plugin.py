"""The pytest plugin: a session-wide broker, a topic for each test, and a cluster on request.

    def test_orders(kafka, kafka_topic):
        Producer({"bootstrap.servers": kafka.address}).produce(kafka_topic, b"one")

pytest loads this module in every session of every project that has Odradek installed. It therefore imports nothing that
is not already loaded; the broker is imported by the first fixture that needs it.
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
NAME_CHARACTERS_MAX = 200  # Of the maximum of 249 for a topic name.

_SHARED: pytest.StashKey[Shared] = pytest.StashKey()  # Present while the session has its broker.
_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(INI, "configuration of the broker of the `kafka` fixture, one key=value per line", "linelist")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}(partitions, configs): partitions and configuration of this test's topic"
    )


@pytest.fixture(scope="session")
def kafka_configs(pytestconfig: pytest.Config) -> Mapping[str, Any]:
    """Return the broker's configuration; override it in conftest.py or set it in the ini file."""
    return dict(_pair(line) for line in pytestconfig.getini(INI))


@pytest.fixture(scope="session")
def kafka(kafka_configs: Mapping[str, Any], pytestconfig: pytest.Config) -> Iterator[Broker]:
    """Provide a broker in this process for the whole session; each pytest-xdist worker has its own."""
    from odradek.testing.embedded_broker import Broker
    from odradek.testing.shared import Shared

    with Broker(kafka_configs) as broker:
        shared = pytestconfig.stash[_SHARED] = Shared(broker)
        yield broker
        del pytestconfig.stash[_SHARED]
        failure = shared.failure_message()
        if failure is not None:  # The last test stopped it.
            pytest.fail(failure, pytrace=False)


@pytest.fixture
def kafka_topic(kafka: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """Provide the name of a topic for this test only; it is deleted afterwards."""
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
    """Provide three brokers for this test only, which may stop them."""
    from odradek.testing.embedded_cluster import Cluster

    with Cluster(kafka_configs) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Keep the faults of a fixture with a wider scope than a test until it ends."""
    shared = request.config.stash.get(_SHARED, None)
    before = [] if shared is None else shared.broker.faults.left
    result = yield
    shared = request.config.stash.get(_SHARED, None)  # The fixture may have started the broker.
    if shared is not None and fixturedef.scope != "function":
        shared.keep(fixturedef, before)
    return result


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    shared = request.config.stash.get(_SHARED, None)
    if shared is not None:
        shared.clear_faults_of(fixturedef)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Restore the session's broker for the next test.

    Faults of the test end before its fixtures are torn down, because fixtures may need the broker. Faults of these
    fixtures end afterwards.
    """
    shared = item.config.stash.get(_SHARED, None)
    if shared is None:
        return (yield)
    shared.test = item.name
    shared.clear()
    try:
        result = yield
    except BaseException as error:
        failure = _restore_broker(item.config)
        if failure is not None:
            error.add_note(failure)
        raise
    failure = _restore_broker(item.config)
    if failure is not None:
        pytest.fail(failure, pytrace=False)
    return result


def _restore_broker(config: pytest.Config) -> str | None:
    """Undo changes of the test to the session's broker, and return a message if it was stopped."""
    shared = config.stash.get(_SHARED, None)
    if shared is None:  # This was the last test.
        return None
    shared.clear()
    failure = shared.failure_message()
    if failure is not None:
        shared.start()
    return failure


def _pair(line: str) -> tuple[str, str]:
    name, separator, value = line.partition("=")
    if not separator:
        raise pytest.UsageError(f"{INI}: {line!r} is not key=value")
    return name.strip(), value.strip()


def _topic_name(test: str) -> str:
    """Return a topic name for a test, with '-' for invalid characters and a number for runs and retries."""
    plain = re.sub(r"[^a-zA-Z0-9._-]+", "-", test).strip("-.")
    return f"{plain[:NAME_CHARACTERS_MAX]}-{os.getpid()}-{next(_numbers)}"
