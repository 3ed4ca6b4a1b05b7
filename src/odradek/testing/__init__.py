"""A broker for tests: in the test's own process, on a free port, in a temporary directory, in one line.

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.address})

It is the broker that `odradek serve` runs, with real sockets and real files, on a thread of its own; and it has faults
on demand.  docs/TESTING.md shows all of it.  What pytest loads of this package when nobody uses it is this file and
plugin.py: everything else is imported by its first use.
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
