"""Limits on connections for listeners that share one count: Kafka's ConnectionQuotas."""

from __future__ import annotations

from collections import Counter


class ConnectionQuotas:
    """Connection counts of some listeners; a changed limit applies to new connections only."""

    def __init__(self, connections_max: int, per_address_max: int) -> None:
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._count = 0
        self._by_address: Counter[str] = Counter()

    def limit(self, connections_max: int, per_address_max: int) -> None:
        self._connections_max, self._per_address_max = connections_max, per_address_max

    def has_room(self, address: str) -> bool:
        """Return whether one more connection is allowed from the address."""
        return self._count < self._connections_max and self._by_address[address] < self._per_address_max

    def add(self, address: str) -> None:
        self._count += 1
        self._by_address[address] += 1

    def remove(self, address: str) -> None:
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
