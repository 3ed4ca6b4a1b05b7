"""Agreement of a test cluster's brokers on the registered brokers, the controller and the leaders.

A broker without access to the metadata tree because of a partition is ignored, and so is a broker that the controller
can't reach.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from odradek.base.units import BrokerId
from odradek.coordination.tree import Tree
from odradek.core.kernel.cluster_view import ClusterView
from odradek.testing import tree_access as elections
from odradek.testing.embedded_member import Member, are_led, controlled_by, has_brokers, leaders_of_all
from odradek.testing.host import SECONDS_MAX, BrokerFailed
from odradek.testing.network import Network, Shared

CHECK_SECONDS = 0.005


class Agreement:
    """Agreement of brokers that share a metadata tree; waits raise BrokerFailed after SECONDS_MAX."""

    def __init__(self, brokers: Sequence[Member], network: Network) -> None:
        self._brokers = {broker.id: broker for broker in brokers}
        self._network = network

    def check(self) -> None:
        """Raise BrokerFailed if a broker has failed."""
        for broker in self._brokers.values():
            broker.check()

    def wait(self, condition: Callable[[], bool], failure: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{failure} within {SECONDS_MAX} s")
            time.sleep(CHECK_SECONDS)

    def settle(self, tree: Tree) -> None:
        """Wait until every running broker knows the running brokers and the controller."""
        self.wait(partial(self._are_registered, tree), "not all brokers registered")
        self.controller(tree)
        self.wait(lambda: self.know(tree, has_brokers(self.registered())), "not all brokers learned of the others")

    def heal(self, tree: Tree) -> None:
        """Wait as `settle` does, until all running replicas have leaders and all brokers know them."""
        if self.registered():
            self.settle(tree)
            self.wait(lambda: self.know(tree, are_led(self.registered())), "not all partitions got a leader")
            self.wait(partial(self._agree_on_leaders, tree), "the brokers did not agree on topics and leaders")

    def controller(self, tree: Tree) -> Member:
        """Wait for a controller that every running broker knows, and return it."""
        found: list[BrokerId] = []

        def is_elected() -> bool:
            elected = elections.controller(tree)
            if elected is None or elected not in self.registered() or not self.know(tree, controlled_by(elected)):
                return False
            found.append(elected)
            return True

        self.wait(is_elected, "the brokers did not elect a controller")
        return self._brokers[found[0]]

    def know(self, tree: Tree, condition: Callable[[ClusterView], bool]) -> bool:
        """Return whether the condition holds for all running brokers that the controller can reach."""
        return all(self._brokers[broker].query_view(condition) for broker in self.reachable_by_controller(tree))

    def registered(self) -> set[BrokerId]:
        """Return the running brokers that can reach the metadata tree."""
        network = self._network
        return {one.id for one in self._brokers.values() if one.is_running and not network.is_cut(one.id, Shared.TREE)}

    def reachable_by_controller(self, tree: Tree) -> set[BrokerId]:
        """Return the registered brokers that the controller can reach."""
        registered = self.registered()
        controller = elections.controller(tree) if self._network.cuts else None
        if controller is None:
            return registered
        return {broker for broker in registered if not self._network.is_cut(controller, broker)}

    def _agree_on_leaders(self, tree: Tree) -> bool:
        """Return whether the brokers know the same leaders.

        A broker that receives from the controller but can't answer is ignored. It gets one request, and the next one
        only after the partition heals.
        """
        controller = elections.controller(tree)
        is_cut = self._network.is_cut
        answering = [
            one for one in self.reachable_by_controller(tree) if controller is None or not is_cut(one, controller)
        ]
        known = [self._brokers[broker].query_view(leaders_of_all) for broker in answering]
        return all(one == known[0] for one in known)

    def _are_registered(self, tree: Tree) -> bool:
        """Return whether the registrations in the tree match the brokers' own epochs.

        This is false if a session has expired and its broker does not know yet or is registering again.
        """
        return all(
            elections.registered_epoch(tree, broker) == self._brokers[broker].broker_epoch()
            for broker in self.registered()
        )
