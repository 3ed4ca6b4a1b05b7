"""What a test's cluster waits for: that its brokers agree on who is there, who is the controller, and who leads.

A broker that a partition keeps from the tree does not count, nor does one that the controller can't tell anything.
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

LOOK_SECONDS = 0.005


class Agreement:
    """That of some brokers, which share a tree.  Methods that wait raise BrokerFailed after SECONDS_MAX."""

    def __init__(self, brokers: Sequence[Member], network: Network) -> None:
        self._brokers = {broker.id: broker for broker in brokers}
        self._network = network

    def check(self) -> None:
        """Raises BrokerFailed if a broker has stopped by itself."""
        for broker in self._brokers.values():
            broker.check()

    def wait(self, is_so: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not is_so():
            self.check()
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{otherwise}, after {SECONDS_MAX} s")
            time.sleep(LOOK_SECONDS)

    def settle(self, tree: Tree) -> None:
        """Waits until every running broker knows which brokers run, and the controller."""
        self.wait(partial(self._are_registered, tree), "not every broker is registered")
        self.controller(tree)
        self.wait(lambda: self.know(tree, has_brokers(self.registered())), "not every broker knows of all")

    def heal(self, tree: Tree) -> None:
        """Waits for the same, for leaders of all that the running brokers hold, and until all know them."""
        if self.registered():
            self.settle(tree)
            self.wait(lambda: self.know(tree, are_led(self.registered())), "not every partition has a leader again")
            self.wait(partial(self._know_the_same, tree), "not every broker knows the same topics and leaders")

    def controller(self, tree: Tree) -> Member:
        """Waits until there is a controller that every running broker knows, and returns it."""
        found: list[BrokerId] = []

        def is_elected() -> bool:
            elected = elections.controller(tree)
            if elected is None or elected not in self.registered() or not self.know(tree, controlled_by(elected)):
                return False
            found.append(elected)
            return True

        self.wait(is_elected, "the brokers have elected no controller")
        return self._brokers[found[0]]

    def know(self, tree: Tree, is_so: Callable[[ClusterView], bool]) -> bool:
        """True if it holds for all brokers that run, and that can be told."""
        return all(self._brokers[broker].ask(is_so) for broker in self.told(tree))

    def registered(self) -> set[BrokerId]:
        """Returns the brokers that run, and that no partition keeps from the tree."""
        network = self._network
        return {one.id for one in self._brokers.values() if one.is_running and not network.is_cut(one.id, Shared.TREE)}

    def told(self, tree: Tree) -> set[BrokerId]:
        """Returns those of them to which the controller gets through."""
        registered = self.registered()
        controller = elections.controller(tree) if self._network.cuts else None
        if controller is None:
            return registered
        return {broker for broker in registered if not self._network.is_cut(controller, broker)}

    def _know_the_same(self, tree: Tree) -> bool:
        """Who hears the controller and can't answer is told one thing, and the next when it can."""
        controller = elections.controller(tree)
        is_cut = self._network.is_cut
        told = [one for one in self.told(tree) if controller is None or not is_cut(one, controller)]
        known = [self._brokers[broker].ask(leaders_of_all) for broker in told]
        return all(one == known[0] for one in known)

    def _are_registered(self, tree: Tree) -> bool:
        """False while the session of a broker has ended, and it does not know that yet or is registering anew."""
        return all(
            elections.registered_epoch(tree, broker) == self._brokers[broker].broker_epoch()
            for broker in self.registered()
        )
