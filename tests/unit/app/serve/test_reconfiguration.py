"""Dynamic configs of a running broker's listeners and movers: prepared first, refused if unsafe."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from odradek.app.config.server_config import settings
from odradek.app.serve.reconfiguration import Reconfiguration
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError
from odradek.net.clients.listener import Listener
from odradek.net.native.movers import Movers
from support.certificates import PASSWORD, Authority, written


class RecordingListener:
    """A listener that records its changes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.limits: list[tuple[int, int]] = []
        self.quotas = self
        self.secured = 0

    def limit(self, connections_max: int, per_address_max: int) -> None:
        self.limits.append((connections_max, per_address_max))

    def secure(self, contexts: object) -> None:
        self.secured += 1


class RecordingMovers:
    """Movers that record their changes."""

    def resize(self, threads: int) -> None:
        self.threads = threads


class Stores:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = Authority()

    def texts(self, name: str, prefix: str = "") -> dict[str, str]:
        store = written(self._folder / f"{name}.p12", self._authority.known("localhost").pkcs12())
        trust = written(self._folder / f"{name}.trust", self._authority.pkcs12())
        return {
            f"{prefix}ssl.keystore.type": "PKCS12",
            f"{prefix}ssl.keystore.location": store,
            f"{prefix}ssl.keystore.password": PASSWORD,
            f"{prefix}ssl.truststore.type": "PKCS12",
            f"{prefix}ssl.truststore.location": trust,
            f"{prefix}ssl.truststore.password": PASSWORD,
        }


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


LISTENERS = {"listeners": "SAFE://0.0.0.0:9093", "listener.security.protocol.map": "SAFE:SSL"}
PREFIX = "listener.name.safe."


def of(stores: Stores) -> tuple[Reconfiguration, RecordingListener, BrokerConfigs]:
    texts = {**LISTENERS, **stores.texts("first"), "ssl.client.auth": "required"}
    listener, known = RecordingListener("SAFE"), settings(texts)
    return Reconfiguration(known, [cast(Listener, listener)], cast(Movers, RecordingMovers())), listener, known.configs


def test_certificates_are_reloaded_only_if_they_changed(stores: Stores) -> None:
    reconfiguration, listener, before = of(stores)
    reconfiguration.prepare(before, before.with_dynamic({}, {"max.connections": "5", "max.connections.per.ip": "3"}))()
    assert (listener.limits, listener.secured) == ([(5, 3)], 0)
    own = stores.texts("second", PREFIX)
    after = before.with_dynamic(own, {})
    apply_change = reconfiguration.prepare(before, after)
    assert listener.secured == 0, "nothing is changed before it is written"
    apply_change()
    assert listener.secured == 1
    reconfiguration.prepare(after, after.with_dynamic(own, {"max.connections": "7"}))()
    assert listener.secured == 1


@pytest.mark.parametrize(
    ("dynamic", "sentence"),
    [
        ({f"{PREFIX}ssl.keystore.location": "/nowhere"}, "/nowhere"),
        ({f"{PREFIX}ssl.keystore.password": "wrong"}, "does not open"),
        ({f"{PREFIX}ssl.client.auth": "none"}, "accepts unauthenticated connections from the network"),
        ({"ssl.client.auth": "none"}, "accepts unauthenticated connections from the network"),
        ({f"{PREFIX}ssl.enabled.protocols": "SSLv3"}, "SSLv3"),
    ],
)
def test_invalid_dynamic_configs_are_refused(stores: Stores, dynamic: dict[str, str], sentence: str) -> None:
    reconfiguration, listener, before = of(stores)
    with pytest.raises(ConfigError, match=sentence) as refused:
        reconfiguration.prepare(before, before.with_dynamic(dynamic, {}))
    assert PASSWORD not in str(refused.value) and not listener.secured
