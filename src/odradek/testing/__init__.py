"""A real broker for tests in one line: in the same process, on a free port, in a temporary directory.

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.address})

It is the broker of `odradek serve`, with real sockets and files, on its own thread, plus fault injection.
docs/TESTING.md describes all of it. pytest always loads only this file and plugin.py; every other module is imported on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.testing.embedded_broker import Broker
    from odradek.testing.embedded_cluster import Cluster
    from odradek.testing.faults import Fault, Faults, Seen
    from odradek.testing.host import BrokerFailed
    from odradek.testing.network import Partition

__all__ = ["Broker", "BrokerFailed", "Cluster", "Fault", "Faults", "Partition", "Seen"]

_HOMES = {
    "Broker": "embedded_broker",
    "BrokerFailed": "host",
    "Cluster": "embedded_cluster",
    "Fault": "faults",
    "Faults": "faults",
    "Partition": "network",
    "Seen": "faults",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
